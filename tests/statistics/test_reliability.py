"""What noise allows, on synthetic prompts with a known truth: a U; prompts of which few outweigh the others."""

from dataclasses import replace

import numpy as np
import pytest

from posbias.comparison.agreement import paired_ceiling, reliability, scores
from posbias.comparison.predictors import Fold
from posbias.comparison.scores import Judge, compare, compare_all, differences_of
from posbias.profiles.profile import Profile, harmonic, uniform

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


def test_equal_prompts_are_without_noise():
    found = reliability(Profile.from_samples(np.tile(TRUTH, (8, 1))))
    for name in ROWS:
        row = two(getattr(found, name))
        assert [one.value for one in row] == pytest.approx([1.0, 0.0], abs=1e-9)


def test_prompts_that_share_nothing_have_no_ceiling_to_speak_of():
    found = reliability(Profile.from_samples(np.random.default_rng(3).lognormal(0, 1, (32, TOKENS))))
    assert abs(found.split_half.spearman.value) < 0.15
    assert found.second_measurement.spearman.value < 0.25


def test_halves_that_do_not_agree_have_no_ceiling():
    masses = np.random.default_rng(1).dirichlet(np.ones(12), 8)
    found = reliability(Profile.from_weights(masses.mean(axis=0), samples=masses))
    assert found.split_half.spearman.value < 0
    for row in (found.second_measurement, found.noiseless, found.noiseless_half):
        assert np.isnan(row.spearman.value)
        assert row.spearman.bounds is None
        assert row.wasserstein.value > 0


@pytest.mark.parametrize("number", [4, 5, 7, 8, 9])
def test_few_prompts_are_enough(number):
    found = reliability(Profile.from_samples(prompts(np.random.default_rng(4), number=number)))
    for name in ROWS:
        for one in two(getattr(found, name)):
            assert one.interval[0] <= one.value <= one.interval[1]
    assert reliability(Profile.from_samples(prompts(np.random.default_rng(4), number=3))) is None


@pytest.mark.parametrize(("weights", "noise", "least"), [(0.1, 0.5, 0.85), (0.7, 0.7, 0.8)])
def test_paired_differences_hold_the_true_one(weights, noise, least):
    """Two predictions a little off the truth: nominal 95 %, somewhat less where prompts are heavy-tailed."""
    random, intervals, values = np.random.default_rng(5), [], []
    predictions = {
        name: Profile.from_weights(TRUTH * np.exp(random.normal(0, off, TOKENS)))
        for name, off in (("near", 0.3), ("far", 0.6))
    }
    for _ in range(60):
        judge = Judge.of(Profile.from_samples(prompts(random, weights, noise)), 0)
        scored = {name: [judge.score(one, name)] for name, one in predictions.items()}
        (found,) = differences_of(scored, [("near", "far")])
        values.append([one.value for one in two(found.scores)])
        intervals.append([one.interval for one in two(found.scores)])
    low, high = np.moveaxis(np.array(intervals), -1, 0)
    expected = np.mean(values, axis=0)
    assert (((low <= expected) & (expected <= high)).mean(axis=0) >= least).all()


def test_a_difference_is_surer_than_its_parts():
    """Of two predictions that err alike: what noise does to one it does to the other."""
    measured = Profile.from_samples(prompts(np.random.default_rng(7)))
    predictions = {str(tilt): Profile.from_weights(TRUTH * (POSITION + tilt)) for tilt in (20, 40)}
    found = compare_all(predictions, measured)
    for one, alone in zip(two(found.differences[0].scores), two(found.agreements["20"]), strict=True):
        assert np.ptp(one.interval) < np.ptp(alone.interval) / 2


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
            Profile.from_samples(shared * random.gamma(50.0, 0.02, (24, 40)), attrs={"prompts": "same"})
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
    assert compare(replace(one, attrs={}), one).same_prompts is None
