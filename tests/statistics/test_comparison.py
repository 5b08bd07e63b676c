"""Comparisons: intervals that cover, baselines always there."""

import numpy as np
import pytest
from answers import as_json, plain

from posbias.comparison.scores import compare, compare_all
from posbias.core.errors import InvalidValueError
from posbias.core.machine import stream
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, harmonic, uniform
from posbias.reports.answers.numbers import Comparison


def measured(prompts: int, seed: int, noise: float = 1.0, tokens: int = 40) -> Profile:
    rng = np.random.default_rng(seed)
    truth = 1 + 4 * np.exp(-np.arange(tokens)[::-1] / 5)
    return Profile.from_samples(truth * rng.gamma(1 / noise, noise, size=(prompts, tokens)))


def test_a_profile_agrees_perfectly_with_itself():
    q = measured(30, 1)
    agreement = compare(q, q).agreements["p"]
    assert agreement.spearman.value == pytest.approx(1)
    assert agreement.wasserstein.value == 0
    assert agreement.wasserstein_without_first.value == 0


def test_same_seed_same_numbers_other_seed_other_intervals():
    p, q = harmonic(40), measured(20, 2)
    assert plain(compare(p, q, seed=5)) == plain(compare(p, q, seed=5))
    assert compare(p, q, seed=5).reliability != compare(p, q, seed=6).reliability


def test_the_interval_shrinks_with_prompts():
    def width(prompts):
        low, high = compare(harmonic(40), measured(prompts, 3)).agreements["p"].wasserstein.interval
        return high - low

    assert width(400) < width(25) / 2.5


def test_baselines_are_scored_too_and_uniform_has_no_rank():
    comparison = compare(harmonic(40), measured(10, 4))
    assert set(comparison.baselines) == {"uniform", "recency_only"}
    assert np.isnan(comparison.baselines["uniform"].spearman.value)
    assert as_json(Comparison.of(comparison))["baselines"]["uniform"]["spearman"]["value"] is None
    assert comparison.agreements["p"] == comparison.baselines["recency_only"]


def test_without_prompts_there_is_no_interval_and_no_noise():
    comparison = compare(uniform(10), harmonic(10))
    assert comparison.reliability is None
    assert comparison.agreements["p"].wasserstein.bounds is None


def test_a_profile_that_sees_only_the_first_token_has_no_score_without_it():
    p = Profile(np.array([1.0, 0, 0, 0]))
    agreement = compare(p, uniform(4)).agreements["p"]
    assert agreement.wasserstein.value == pytest.approx(0.5)
    assert np.isnan(agreement.wasserstein_without_first.value)


def test_lengths_must_match():
    with pytest.raises(InvalidValueError, match="short: expected 10 positions as in the reference, got 9"):
        compare_all({"short": uniform(9)}, uniform(10))
    with pytest.raises(InvalidValueError, match="at least 3"):
        compare(uniform(2), uniform(2))


def test_estimates_print_the_digits_they_know():
    assert str(Estimate(0.123456, 0.0123, 10)) == "0.123 ± 0.012"
    assert str(Estimate.of_mean(np.array([2.0]))) == "2"
    samples = np.random.default_rng(0).normal(3, 2, 10_000)
    estimate = Estimate.of_mean(samples)
    assert estimate.se == pytest.approx(0.02, rel=0.05)
    assert abs(estimate.value - 3) <= 4 * estimate.se
    low, high = estimate.interval
    assert low < 3 < high


def test_streams_are_independent_and_repeatable():
    a, b = stream(0, "one").normal(size=2000), stream(0, "two").normal(size=2000)
    assert (a == stream(0, "one").normal(size=2000)).all()
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(2000)
    for wrong in (-1, 1.5, True, "0"):
        with pytest.raises(InvalidValueError, match="seed"):
            stream(wrong, "one")


def test_positions_after_the_query_say_nothing():
    """By causality they are empty in both; counted, they would be agreement for nothing."""
    falling, rising = np.zeros(100), np.zeros(100)
    falling[:51], rising[:51] = np.arange(51, 0, -1), np.arange(1, 52)
    p, q = (Profile.from_weights(mass, query=50) for mass in (falling, rising))
    short = compare(Profile.from_weights(falling[:51]), Profile.from_weights(rising[:51]))
    assert compare(p, q).agreements == short.agreements
    assert short.agreements["p"].spearman.value == pytest.approx(-1.0)


def test_influence_on_different_tokens_is_not_compared():
    mass = np.full(10, 0.1)
    with pytest.raises(
        InvalidValueError, match="p: expected influence on position 9 as in the reference, got on 4"
    ):
        compare(Profile.from_weights(np.r_[mass[:5], np.zeros(5)], query=4), Profile(mass))


@pytest.mark.slow
def test_intervals_hold_the_score_against_as_many_other_prompts():
    """Coverage on synthetic prompts: of the mean score against fresh means of as many prompts."""
    rng = np.random.default_rng(0)
    tokens, prompts, trials = 64, 32, 120
    truth = 0.5 / (np.arange(tokens) + 1) + 1.0 / (tokens - np.arange(tokens)) ** 0.7 + 0.02
    prediction = Profile.from_weights(truth * np.exp(rng.normal(0, 0.3, tokens)))
    drawn = [truth * np.exp(rng.normal(0, 0.7, (prompts, tokens))) for _ in range(trials)]
    scores = [
        compare(prediction, Profile.from_samples(one), seed=k).agreements["p"] for k, one in enumerate(drawn)
    ]
    for name in ("spearman", "wasserstein"):
        each = [getattr(score, name) for score in scores]
        expected = np.mean([score.value for score in each])
        inside = np.mean([score.interval[0] <= expected <= score.interval[1] for score in each])
        assert inside >= 0.85
        assert all(score.interval[0] <= score.value <= score.interval[1] for score in each)
