"""The words follow from the numbers."""

import math
import re

import numpy as np
import pytest

from posbias.comparison.held_out import folds
from posbias.comparison.predictors import predictions
from posbias.comparison.reliability import Reliability
from posbias.comparison.scores import Comparison, Difference, HeldOut, compare_all
from posbias.profiles.agreement import Agreement
from posbias.profiles.estimate import Estimate
from posbias.profiles.influence import measured_influence
from posbias.profiles.profile import harmonic
from posbias.reports.answer import EXPECTED, PROMPT, SURE, WHERE, answers
from posbias.reports.evidence import Findings, shape
from posbias.reports.scores import MEASURES, SPEARMAN, WASSERSTEIN
from posbias.reports.verdicts import verdicts


def found_in(measurement, seed=0):
    measured, predicted = measured_influence(measurement), predictions(measurement)
    comparison = compare_all(predicted, measured, held_out=folds(measurement), seed=seed)
    return Findings(measurement, measured, predicted, comparison, seed)


def answered(measurement):
    """The answers by question."""
    return {one.question: one.text for one in answers(found_in(measurement))}


def scored_in_words(measurement):
    return verdicts(found_in(measurement))


@pytest.mark.parametrize(
    ("verdict", "looks", "loses"),
    [
        ("U", "favours both ends", "It loses the middle"),
        ("recency", "favours the most recent tokens", "It loses the"),
        ("primacy", "favours the earliest tokens", "It loses the"),
        ("flat", "favours no part", "No part of the context is lost"),
    ],
)
def test_shape_decides_the_words(make_measurement, verdict, looks, loses):
    measurement = make_measurement(verdict)
    assert measured_influence(measurement).summary.verdict == verdict
    text = answered(measurement)[WHERE]
    assert looks in text
    assert f" {loses}" in text


def test_shares_in_the_words_are_those_of_the_profile(make_measurement):
    measurement = make_measurement("U")
    s = measured_influence(measurement).summary
    text = answered(measurement)[WHERE]
    for end, mass in (("last", s.last_mass), ("first", s.first_mass)):
        said = re.search(rf"{end} {s.ends} tokens hold ([\d.]+) ± ([\d.]+) %", text)
        assert said is not None
        assert float(said[1]) == pytest.approx(100 * mass, abs=float(said[2]) / 10)
    assert f"around position {s.trough} " in text


def test_how_sure_it_is_says_what_the_prompts_are_and_do_not_tell(make_measurement):
    told = answered(make_measurement("U"))[SURE]
    assert "These 8 prompts tell which ends are favoured" in told
    assert "pieces of 40 tokens from the text ‘noise’" in told
    noisy = make_measurement("flat", prompts=4)
    noisy["influence"][0, 0] *= 40.0  # one prompt favours the first token, by far
    found = found_in(noisy)
    assert found.measured.doubts
    both = {one.question: one.text for one in answers(found)}
    assert "4 prompts do not tell whether" in both[SURE]
    assert both[PROMPT].startswith("If the verdict holds, in prompts like these ")


@pytest.mark.parametrize("shape", ["U", "recency", "primacy", "flat"])
def test_what_its_architecture_lets_one_expect_is_the_positional_prediction(make_measurement, shape):
    found = found_in(make_measurement(shape))
    text = {one.question: one.text for one in answers(found)}[EXPECTED]
    expected, comparison = found.predictions["positional"].summary, found.comparison
    same = expected.verdict == found.measured.summary.verdict
    assert ("That is the kind of curve that is seen" in text) == same
    assert f"{100 * expected.last_mass:.3g} % of the influence on the last {expected.ends}" in text
    off = comparison.agreements["positional"].wasserstein.value
    assert float(re.search(r"must move by ([\d.]+) %", text)[1]) == pytest.approx(100 * off, abs=0.6)
    nearer = off < comparison.baselines["uniform"].wasserstein.value
    assert ("it is nearer than an even spread" in text) <= nearer
    assert ("it is farther than an even spread" in text) <= (not nearer)


@pytest.mark.parametrize(
    ("shape", "weighs"),
    [
        ("U", "what stands at either end weighs more"),
        ("recency", "what stands at the end weighs more"),
        ("primacy", "what stands at the beginning weighs more"),
        ("flat", "what stands at either end weighs no more"),
    ],
)
def test_a_prompt_is_told_weight_and_never_use(make_measurement, shape, weighs):
    text = answered(make_measurement(shape))[PROMPT]
    assert weighs in text
    assert "Weight is not use" in text


def test_no_answer_needs_the_papers(make_measurement):
    for sink in (False, True):
        text = " ".join(answered(make_measurement("recency", sink=sink)).values())
        assert not re.search(r"Spearman|Wasserstein|rollout|λ|et al|Eq\.|kernel|logit|softmax|trough", text)


def test_sink_is_blamed_only_where_there_is_one(make_measurement):
    assert "Part of that distance is a sink" in scored_in_words(make_measurement("recency", sink=True))[-1]
    assert "normalisation" in scored_in_words(make_measurement("recency", sink=True))[-1]
    assert "sink" not in scored_in_words(make_measurement("U", sink=False))[-1]


def test_large_norm_is_named_only_when_large(make_measurement):
    measurement = make_measurement("recency", sink=True)
    measurement["residual_norm"][:] = 10.0
    assert "Part of that distance is a sink" in scored_in_words(measurement)[-1]
    assert "normalisation" not in scored_in_words(measurement)[-1]


def test_one_prompt_gives_no_intervals_and_no_noise(make_measurement):
    measurement = make_measurement("U", prompts=1)
    text = " ".join([*answered(measurement).values(), *scored_in_words(measurement)])
    assert "not known how much noise" in text
    assert "±" not in text
    assert "resamples" not in text


def scored(spearman, wasserstein, reach=0.01):
    a, b = (
        Estimate(value, math.nan, ends=(value - reach, value + reach)) for value in (spearman, wasserstein)
    )
    return Agreement(a, b, a, b)


def words(make_measurement, agreements, ceiling, difference=None, held_out=False):
    """What is said where the predictors score so, the ceiling is this, and the first minus the second is that."""
    measurement = make_measurement("U")
    measured = measured_influence(measurement)
    more, less = agreements
    differences = () if difference is None else (Difference(more, less, difference),)
    noise = Reliability(*[scored(0.5, 0.2)] * 2, *[ceiling] * 2)
    judged = HeldOut(agreements, {}, differences) if held_out else None
    one = Comparison(agreements, {}, noise, differences, judged)
    profiles = {key: harmonic(measured.tokens) for key in agreements}
    return verdicts(Findings(measurement, measured, profiles, one))


def test_best_is_one_or_two(make_measurement):
    one = {"fitted": scored(0.9, 0.1), "energy": scored(0.5, 0.3)}
    text = words(make_measurement, one, scored(0.95, 0.05))[0]
    assert "‘residual-aware, fitted logits’ explains it best" in text
    two = {"fitted": scored(0.9, 0.3), "energy": scored(0.895, 0.1)}
    text = words(make_measurement, two, scored(0.95, 0.05))[0]
    assert "none is best in both respects" in text


def test_paired_differences_decide_and_not_intervals_that_overlap(make_measurement):
    """Two scores whose intervals overlap can differ for certain; what they share drops out of the difference."""
    agreements = {"energy": scored(0.88, 0.15, 0.1), "fitted": scored(0.9, 0.1, 0.1)}
    text = words(make_measurement, agreements, scored(0.95, 0.05), scored(-0.02, 0.05))[0]
    assert (
        "By Spearman, ‘residual-aware, fitted logits’ is better than every other predictor (each at 95 %)"
        in text
    )
    assert "than the nearest, ‘energy rollout’, by 0.020 [0.010, 0.030]" in text
    assert "by 0.050 [0.040, 0.060]" in text  # nearer by so much: a Wasserstein distance is better when less
    text = words(make_measurement, agreements, scored(0.95, 0.05), scored(-0.02, 0.05, 0.06))[0]
    assert "not told apart from ‘energy rollout’ (by 0.020 [−0.040, 0.080])" in text


def test_only_a_noiseless_predictor_is_called_a_ceiling(make_measurement):
    agreements = {"fitted": scored(0.9, 0.1), "energy": scored(0.5, 0.3)}
    near = words(make_measurement, agreements, scored(0.905, 0.095))[1]
    far = words(make_measurement, agreements, scored(0.99, 0.01))[1]
    past = words(make_measurement, agreements, scored(0.8, 0.2))[1]
    assert near.count("lies within its interval") == 2
    assert far.count("falls short of it: noise alone hardly explains what it lacks") == 2
    assert past.count("is beyond it") == 2
    for text in (near, far, past):
        assert text.index("a noiseless predictor") < text.index("ceiling")
        assert "second measurement" not in text


def test_verdicts_speak_of_prompts_that_were_not_used_where_they_can(make_measurement):
    agreements = {"fitted": scored(0.9, 0.1), "energy": scored(0.5, 0.3)}
    held_out = words(make_measurement, agreements, scored(0.95, 0.05), held_out=True)
    assert "statistics from one half of the prompts and judged on the other" in held_out[0]
    assert "against half the prompts, as here," in held_out[1]
    own = words(make_measurement, agreements, scored(0.95, 0.05))
    assert "judged on the very prompts whose statistics it uses, which flatters it" in own[0]
    assert "against these prompts" in own[1]


def test_an_end_below_an_even_share_is_not_said_to_be_favoured(make_measurement):
    """It may still stand out from the trough, which is what makes a U."""
    measurement = make_measurement("U")
    measurement["influence"][:] = np.where(np.arange(40) < 2, 0.7, np.where(np.arange(40) < 38, 0.3, 12.0))
    s = measured_influence(measurement).summary
    assert (s.verdict, s.first_mass < s.ends / s.tokens < s.last_mass) == ("U", True)
    assert (
        "favours its last tokens; its first hold less than an even share, but more than those where "
        "influence is least (U-shaped)" in answered(measurement)[WHERE]
    )


def test_a_lead_that_token_0_makes_is_said_to_be_one(make_measurement):
    wins, ties = Estimate(-0.3, math.nan, ends=(-0.4, -0.2)), Estimate(0.01, math.nan, ends=(-0.1, 0.1))
    agreements = {"energy": scored(0.9, 0.1), "fitted": scored(0.8, 0.4)}
    difference = Agreement(
        Estimate(0.1, math.nan, ends=(0.05, 0.15)), wins, Estimate(0.1, math.nan, ends=(0.05, 0.15)), ties
    )
    text = words(make_measurement, agreements, scored(0.95, 0.05), difference)[0]
    assert (
        text.count("without token 0 it is not shown to be better than ‘residual-aware, fitted logits’") == 1
    )
    assert "By Wasserstein, ‘energy rollout’ is better than every other predictor" in text
    assert text.endswith("its scores there are hopeful.")
    even = words(make_measurement, agreements, scored(0.95, 0.05), scored(0.1, -0.3))[0]
    assert "without token 0" not in even


def test_a_predictor_is_not_praised_without_an_even_spread_beside_it(make_measurement):
    found = {"energy": scored(0.5, 0.1), "fitted": scored(0.9, 0.4)}
    measurement = make_measurement("U")
    measured = measured_influence(measurement)
    comparison = Comparison(found, {"uniform": scored(np.nan, 0.2)}, None)
    profiles = {key: harmonic(measured.tokens) for key in found}
    text = verdicts(Findings(measurement, measured, profiles, comparison))[0]
    assert "Wasserstein 0.400 [0.390, 0.410], an even spread is nearer with 0.200" in text
    assert "Wasserstein 0.100 [0.090, 0.110], 0.200 for an even spread" in text


def test_undefined_scores_never_win():
    agreements = {"a": scored(np.nan, 0.2), "b": scored(-0.5, 0.3)}
    assert SPEARMAN.best(agreements) == ["b"]
    assert WASSERSTEIN.best(agreements) == ["a"]
    assert SPEARMAN.best({"a": agreements["a"]}) == []


def test_digits_follow_the_widest_interval():
    wide = Agreement(*[Estimate(0.5, math.nan, ends=(0.4, 0.6))] * 4)
    narrow = Agreement(*[Estimate(0.5, math.nan, ends=(0.499, 0.501))] * 4)
    assert [one.digits_in(Comparison({"a": wide}, {"b": narrow}, None)) for one in MEASURES] == [2] * 4
    assert SPEARMAN.digits_in(Comparison({"b": narrow}, {}, None)) == 4


def test_errors_of_shares_are_those_of_the_bootstrap(make_measurement):
    measured = measured_influence(make_measurement("U", prompts=60))
    found = shape(measured)
    assert measured.samples is not None
    random = np.random.default_rng(1)
    drawn = measured.samples[random.integers(60, size=(2000, 60))].sum(axis=1)
    ends = measured.summary.ends
    shares = drawn[:, -ends:].sum(axis=1) / drawn.sum(axis=1)
    assert found.last.value == pytest.approx(measured.summary.last_mass, rel=1e-12)
    assert found.last.se == pytest.approx(shares.std(), rel=0.1)
    assert found.depth.value == pytest.approx(measured.summary.trough_depth, rel=1e-9)
    assert found.trough_range is not None
    assert found.trough_range[0] <= measured.summary.trough <= found.trough_range[1]


def test_an_open_difference_says_about_how_many_prompts_would_tell(make_measurement):
    """Of the best and its rival: by .02 ± .04 over 32 prompts, and by nothing at all."""
    agreements = {"fitted": scored(0.8, 0.1), "energy": scored(0.78, 0.1)}
    seen, tie = (Agreement.estimated([Estimate(value, 0.04, 32)] * 4) for value in (0.02, 0.0))
    for difference, told in ((seen, "about 500 prompts)"), (tie, "more than 10,000 prompts)")):
        text = " ".join(words(make_measurement, agreements, scored(0.9, 0.05), difference))
        assert told in text
        assert "; with so many prompts the interval would leave out 0, were the difference as seen." in text
    assert "so many prompts" not in " ".join(
        words(
            make_measurement,
            agreements,
            scored(0.9, 0.05),
            Agreement(*[Estimate(0.0, math.nan, ends=(-0.1, 0.1))] * 4),
        )
    )
