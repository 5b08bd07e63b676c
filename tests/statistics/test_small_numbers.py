"""With few draws intervals hold the truth as often as they say, and the draws that would tell do."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.comparison.agreement import SCORES
from posbias.comparison.scores import Judge, compare_all, differences_of, mean_agreement
from posbias.profiles.estimate import MOST_DRAWS, NORMAL_95, Estimate, about, t_95
from posbias.profiles.profile import Profile, harmonic, uniform

TOKENS = 24
TRUTH = 1 + 4 * np.exp(-np.arange(TOKENS)[::-1] / 5)


@pytest.mark.parametrize(("n", "normal"), [(4, 0.855), (8, 0.909)])
def test_means_of_few_draws_are_covered_where_a_normal_interval_is_not(n, normal):
    """In 4,000 samples: 95 % by Student's t, and what ± 1.96 covers by the same t distribution."""
    trials = 4000
    found = [Estimate.of_mean(one) for one in np.random.default_rng(n).normal(1.0, 2.0, (trials, n))]
    covered = np.mean([not one.tells(1.0) for one in found])
    narrow = np.mean([abs(one.value - 1.0) <= NORMAL_95 * one.se for one in found])
    assert abs(covered - 0.95) <= 4 * math.sqrt(0.95 * 0.05 / trials)
    assert abs(narrow - normal) <= 4 * math.sqrt(normal * (1 - normal) / trials)


def prompts(random, n):
    """Influences of `n` prompts: weights around the truth, of equal sum."""
    return TRUTH * random.gamma(4.0, 0.25, (n, TOKENS))


@pytest.mark.parametrize("n", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_scores_and_differences_from_few_prompts_are_covered(n, monkeypatch):
    """Wasserstein of 300 references: 95 % up to sampling (and skewness), where ± 1.96 covers less."""
    monkeypatch.setattr("posbias.comparison.scores.RESAMPLES", 200)
    random, trials = np.random.default_rng(n), 300
    profiles = {"harmonic": harmonic(TOKENS), "uniform": uniform(TOKENS)}
    scores, differences = [], []
    for _ in range(trials):
        judge = Judge.of(Profile.from_samples(prompts(random, n)), 0)
        found = {name: [judge.score(one, name)] for name, one in profiles.items()}
        (difference,) = differences_of(found, [("harmonic", "uniform")])
        scores.append(mean_agreement(found["harmonic"]).wasserstein)
        differences.append(difference.scores.wasserstein)
        assert (scores[-1].n, scores[-1].freedom) == (n, n - 1)
    for found, resampled in ((scores, math.sqrt(1 - 1 / n)), (differences, 1.0)):
        expected = float(np.mean([one.value for one in found]))
        covered = np.mean([not one.tells(expected) for one in found])
        narrow = np.mean([abs(one.value - expected) <= NORMAL_95 * one.se * resampled for one in found])
        assert abs(covered - 0.95) <= 4 * math.sqrt(0.95 * 0.05 / trials)
        assert narrow < covered - 0.02


def test_fewer_than_four_prompts_have_no_interval():
    samples = prompts(np.random.default_rng(0), 4)
    for n in (2, 3, 4):
        found = compare_all({"a": harmonic(TOKENS), "b": uniform(TOKENS)}, Profile.from_samples(samples[:n]))
        for one in (found.agreements["a"], found.differences[0].scores):
            assert (one.wasserstein.bounds is None) == (n < 4)
        assert (found.reliability is None) == (n < 4)


def test_the_mean_over_halves_has_the_degrees_of_freedom_of_welch():
    """Two folds of unlike noise: Welch and Satterthwaite, and all prompts counted."""
    random = np.random.default_rng(3)
    judges = [Judge.of(Profile.from_samples(prompts(random, n)), 0) for n in (4, 6)]
    folds = [judge.score(harmonic(TOKENS), "p") for judge in judges]
    found = mean_agreement(folds)
    for k, name in enumerate(SCORES):
        one, parts = getattr(found, name), np.array([fold.se[k] for fold in folds]) ** 2
        assert one.n == 10
        assert one.se == pytest.approx(math.sqrt(parts.sum()) / 2)
        assert one.freedom == pytest.approx(parts.sum() ** 2 / (parts**2 / [3, 5]).sum())


@given(
    st.floats(0.01, 10).flatmap(lambda value: st.tuples(st.just(value), st.floats(value / 50, 30 * value))),
    st.integers(2, 64),
)
def test_the_least_number_whose_interval_leaves_out_zero(seen, n):
    """The number is the first, of all from 2 upwards, whose t interval at the value seen leaves out 0."""
    value, se = seen
    found = Estimate(value, se, n).draws_to_tell()
    if Estimate(value, se, n).tells():
        assert found is None
        return
    deviation = se * math.sqrt(n)

    def significant(draws):
        return t_95(draws - 1.0) * deviation / math.sqrt(draws) < value

    # up to rounding of the last digit
    assert found > MOST_DRAWS or significant(found * (1 + 1e-9))
    assert found == 2 or not significant(found - 1 - 1e-9)
    assert Estimate(-value, se, n).draws_to_tell() == found


def test_so_many_draws_tell_in_half_of_all_cases():
    """As documented: even odds at that number, nine in ten at 2.7 times as many."""
    first = Estimate(0.5, 0.3, 10)
    needed, deviation = first.draws_to_tell(), 0.3 * math.sqrt(10)
    random, trials = np.random.default_rng(1), 1000
    for factor, odds in ((1.0, 0.5), (2.73, 0.9)):
        drawn = random.normal(0.5, deviation, (trials, round(factor * needed)))
        share = np.mean([Estimate.of_mean(one).tells() for one in drawn])
        assert abs(share - odds) < 0.06


def test_what_no_number_of_draws_decides_has_none_or_the_most():
    assert Estimate(0.0, 0.1, 9).draws_to_tell() == MOST_DRAWS + 1
    assert Estimate(0.1, math.nan, 1).draws_to_tell() is None
    assert Estimate(0.1).draws_to_tell() is None
    assert [about(n) for n in (7, 38, 144, 2345, MOST_DRAWS + 1)] == [
        "about 7", "about 38", "about 140", "about 2,300", "more than 10,000"
    ]  # fmt: skip
