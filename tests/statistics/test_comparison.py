"""Comparisons: intervals that cover with many prompts and with few, ceilings, differences, baselines."""

import math
from dataclasses import replace

import numpy as np
import pytest
from answers import plain
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from posbias.comparison.agreement import SCORES, paired_ceiling, reliability, scores
from posbias.comparison.predictors import Fold
from posbias.comparison.scores import Scorer, compare, compare_all, differences_of, mean_agreement
from posbias.core.errors import InvalidValueError
from posbias.core.machine import stream
from posbias.profiles.estimate import MOST_DRAWS, NORMAL_95, Estimate, t_95
from posbias.profiles.profile import Profile, harmonic, uniform


def test_positions_after_the_query_say_nothing():
    """By causality they are empty in both; counted, they would be agreement for nothing."""
    falling, rising = np.zeros(100), np.zeros(100)
    falling[:51], rising[:51] = np.arange(51, 0, -1), np.arange(1, 52)
    p, q = (Profile.from_weights(mass, query=50) for mass in (falling, rising))
    short = compare(Profile.from_weights(falling[:51]), Profile.from_weights(rising[:51]))
    assert compare(p, q).agreements == short.agreements
    assert short.agreements["p"].spearman.value == pytest.approx(-1.0)


def measured_about(prompts: int, seed: int, tokens: int = 40) -> Profile:
    truth = 1 + 4 * np.exp(-np.arange(tokens)[::-1] / 5)
    return Profile.from_samples(truth * np.random.default_rng(seed).gamma(1.0, 1.0, size=(prompts, tokens)))


def test_a_profile_agrees_with_itself_and_baselines_are_scored_too():
    p, q = harmonic(40), measured_about(20, 2)
    same, found = compare(q, q).agreements["p"], compare(p, q, seed=5)
    assert (same.spearman.value, same.wasserstein.value) == (pytest.approx(1), 0)
    assert set(found.baselines) == {"uniform", "recency_only"}
    assert np.isnan(found.baselines["uniform"].spearman.value)
    assert found.agreements["p"] == found.baselines["recency_only"]
    assert plain(found) == plain(compare(p, q, seed=5))
    assert found.reliability != compare(p, q, seed=6).reliability
    widths = [
        np.ptp(compare(p, measured_about(n, 3)).agreements["p"].wasserstein.interval) for n in (25, 400)
    ]
    assert widths[1] < widths[0] / 2.5
    # without prompts there is no interval and no noise, and of the first token alone no score without it
    exact = compare(Profile(np.array([1.0, 0, 0, 0])), uniform(4))
    assert (exact.reliability, exact.agreements["p"].wasserstein.bounds) == (None, None)
    assert exact.agreements["p"].wasserstein.value == pytest.approx(0.5)
    assert np.isnan(exact.agreements["p"].wasserstein_without_first.value)


def test_a_comparison_tabulates_its_scores_and_says_which_lead():
    held = measured_about(20, 2)
    found = compare_all({"near": Profile.from_weights(held.mass + 0.001), "far": harmonic(40)}, held)
    frame, near = found.to_dataframe(), found.agreements["near"].spearman
    assert list(frame.index[:4]) == ["near", "far", "uniform", "recency_only"]
    assert set(frame["role"]) == {"profile", "baseline", "noise"}
    scores = frame.loc["near", ["spearman", "spearman_low", "spearman_high"]]
    assert tuple(scores) == (near.value, *near.interval)
    leads = {(lead.more, lead.less): lead.sides for lead in found.leads}
    assert leads["near", "uniform"]["wasserstein"] == leads["near", "recency_only"]["spearman"] == "better"
    assert len(repr(found).splitlines()) == 1 + 4
    assert found.sentences().keys() == {"near", "far"}
    about = compare_all(
        {"any": Profile.from_weights(np.random.default_rng(0).random(40)), "near": held}, held
    )
    for name, one in about.agreements.items():
        unrelated = one.spearman.interval[0] <= 0 <= one.spearman.interval[1]
        assert unrelated == (name == "any")
        assert ("not shown to be related" in about.sentences()[name]) == unrelated


def test_unlike_lengths_and_queries_are_refused_and_seeds_give_streams_of_their_own():
    refused("short", lambda: compare_all({"short": uniform(9)}, uniform(10)))
    refused("p", lambda: compare(Profile(np.r_[np.full(5, 0.2), np.zeros(5)], query=4), uniform(10)))
    with pytest.raises(InvalidValueError):
        compare(uniform(2), uniform(2))
    a, b = stream(0, "one").normal(size=2000), stream(0, "two").normal(size=2000)
    assert (a == stream(0, "one").normal(size=2000)).all()
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(2000)
    refused("seed", *(lambda wrong=wrong: stream(wrong, "one") for wrong in (-1, 1.5, True, "0")))


# --- what noise allows: synthetic prompts about a U, of which few outweigh the others --------------------


TOKENS, PROMPTS = 48, 32
ROWS = ("split_half", "second_measurement", "noiseless")
POSITION = np.arange(TOKENS)
TRUTH = 0.15 / (POSITION + 1) + 1 / (TOKENS - POSITION) ** 0.9 + 0.02


def prompts(random, weights=1.0, noise=1.0, number=PROMPTS):
    """Influence of prompts: the truth times log-normal noise at each position, times a log-normal weight."""
    drawn = np.exp(random.normal(0, noise, (number, TOKENS)))
    return TRUTH * drawn * np.exp(random.normal(0, weights, (number, 1)))


def two(profile):
    """Spearman and Wasserstein of an `Agreement`."""
    return [profile.spearman, profile.wasserstein]


def score(p, q):
    """The same of two sets of prompts, or of one and the truth."""
    masses = [one / one.sum() for one in (np.atleast_2d(p).sum(axis=0), np.atleast_2d(q).sum(axis=0))]
    return scores(*masses, masses=True)[:2]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((0.1, 0.5), id="alike", marks=pytest.mark.slow),
        pytest.param((1.2, 1.2), id="heavy-tailed"),
    ],
)
def measured(request):
    """Forty measurements: what is said of each, and what really is, by row and score."""
    random, said, real = np.random.default_rng(0), [], []
    for number in range(40):
        mine, other = (prompts(random, *request.param) for _ in range(2))
        found = reliability(Profile.from_samples(mine), seed=number)
        said.append([[one.value, *one.interval] for name in ROWS for one in two(getattr(found, name))])
        real.append([score(mine[::2], other[::2]), score(mine, other), score(mine, TRUTH)])
    return np.array(said).reshape(40, 3, 2, 3), np.array(real)


def apart(said, real):
    """The mean of what is said minus that of what is, and its standard error."""
    error = np.hypot(np.std(said, axis=0, ddof=1), np.std(real, axis=0, ddof=1)) / np.sqrt(len(said))
    return np.mean(said, axis=0) - np.mean(real, axis=0), error


def test_intervals_hold_the_scores_that_they_are_about(measured):
    """Two others of half as many prompts, one other of as many, and the truth itself.

    Nominal 95 %; of 40 at least 85 % (34) must lie inside, which happens by chance in 98.6 % of correct tests.
    """
    said, real = measured
    rate = ((said[..., 1] <= real) & (real <= said[..., 2])).mean(axis=0)
    assert (rate >= 0.85).all(), rate


def test_a_second_measurement_agrees_as_well_as_said_where_spearman_brown_promises_too_much(measured):
    said, real = measured
    off, error = apart(said[:, 1, :, 0], real[:, 1])
    assert (np.abs(off) <= 4 * error).all()
    halves = said[:, 0, 0, 0].mean()
    assert 2 * halves / (1 + halves) > real[:, 1, 0].mean() + 0.01


def test_the_truth_does_not_correlate_better_than_the_ceiling(measured):
    """√r bounds the correlation of any fixed order; the true mean comes within .07 of it."""
    said, real = measured
    off, error = apart(said[:, 2, 0, 0], real[:, 2, 0])
    assert -4 * error <= off <= 0.07 + 4 * error


def test_noise_is_none_for_equal_prompts_and_has_no_ceiling_where_they_share_nothing():
    equal = reliability(Profile.from_samples(np.tile(TRUTH, (8, 1))))
    for name in ROWS:
        assert [one.value for one in two(getattr(equal, name))] == pytest.approx([1.0, 0.0], abs=1e-9)
    apart = reliability(Profile.from_samples(np.random.default_rng(3).lognormal(0, 1, (32, TOKENS))))
    assert abs(apart.split_half.spearman.value) < 0.15
    assert apart.second_measurement.spearman.value < 0.25
    masses = np.random.default_rng(1).dirichlet(np.ones(12), 8)
    against = reliability(Profile.from_weights(masses.mean(axis=0), samples=masses))
    assert against.split_half.spearman.value < 0
    for row in (against.second_measurement, against.noiseless, against.noiseless_half):
        assert (np.isnan(row.spearman.value), row.spearman.bounds) == (True, None)
        assert row.wasserstein.value > 0
    # four prompts are enough
    for number in (2, 3, 4, 5, 8, 9):
        held = Profile.from_samples(prompts(np.random.default_rng(4), number=number))
        compared = compare_all({"a": harmonic(TOKENS), "b": uniform(TOKENS)}, held)
        assert (compared.reliability is None) == (number < 4)
        for one in (compared.agreements["a"], compared.differences[0].scores):
            assert (one.wasserstein.bounds is None) == (number < 4)
        for name in ROWS if number > 3 else ():
            for one in two(getattr(compared.reliability, name)):
                assert one.interval[0] <= one.value <= one.interval[1]


@pytest.mark.parametrize(("weights", "noise", "least"), [(0.1, 0.5, 0.85), (0.7, 0.7, 0.8)])
def test_paired_differences_hold_the_true_one(weights, noise, least):
    """Two predictions a little off the truth: nominal 95 %, somewhat less where prompts are heavy-tailed."""
    random, intervals, values = np.random.default_rng(5), [], []
    predictions = {
        name: Profile.from_weights(TRUTH * np.exp(random.normal(0, off, TOKENS)))
        for name, off in (("near", 0.3), ("far", 0.6))
    }
    for _ in range(60):
        judge = Scorer.of(Profile.from_samples(prompts(random, weights, noise)), 0)
        scored = {name: [judge.score(one, name)] for name, one in predictions.items()}
        (found,) = differences_of(scored, [("near", "far")])
        values.append([one.value for one in two(found.scores)])
        intervals.append([one.interval for one in two(found.scores)])
    low, high = np.moveaxis(np.array(intervals), -1, 0)
    expected = np.mean(values, axis=0)
    assert (((low <= expected) & (expected <= high)).mean(axis=0) >= least).all()


def test_shared_noise_flatters_and_a_held_out_score_is_free_of_it():
    """A predictor that knows these very prompts scores perfectly on them, and like any other half held out."""
    samples = prompts(np.random.default_rng(6))
    measured = Profile.from_samples(samples)
    rows = np.arange(PROMPTS)
    folds = [
        Fold({"copy": Profile.from_samples(samples[rows % 2 == k])}, rows[rows % 2 != k]) for k in (0, 1)
    ]
    found = compare_all({"copy": Profile(measured.mass)}, measured, held_out=folds)
    assert found.agreements["copy"].spearman.value == pytest.approx(1.0)
    judged = found.held_out.agreements["copy"].spearman
    assert judged.value == pytest.approx(score(samples[::2], samples[1::2])[0])
    noise = found.reliability.split_half.spearman
    assert noise.interval[0] <= judged.value <= noise.interval[1]
    assert found.held_out.baselines["uniform"].wasserstein.value > 0
    assert compare_all({"copy": uniform(TOKENS)}, harmonic(TOKENS)).held_out is None


def test_the_ceiling_of_two_measurements_of_the_same_prompts_leaves_out_what_they_share():
    """Without a difference of the two 95 % of scores lie in its interval, far above those of other prompts."""
    inside, draws = np.zeros(2), 60
    for draw in range(draws):
        random = np.random.default_rng(draw)
        shared = random.gamma(1.0, 1.0, (24, 40)) * np.linspace(1, 2, 40)
        one, other = (
            Profile.from_samples(shared * random.gamma(50.0, 0.02, (24, 40)), prompts="same")
            for _ in range(2)
        )
        found, ceiling = scores(one.mass, other.mass, True), paired_ceiling(one, other, draw)
        for k, score in enumerate((ceiling.spearman, ceiling.wasserstein)):
            inside[k] += score.interval[0] <= found[k] <= score.interval[1]
    assert (inside / draws >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / draws)).all(), inside
    pair, same = compare(one, other), compare(one, one)
    assert pair.same_prompts == paired_ceiling(one, other)
    assert pair.agreements["p"].spearman.value > pair.reliability.noiseless.spearman.value, "no bound here"
    assert [same.same_prompts.spearman.value, same.same_prompts.wasserstein.value] == [1, 0]
    assert same.agreements["p"].spearman.interval == (1, 1), "resampled together"
    assert compare(replace(one, prompts=""), one).same_prompts is None


# --- few prompts -----------------------------------------------------------------------------------------


FEW_TOKENS = 24
FEW_TRUTH = 1 + 4 * np.exp(-np.arange(FEW_TOKENS)[::-1] / 5)


def few_prompts(random, n):
    """Influences of `n` prompts: weights around the truth, of equal sum."""
    return FEW_TRUTH * random.gamma(4.0, 0.25, (n, FEW_TOKENS))


@pytest.mark.parametrize("n", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_scores_and_differences_from_few_prompts_are_covered(n, monkeypatch):
    """Wasserstein of 300 references: 95 % up to sampling (and skewness), where ± 1.96 covers less."""
    monkeypatch.setattr("posbias.comparison.scores.RESAMPLES", 200)
    random, trials = np.random.default_rng(n), 300
    profiles = {"harmonic": harmonic(FEW_TOKENS), "uniform": uniform(FEW_TOKENS)}
    scores, differences = [], []
    for _ in range(trials):
        judge = Scorer.of(Profile.from_samples(few_prompts(random, n)), 0)
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


def test_the_mean_over_halves_has_the_degrees_of_freedom_of_welch():
    """Two folds of unlike noise: Welch and Satterthwaite, and all prompts counted."""
    random = np.random.default_rng(3)
    judges = [Scorer.of(Profile.from_samples(few_prompts(random, n)), 0) for n in (4, 6)]
    folds = [judge.score(harmonic(FEW_TOKENS), "p") for judge in judges]
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
    assert Estimate(0.0, se, n).draws_to_tell() == MOST_DRAWS + 1
    assert Estimate(value, math.nan, 1).draws_to_tell() is Estimate(value).draws_to_tell() is None
