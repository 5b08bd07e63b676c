"""What another way to ask changes: differences within trials."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.spec import encode
from posbias.imports.trials import of_rows
from posbias.retrieval import curve_differences
from posbias.retrieval.curve import MEAN, answer_curve, profile_difference, same_trials
from posbias.retrieval.statistics import GAPS
from posbias.retrieval.trials import ARMS, retrieval_job

JOB = encode(retrieval_job("keys", pairs=9, positions=3))


def curve_of(found):
    """A curve whose fact is found always in a drawn order and never without."""
    arms = {name: np.full(len(found), name != ARMS[0]) for name in ARMS}
    depth = np.linspace(0, 1, found.shape[1])
    job = JOB | {"prompts": len(found)}
    return answer_curve("m", job, "first", found, found, arms, depth, 50.0, chance=1 / 9)


def drawn(rates, trials, seed):
    return np.random.default_rng(seed).random((trials, 3)) < np.array(rates)


@settings(max_examples=25)
@given(st.integers(4, 60), st.integers(0, 10**6))
def test_differences_are_those_of_plain_loops_and_turn_round_with_the_ways(trials, seed):
    one, other = drawn([0.5] * 3, trials, seed), drawn([0.7] * 3, trials, seed + 1)
    (found,) = curve_differences({"a": curve_of(one), "b": curve_of(other)})
    ends = {GAPS[0]: (0, 1), GAPS[1]: (2, 1), GAPS[2]: (0, 2)}
    for name, (here, there) in ends.items():
        apart = [(b[here] * 1 - b[there]) - (a[here] * 1 - a[there]) for a, b in zip(one, other, strict=True)]
        assert found.numbers[name].value == pytest.approx(sum(apart) / trials)
    assert found.numbers[MEAN].value == pytest.approx(other.mean() - one.mean())
    (back,) = curve_differences({"b": curve_of(other), "a": curve_of(one)})
    for name, number in found.numbers.items():
        assert back.numbers[name].value == pytest.approx(-number.value)
        low, high = number.interval
        assert low <= number.value <= high


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_a_way_held_against_itself_changes_nothing(seed):
    """Whatever it finds: no trial differs, and only their number says how sure that is."""
    curve = curve_of(drawn([0.9, 0.2, 0.6], 40, seed))
    (found,) = curve_differences({"a": curve, "b": curve})
    assert (found.verdict, found.changed) == ("inconclusive", [])
    assert all(number.value == number.se == 0 for number in found.numbers.values())
    assert found.at_most == pytest.approx(2 * (1 - (0.05 / 4) ** (1 / 40)))
    rows = {name: curve_of(drawn([0.9, 0.2, 0.6], 400, seed)) for name in "a"}
    (many,) = curve_differences(rows | {"b": rows["a"]})
    assert many.verdict == "no difference"


def test_one_who_reads_the_end_alone_changes_the_bias():
    reads, half = np.ones((40, 3), bool), np.tile([False, False, True], (40, 1))
    (found,) = curve_differences({"reads": curve_of(reads), "half": curve_of(half)})
    assert (found.changed, found.verdict) == ([GAPS[1], GAPS[2]], "changes the bias")
    said = " ".join(found.sentences())
    assert "finds less" in said
    assert "last - middle is larger by +1.000" in said
    assert "first - last is smaller by -1.000" in said


def test_what_both_ways_share_cancels_and_accuracy_alone_is_no_bias():
    """The second finds less at every place alike: accuracy changes, its dependence on position does not."""
    hard = np.random.default_rng(3).random((200, 1)) < 0.5
    (found,) = curve_differences(
        {"a": curve_of(hard | True & np.ones((200, 3), bool)), "b": curve_of(hard & np.ones((200, 3), bool))}
    )
    assert found.numbers[MEAN].sign == -1
    assert found.verdict == "no difference"


def test_more_that_is_looked_at_together_makes_intervals_wider():
    a, b = curve_of(drawn([0.6, 0.3, 0.5], 60, 1)), curve_of(drawn([0.5, 0.4, 0.5], 60, 2))
    alone, two, four = (
        curve_differences({"a": a, "b": b}),
        curve_differences({"a": a, "b": b, "c": b}),
        curve_differences({"a": a, "b": b}, together=4),
    )
    widths = [ones[0].numbers[GAPS[0]].half_width for ones in (alone, two, four)]
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


@pytest.mark.parametrize(
    "change",
    [
        lambda curve: replace(curve, answers=replace(curve.answers, rule="contains")),
        lambda curve: replace(curve, answers=replace(curve.answers, words=51.0)),
        lambda curve: replace(curve, job={**curve.job, "seed": 1}),
        lambda curve: curve_of(curve.answers.found[:-1]),
    ],
    ids=["rule", "words", "seed", "prompts"],
)
def test_other_trials_are_refused(change):
    curve = curve_of(drawn([0.5] * 3, 20, 0))
    with pytest.raises(InvalidValueError, match="curves"):
        curve_differences({"a": curve, "b": change(curve)})
    with pytest.raises(InvalidValueError, match="curves"):
        curve_differences({"a": curve})


# ── of profiles ──


def test_profiles_of_the_same_trials_differ_as_their_curves_do():
    one, other = curve_of(drawn([0.6, 0.3, 0.8], 50, 1)), curve_of(drawn([0.5, 0.4, 0.9], 50, 2))
    (curves,) = curve_differences({"q": one, "p": other})
    found = profile_difference(other.profile(), one.profile())
    assert found == curves
    assert found.paired


@pytest.mark.parametrize(
    "change", [{"job": JOB | {"seed": 1}}, {"words": 51.0}, {"rule": "contains"}, {"depth": [0]}]
)
def test_profiles_of_other_trials_are_compared_as_unpaired(change):
    """What makes a trial hard does not cancel: intervals are wider than within trials, values the same."""
    hard = np.random.default_rng(3).random((80, 1)) < 0.5
    rows = (hard & np.ones((80, 3), bool)).astype(float)
    curve = curve_of(rows.astype(bool)).profile()
    other = replace(curve, attrs=dict(curve.attrs) | change)
    assert not same_trials(curve, other)
    within, apart = profile_difference(curve, curve), profile_difference(other, curve)
    assert (within.paired, apart.paired) == (True, False)
    for name, number in apart.numbers.items():
        assert number.value == pytest.approx(within.numbers[name].value)
    assert apart.numbers[MEAN].half_width > 3 * within.numbers[MEAN].half_width


def test_curves_at_unlike_places_and_of_unlike_numbers_of_trials_are_compared_by_their_ends():
    p = of_rows(drawn([0.9, 0.2, 0.9], 60, 1).astype(float), kind="rate", measures="accuracy")
    five = np.random.default_rng(2).random((90, 5)) < np.array([0.1, 0.2, 0.2, 0.3, 0.9])
    q = of_rows(five.astype(float), kind="rate", measures="accuracy")
    found = profile_difference(p, q)
    assert (found.trials, found.paired) == ((60, 90), False)
    assert "first - middle" in found.changed
    assert profile_difference(p, replace(q, samples=None)) is None
    assert profile_difference(p, replace(q, measures="score")) is None
