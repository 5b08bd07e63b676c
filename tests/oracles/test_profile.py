"""Statistics of profiles and kernels against plain loops, exact fractions and SciPy, and rules of the verdict."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refused import refused

import posbias
from posbias.comparison.scores import compare
from posbias.core import machine
from posbias.profiles.curves import at_shares, least_stretch, spearman, wasserstein
from posbias.profiles.profile import Profile, uniform
from posbias.profiles.stochastic_order import noise_floor, prefix_shares, violations
from posbias.profiles.summary import MixingBand

weights = st.integers(1, 120).flatmap(
    lambda n: arrays(np.float64, n, elements=st.one_of(st.just(0.0), st.floats(1e-6, 1e6)))
).filter(lambda w: w.sum() > 0)  # fmt: skip
pairs = st.integers(3, 60).flatmap(
    lambda n: st.tuples(*[arrays(np.float64, n, elements=st.floats(0.01, 10), unique=True)] * 2)
)


@given(weights)
def test_summary_by_plain_loops(given_weights):
    profile = Profile.from_weights(given_weights)
    mass, n, s = list(profile.mass), profile.tokens, profile.summary
    k = max(1, round(0.05 * n))
    assert s.ends == k
    assert s.first_mass == pytest.approx(sum(mass[:k]))
    assert s.last_mass == pytest.approx(sum(mass[n - k :]))
    assert s.middle_mass == pytest.approx(at_shares(profile.mass, 4, total=True)[1:3].sum())
    places = [j for j in range(n) if mass[j] > 0]
    assert s.out_of_reach == n - len(places)
    few = min(k, len(places))
    sums = [sum(mass[j] for j in places[a : a + few]) for a in range(len(places) - few + 1)]
    start = places.index(s.trough) - (few - 1) // 2
    assert sums[start] == pytest.approx(min(sums), abs=1e-12)
    assert s.trough_depth == pytest.approx(1 - min(sums) / few * len(places), abs=1e-9)
    for rest, verdict in ((mass[1:], s.verdict_without_first), (mass[:-1], s.verdict_without_last)):
        alone = Profile.from_weights(np.array(rest)).summary.verdict if sum(rest) else None
        assert verdict == alone
    assert s.entropy == pytest.approx(-sum(p * math.log(p) for p in mass if p > 0), abs=1e-9)
    assert profile.mass[-s.effective_range :].sum() >= 0.9 - 1e-12
    assert profile.mass[n - s.effective_range + 1 :].sum() < 0.9 + 1e-12
    distance = sum(abs(p - 1 / n) for p in mass) / 2
    assert s.flatness == pytest.approx(1 - distance, abs=1e-12)
    assert s.ratio[0] == pytest.approx(s.first_mass / k * n)
    assert s.ratio[2] == pytest.approx(s.last_mass / k * n)


@given(pairs)
def test_spearman_and_wasserstein_equal_scipy(pair):
    p, q = (one / one.sum() for one in pair)
    places = np.arange(p.size) / (p.size - 1)
    assert float(spearman(p, q)) == pytest.approx(scipy.stats.spearmanr(p, q).statistic, abs=1e-12)
    expected = scipy.stats.wasserstein_distance(places, places, p, q)
    assert float(wasserstein(p, q)) == pytest.approx(expected, abs=1e-12)
    assert math.isnan(float(spearman(uniform(p.size).mass, q)))


def test_standard_error_is_that_of_resampling():
    """The first-order error of the normalised mean against the spread of a bootstrap."""
    rng = np.random.default_rng(3)
    samples = rng.gamma(2.0, size=(400, 6)) * rng.gamma(1.0, size=(400, 1)) * np.arange(1, 7)
    profile = Profile.from_samples(samples)
    drawn = rng.integers(400, size=(4000, 400))
    means = samples[drawn].mean(axis=1)
    spread = (means / means.sum(axis=1, keepdims=True)).std(axis=0)
    np.testing.assert_allclose(profile.se, spread, rtol=0.1)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=90), st.integers(1, 90))
def test_the_least_stretch_is_the_least_of_all_sums(mass, length):
    mass, length = np.array(mass), min(length, len(mass))
    start = least_stretch(mass, length)
    sums = [mass[k : k + length].sum() for k in range(len(mass) - length + 1)]
    assert 0 <= start < len(sums)
    np.testing.assert_allclose(sums[start], min(sums), rtol=1e-12)
    # differences of running sums would see 0 in a tiny stretch between huge ones
    tiny = np.full(1000, 1.0)
    tiny[400:480], tiny[430:480] = 1e-30, 1e-31
    assert least_stretch(tiny, 50) == 430


def test_flat_noise_is_called_flat_and_its_trough_is_not_deep():
    """The least of many noisy sums must not be read off the numbers that chose it."""
    rng = np.random.default_rng(0)
    deep, called = [], []
    for _ in range(60):
        profile = Profile.from_samples(rng.lognormal(0, 1, (32, 256)))
        share = profile.trough_share
        deep.append((13 / 256 - share.value) / share.se)
        called.append(profile.summary.verdict)
    assert abs(np.mean(deep)) < 4 / np.sqrt(60)
    assert called.count("flat") >= 57


ENDS = np.ones(90)
OWN = np.r_[np.linspace(2.0, 1.0, 128), np.full(122, 0.56), np.full(5, 0.37), 18.3]
"""Measured on a random Llama: the last token far above an even share, those before it below."""


@pytest.mark.parametrize(
    ("mass", "verdict"),
    [
        # a quarter above the trough
        (np.r_[[1.3] * 5, ENDS, [1.3] * 5], "U"),
        (np.r_[[1.3] * 5, ENDS, [1.0] * 5], "primacy"),
        (np.r_[[1.2] * 5, ENDS, [1.2] * 5], "flat"),
        ([1, 1, 1, 8], "recency"),
        ([1, 9, 9, 1], "middle"),
        # more than its trough, and yet what is lost
        ([40, 4, 4, 4, 4, 4, 0.5, 1], "primacy"),
        # the first is far denser than the trough, and holds next to nothing
        ([0.01, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1], "recency"),
        (OWN, "U"),
        (np.r_[60.0, np.linspace(0.5, 2.0, 255)], "U"),
    ],
)
def test_the_verdict_in_plain_cases(mass, verdict):
    shape = Profile.from_weights(np.array(mass, dtype=float)).summary
    assert shape.verdict == verdict
    assert bool(shape.ends_alone) == ({shape.verdict_without_first, shape.verdict_without_last} != {verdict})


# --- kinds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rate", "signed"])
def test_what_is_no_mass_has_no_shape_and_is_compared_by_rank(kind):
    values = np.array([0.9, 0.2, 0.1, 0.6])
    profile = Profile(values if kind == "rate" else values - 0.5, kind=kind)
    for what in ("summary", "cumulative", "trough_share"):
        refused("kind", lambda what=what: getattr(profile, what))
    refused("kind", lambda: profile.share(0, 2))
    mass = Profile.from_weights(np.array([4.0, 2.0, 1.0, 3.0]))
    for p, q in ((mass, profile), (profile, mass), (profile, profile)):
        agreement = compare(p, q).agreements["p"]
        assert agreement.spearman.value == agreement.spearman_without_first.value == pytest.approx(1.0)
        assert math.isnan(agreement.wasserstein.value)
        assert math.isnan(agreement.wasserstein_without_first.value)
    hits = np.array([[1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 0, 1]]) * 1.0
    noise = compare(uniform(4), Profile(hits.mean(axis=0), samples=hits, kind=kind)).reliability
    assert 0.3 < noise.split_half.spearman.value <= noise.noiseless.spearman.value <= 1.0
    assert math.isnan(noise.split_half.wasserstein.value)


def test_only_positions_up_to_the_query_count_and_what_is_no_profile_is_refused():
    profile = Profile(np.concatenate([uniform(40).mass, np.zeros(60)]), query=39)
    assert (profile.summary.tokens, profile.summary.verdict) == (40, "flat")
    with pytest.raises(ValueError, match="read-only"):
        profile.mass[0] = 1.0
    wrong = [("mass", [0.5, 0.6]), ("mass", [1.5, -0.5]), ("mass", [math.nan, 1.0])]
    for kind, numbers in (*wrong, ("rate", [0.5, 1.1]), ("signed", [math.inf, 0.0])):
        refused("mass", lambda kind=kind, numbers=numbers: Profile(np.array(numbers), kind=kind))
    refused("query", lambda: Profile(np.array([1.0]), query=3))


# --- by share of the context -----------------------------------------------------------------------------


numbers = st.integers(1, 30).flatmap(lambda n: arrays(np.float64, n, elements=st.floats(-10, 10)))


def overlaps(values, shares, total):
    """The same in exact arithmetic, by the definition: what each position has in common with each stretch."""
    n, found = len(values), []
    for k in range(shares):
        left, right = Fraction(k, shares), Fraction(k + 1, shares)
        parts = [
            Fraction(float(one))
            * n
            * max(Fraction(0), min(right, Fraction(j + 1, n)) - max(left, Fraction(j, n)))
            for j, one in enumerate(values)
        ]
        found.append(float(sum(parts) if total else sum(parts) * Fraction(shares, n)))
    return found


@given(numbers, st.integers(1, 40), st.booleans())
def test_shares_are_the_overlaps(values, shares, total):
    expected = overlaps(values, shares, total)
    np.testing.assert_allclose(at_shares(values, shares, total=total), expected, rtol=1e-13, atol=1e-13)
    assert at_shares(np.array([1.0, 1e-200, 3e-200]), 2, total=True)[1] == pytest.approx(3.5e-200, rel=1e-14)
    batch = np.stack([values, -2 * values])
    np.testing.assert_array_equal(
        at_shares(batch, shares, total=total)[0], at_shares(values, shares, total=total)
    )


def test_a_profile_by_share_keeps_mass_prompts_and_what_it_leaves_out():
    samples = np.random.default_rng(0).random((5, 12))
    shape = uniform(12).summary
    band = MixingBand({"own": shape}, (), np.zeros(12), np.ones(12))
    profile = Profile.from_samples(samples, model="m", band=band, attrs={"mine": 1}, left_out=("λ",))
    coarse = profile.by_share(5)
    assert (coarse.tokens, coarse.query, coarse.left_out, coarse.se) == (5, 4, ("λ",), None)
    assert (coarse.model, coarse.positions, coarse.band, coarse.attrs) == ("m", 12, None, {"mine": 1})
    assert coarse.mass.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(Profile.from_samples(np.asarray(coarse.samples)).mass, coarse.mass)
    rate = Profile(np.array([0.0, 1.0, 1.0, 0.5]), kind="rate").by_share(2)
    np.testing.assert_allclose(rate.mass, [0.5, 0.75])
    refused("query", lambda: Profile.from_samples(samples, query=3).by_share(4))
    refused("shares", lambda: profile.by_share(0))


def test_unlike_lengths_are_compared_by_share_and_only_when_asked():
    long = Profile.from_samples(np.random.default_rng(2).random((6, 30)))
    short = Profile.from_weights(np.arange(1.0, 13.0))
    refused("p", lambda: posbias.compare(short, long))
    found = posbias.compare(short, long, by_share=True)
    assert found.shares == 12
    expected = posbias.compare(
        short, Profile.from_samples(at_shares(np.asarray(long.samples), 12, total=True))
    )
    for name, score in vars(expected.agreements["p"]).items():
        assert getattr(found.agreements["p"], name).value == pytest.approx(score.value, rel=1e-12), name
    assert expected.shares is None
    # of one length nothing changes
    same, plain = posbias.compare(long, long, by_share=True), posbias.compare(long, long)
    assert (same.shares, same.agreements) == (None, plain.agreements)
    # the finer of two is brought to the coarser, whichever is the reference
    assert posbias.compare(long, short, by_share=True).reference.tokens == 12


# --- violations of stochastic monotonicity ---------------------------------------------------------------


def naive(kernel, tolerance):
    """Rate and mean surplus by three loops over rows i < i′ and cutoffs k, all but the last."""
    tokens = len(kernel)
    rows = [[float(value) / sum(map(float, row)) for value in row] for row in kernel]
    surpluses = [
        sum(rows[later][: k + 1]) - sum(rows[i][: k + 1])
        for i in range(tokens)
        for later in range(i + 1, tokens)
        for k in range(tokens - 1)
    ]
    violated = [surplus for surplus in surpluses if surplus > tolerance]
    return len(violated) / max(1, len(surpluses)), float(np.mean(violated)) if violated else 0.0


def random_kernel(tokens, seed, causal=True):
    kernel = np.random.default_rng(seed).gamma(0.5, size=(tokens, tokens)) + 1e-3
    return np.tril(kernel) if causal else kernel


def decaying(tokens, slope):
    position = np.arange(tokens)
    kernel = np.tril(np.exp(-slope * np.abs(position[:, None] - position)))
    return kernel / kernel.sum(axis=1, keepdims=True)


@given(st.integers(1, 11), st.integers(0, 10**6), st.booleans())
def test_merging_counts_what_the_three_loops_count(tokens, seed, causal):
    # tolerances above the rounding of sums, where the loop's order of summation could decide a triple
    tolerances = (1e-12, 1e-4, 1e-2, 0.3)
    kernel = random_kernel(tokens, seed, causal)
    found = violations(kernel, tolerances)
    expected = [naive(kernel, tolerance) for tolerance in tolerances]
    np.testing.assert_allclose(found.rate, [rate for rate, _ in expected], rtol=1e-14)
    assert found.gap == pytest.approx(expected[0][1], rel=1e-9, abs=1e-15)


def test_kernels_that_keep_the_order_have_no_violation_and_one_by_hand_has_its_own():
    for slope in (0.0, 0.1, 2.0):
        assert violations(decaying(90, slope), (1e-15,)).rate[0] == 0
    # prefixes .5, .8 | .2, .6 | .4, .5: of the six triples only row 1 → 2 at cutoff 0 rises, by .2
    found = violations(np.array([[0.5, 0.3, 0.2], [0.2, 0.4, 0.4], [0.4, 0.1, 0.5]]), (0.0, 0.1, 0.3))
    np.testing.assert_allclose(found.rate, [1 / 6, 1 / 6, 0])
    assert found.gap == pytest.approx(0.2)
    even, odd = halves(decaying(24, 0.05), 9, 4)
    assert noise_floor(even, even) == 0
    assert noise_floor(even, odd, share=5 / 9) != noise_floor(even, odd)
    assert noise_floor(even, odd, share=5 / 9) == pytest.approx(
        noise_floor(odd, even, share=4 / 9), rel=1e-14
    )
    for share in (0, 1, np.nan):
        refused("share", lambda share=share: noise_floor(even, odd, share))
    for kernel in (np.ones((2, 3)), -np.eye(2), np.full((2, 2), np.nan), np.diag([1.0, 0.0])):
        refused("kernel", lambda kernel=kernel: violations(kernel, (0.0,)))
    refused("tolerances", lambda: violations(np.eye(2), (-1.0,)), lambda: violations(np.eye(2), (np.inf,)))


@given(st.integers(2, 10), st.integers(0, 10**6), st.booleans())
def test_the_floor_is_twice_what_breaks_in_the_mean_but_not_in_both_halves(tokens, seed, tied):
    even, odd = (random_kernel(tokens, 2 * seed + half) for half in (0, 1))
    if tied:
        even[tokens // 2 :] = even[tokens // 2]
        odd[-1] = odd[-2]
    first, second = prefix_shares(even), prefix_shares(odd)
    count = 0
    for i in range(tokens):
        for later in range(i + 1, tokens):
            a, b = first[later] - first[i], second[later] - second[i]
            count += int(((a + b > 0) & ~((a > 0) & (b > 0))).sum())
    triples = tokens * (tokens - 1) // 2 * (tokens - 1)
    assert noise_floor(even, odd) == pytest.approx(2 * count / triples, rel=1e-14)


def halves(kernel, prompts, seed, concentration=5.0):
    """Mean kernels of even and odd prompts, whose rows are Dirichlet about those of `kernel`."""
    rng = machine.stream(seed, "kernels")
    drawn = np.tril(rng.gamma(kernel * concentration + 1e-12, size=(prompts, *kernel.shape)))
    drawn += 1e-12 * np.eye(len(kernel))
    drawn /= drawn.sum(axis=2, keepdims=True)
    return drawn[::2].mean(axis=0), drawn[1::2].mean(axis=0)


@pytest.mark.parametrize("slope", [0.0, 0.05])
@pytest.mark.parametrize("prompts", [8, 64])
def test_the_floor_is_near_the_rate_of_a_monotone_kernel(slope, prompts):
    """Over eight draws: the floor is above the rate seen, and by no more than a half."""
    rates, floors = [], []
    for seed in range(8):
        even, odd = halves(decaying(40, slope), prompts, seed)
        rates.append(violations((even + odd) / 2, (0.0,)).rate[0])
        floors.append(noise_floor(even, odd))
    assert np.mean(rates) > 0.005
    assert 1 < np.mean(floors) / np.mean(rates) < 1.5
