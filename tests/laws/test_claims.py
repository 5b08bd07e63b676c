"""Laws of claims: they hold, fail or stay undecided as often as their level says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from posbias.core.errors import InvalidValueError
from posbias.profiles.claims import (
    LEAST,
    NEAR,
    Above,
    Below,
    Claim,
    Evidence,
    Judged,
    Near,
    Printed,
    count,
    judge,
    judged,
    mean,
    undecided,
)
from posbias.profiles.estimate import Estimate

NOISE = 0.02


def claim_that(sentence):
    return Claim("", "", sentence)


def share(verdicts: list[str], kind: str) -> float:
    return sum(verdict == kind for verdict in verdicts) / len(verdicts)


# --- one estimate ------------------------------------------------------------------------------------------


def test_effects_are_students_and_welchs_tests():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.1, 0.05, 5), rng.normal(0.0, 0.2, 4)
    assert mean("a", a, test=Above()).p == pytest.approx(
        stats.ttest_1samp(a, 0.0, alternative="greater").pvalue
    )
    welch = stats.ttest_ind(a, b, equal_var=False, alternative="greater")
    effect = Evidence("a − b", Estimate.of_mean(a) - Estimate.of_mean(b), test=Above())
    assert effect.p == pytest.approx(welch.pvalue)
    assert effect.estimate.freedom == pytest.approx(welch.df)
    assert effect.estimate.value == pytest.approx(a.mean() - b.mean())


def test_the_opposite_is_tested_against_the_smallest_gap_that_counts():
    values = np.random.default_rng(2).normal(0.01, 0.03, 6)
    below = stats.ttest_1samp(values, LEAST, alternative="less").pvalue
    assert mean("a", values, test=Above()).against == pytest.approx(below)


def test_a_null_control_is_two_one_sided_tests():
    values = np.random.default_rng(3).normal(0.01, 0.03, 6)
    above = stats.ttest_1samp(values, -NEAR, alternative="greater").pvalue
    below = stats.ttest_1samp(values, NEAR, alternative="less").pvalue
    assert mean("a", values, test=Near()).p == pytest.approx(max(above, below))


@pytest.mark.parametrize(
    ("true", "near", "kind", "least"),
    [
        (0.10, False, "holds", 0.95),
        (-0.10, False, "fails", 0.95),
        (0.0, True, "holds", 0.8),
        (0.12, True, "fails", 0.9),
        (-0.12, True, "fails", 0.9),
    ],
)
def test_power_with_five_networks(true, near, kind, least):
    rng = np.random.default_rng(4)
    verdicts = [
        mean("a", rng.normal(true, NOISE, 5), test=Near() if near else Above()).verdict() for _ in range(400)
    ]
    assert share(verdicts, kind) > least


@pytest.mark.parametrize(
    ("true", "near", "wrong"), [(0.0, False, "holds"), (LEAST, False, "fails"), (NEAR, True, "holds")]
)
def test_at_the_edge_a_verdict_is_wrong_no_more_often_than_its_level(true, near, wrong):
    rng = np.random.default_rng(5)
    verdicts = [
        mean("a", rng.normal(true, NOISE, 3), test=Near() if near else Above()).verdict() for _ in range(2000)
    ]
    assert share(verdicts, wrong) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_three_noisy_networks_decide_nothing():
    assert mean("a", np.array([0.1, -0.2, 0.4]), test=Above()).verdict() == "undecided"


def test_networks_without_any_noise_are_decided_by_their_value():
    assert mean("a", np.full(3, 0.1), test=Above()).verdict() == "holds"
    assert mean("a", np.full(3, -0.1), test=Above()).verdict() == "fails"
    assert mean("a", np.zeros(3), test=Above()).verdict() == "fails"
    assert mean("a", np.zeros(3), test=Near()).verdict() == "holds"


def test_one_network_is_too_few():
    assert "independent values: 1, two needed" in mean("a", np.array([0.2]), test=Above()).flaw


# --- claims ---------------------------------------------------------------------------------------------------


def effect(kind: str) -> Evidence:
    return {
        "holds": Evidence("a", Estimate(0.3, 0.01, 5), test=Above()),
        "fails": Evidence("a", Estimate(-0.3, 0.01, 5), test=Above()),
        "undecided": Evidence("a", Estimate(0.03, 0.1, 5), test=Above()),
        "flawed": Evidence("a", flaw="not learnt", test=Above()),
    }[kind]


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        (("holds", "holds"), "holds"),
        (("holds", "fails"), "fails"),
        (("holds", "undecided"), "undecided"),
        (("holds", "flawed"), "undecided"),
        (("flawed", "fails"), "fails"),
    ],
)
def test_a_claim_needs_all_its_effects(kinds, verdict):
    claim = judged(claim_that("so it is"), tuple(effect(kind) for kind in kinds))
    assert claim.verdict == verdict
    assert str(claim).startswith(f"{verdict}: so it is")
    assert claim.as_dict()["verdict"] == verdict


def test_a_line_says_whose_claim_it_is_and_what_is_seen_where_nothing_is_decided():
    ours = judged(Claim("a/b/1", "", "so it is", provenance="ours"), (effect("fails"),))
    assert str(ours).startswith("fails (ours): so it is")
    open_ = judged(Claim("a/b/2", "", "so it is"), (effect("fails"),)).withheld("a stage of training")
    assert str(open_).startswith("undecided, not seen at this effort: so it is (not seen here: ")
    assert (open_.verdict, open_.seen) == ("undecided", False)


def test_a_failing_effect_is_shown_before_an_undecided_one():
    fails, flawed = effect("fails"), effect("flawed")
    assert judged(claim_that("so"), (effect("undecided"), fails, flawed)).deciding is fails
    # the estimate of a flawed one is NaN, which equals nothing, from Python 3.13 on not even itself in a value
    assert judged(claim_that("so"), (effect("holds"), flawed)).deciding is flawed


def test_many_effects_fail_no_more_often_than_one():
    """Ten effects at the edge of failing: Bonferroni keeps the claim from failing in more than 5 %."""
    rng = np.random.default_rng(6)
    verdicts = [
        judged(claim_that("so"), tuple(mean("a", rng.normal(LEAST, NOISE, 4)) for _ in range(10))).verdict
        for _ in range(600)
    ]
    assert share(verdicts, "fails") < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 600)


def test_verdicts_are_counted():
    claims = [judged(claim_that("a"), (effect(kind),)) for kind in ("holds", "holds", "fails")]
    assert count(claims) == {"holds": 2, "fails": 1, "undecided": 0}


def test_a_sentence_names_what_holds_and_what_does_not():
    named = tuple(
        Evidence(where, one.estimate)
        for where, one in (
            ("decay", effect("holds")),
            ("RoPE", effect("fails")),
            ("none", effect("undecided")),
        )
    )
    text = str(judged(claim_that("deeper is earlier"), named))
    assert text.startswith(
        "fails: deeper is earlier (holds for decay; fails for RoPE; undecided for none; RoPE −0.300"
    )
    assert "(4 of 4 hold; " in str(judged(claim_that("so"), (effect("holds"),) * 4))


# --- tests -------------------------------------------------------------------------------------------------

numbers = st.floats(-2.0, 2.0)
errors = st.floats(0.001, 0.5)


@given(numbers, errors, numbers, st.floats(0.0, 0.1), st.integers(2, 40))
def test_below_is_above_of_the_negative(value, se, bound, least, n):
    estimate = Estimate(value, se, n)
    mirrored = Above(-bound, least), -estimate
    assert Below(bound, least).p(estimate) == pytest.approx(mirrored[0].p(mirrored[1]))
    assert Below(bound, least).against(estimate) == pytest.approx(mirrored[0].against(mirrored[1]))


@given(numbers, errors, numbers, st.integers(2, 40))
def test_tests_are_about_a_place_not_about_zero(value, se, place, n):
    here, there = Estimate(value, se, n), Estimate(value + place, se, n)
    for test, moved in ((Above(), Above(place)), (Below(), Below(place)), (Near(), Near(place))):
        assert moved.p(there) == pytest.approx(test.p(here), abs=1e-9)
        assert moved.against(there) == pytest.approx(test.against(here), abs=1e-9)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_null_control_fails_two_sided(side):
    """Outside on either side: twice the one-sided p-value."""
    estimate = Estimate(side * 0.08, 0.02, 6)
    one_sided = stats.t.sf((0.08 - NEAR) / 0.02, 5)
    assert Near().against(estimate) == pytest.approx(2 * one_sided)
    # between one and two sides the verdict differs: p = .04 one-sided is not enough
    edge = Estimate(side * (NEAR + 0.02 * stats.t.isf(0.04, 5)), 0.02, 6)
    assert Evidence("a", edge, test=Near()).verdict() == "undecided"


@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(-8.0, 8.0), errors, errors)
def test_a_printed_number_agrees_up_to_rounding_and_errors(number, digits, away, ours, theirs):
    printed = Printed(Estimate(number / 10**digits, theirs), digits)
    error = math.hypot(ours, theirs)
    value = printed.number.value + math.copysign(printed.rounding, away) + away * error
    estimate = Estimate(value, ours, 100)
    assert printed.deviation(estimate) == pytest.approx(away, abs=1e-6)
    if abs(abs(away) - printed.errors) > 1e-6:
        verdict = Evidence("a", estimate, test=printed).verdict()
        assert verdict == ("holds" if abs(away) < printed.errors else "fails")
    assert printed.agrees(Estimate(printed.number.value, ours, 100))


def test_a_vague_number_confirms_no_printed_one_but_may_refute_it():
    printed = Printed(Estimate(0.6382), 4, known=5e-4)
    assert Evidence("a", Estimate(0.6382, 1e-3, 100), test=printed).verdict() == "undecided"
    assert Evidence("a", Estimate(0.6382, 1e-4, 100), test=printed).verdict() == "holds"
    assert Evidence("a", Estimate(0.7, 1e-3, 100), test=printed).verdict() == "fails"
    exact = Printed(Estimate(30.0), 0)
    assert Evidence("a", Estimate(30.0), test=exact).verdict() == "holds"
    assert Evidence("a", Estimate(31.0), test=exact).verdict() == "fails"


def test_an_estimate_is_printed_in_the_scale_of_its_test():
    def text(estimate: Estimate, test) -> str:
        return str(Evidence("p", estimate, test=test)).replace("\xa0", " ")

    small = Estimate(0.0015, 0.0002, 10**6)
    assert text(small, Above()) == "p +0.002 ± 0.000, p < 1e-5"
    assert text(Estimate(0.5015, 0.0002, 10**6), Above(0.5)) == "p 0.5015 ± 0.0002, p < 1e-5"
    assert text(Estimate(1.6e-7, 1e-8, 10**6), Above(least=0.0)).startswith("p +1.6e-7 ± 1e-8,")
    assert text(Estimate(0.50000016, 1e-8, 10**6), Above(0.5)).startswith("p 0.50000016 ± 1e-8,")
    assert text(Estimate(-0.25), Above(least=0.0)).startswith("p −0.25,")


def test_a_claim_is_judged_on_what_its_quantity_finds():
    claim = Claim("a/b/1", "Section 3", "It rises", lambda results: [Evidence("here", results)], Above(1.0))
    verdict = judge(claim, Estimate(2.0, 0.1, 50))
    assert (verdict.verdict, verdict.estimate.value) == ("holds", 2.0)
    assert verdict.as_dict()["id"] == "a/b/1"
    with pytest.raises(InvalidValueError, match="no quantity"):
        judge(Claim("a", "", "It rises"), 0)
    with pytest.raises(InvalidValueError, match="none given"):
        judged(claim_that("It rises"), [])


def test_a_judged_claim_is_read_as_it_was_written():
    pieces = (effect("holds"), effect("fails"))
    written = judged(Claim("a/b/1", "Section 3", "It rises"), pieces).as_dict()
    again = Judged.read(written, "a/b/1", "a/b")
    assert (again.id, again.paper, again.study, again.evidence) == ("a/b/1", "a", "a/b", ())
    assert again.as_dict() == written | {"paper": "a", "study": "a/b"}
    assert [one["verdict"] for one in again.more["effects"]] == ["holds", "fails"]
    with pytest.raises(KeyError, match="verdict"):
        Judged.read({name: written[name] for name in written if name != "verdict"}, "a/b/1", "a/b")


def test_a_claim_of_which_nothing_is_known_has_no_number():
    written = undecided(claim_that("It rises"), "not made", "a/b").as_dict()
    assert (written["number"], written["se"], written["verdict"], written["why"]) == (
        None,
        None,
        "undecided",
        "not made",
    )
    assert "effects" not in written


# --- estimates ---------------------------------------------------------------------------------------------


@given(st.lists(numbers, min_size=2, max_size=9), st.lists(numbers, min_size=2, max_size=9))
def test_differences_of_estimates_are_welchs(more, less):
    gap = Estimate.of_mean(np.array(more)) - Estimate.of_mean(np.array(less))
    assert gap.value == pytest.approx(np.mean(more) - np.mean(less), abs=1e-12)
    if np.ptp(more) > 1e-3 and np.ptp(less) > 1e-3:
        welch = stats.ttest_ind(more, less, equal_var=False)
        assert gap.freedom == pytest.approx(max(1.0, welch.df))
        low, high = welch.confidence_interval()
        assert gap.interval == pytest.approx((low, high))


def test_an_estimate_says_what_is_exact_and_what_is_not_known():
    exact = Estimate(0.5)
    assert exact.exact
    assert exact.known
    assert exact.interval == (0.5, 0.5)
    assert (str(exact), str(Estimate(math.nan)), str(Estimate(0.5, math.nan, 1))) == ("0.5", "–", "0.5")
    assert not Estimate(0.5, math.nan, 1).known
    assert not Estimate(math.nan).known
    low, high = Estimate(1.0, 0.1, 3).interval
    assert high - 1.0 == pytest.approx(0.1 * stats.t.isf(0.025, 2))
    assert 1.0 - low == pytest.approx(high - 1.0)
    scaled = Estimate(2.0, 0.1, 9).scaled(-3.0)
    assert (scaled.value, scaled.se, scaled.n) == (-6.0, pytest.approx(0.3), 9)
    assert (Estimate(LEAST) - Estimate(0.5, 0.1, 4)).freedom == pytest.approx(3.0)
