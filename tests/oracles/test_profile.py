"""Statistics of a profile against plain loops and SciPy, and the rules of the verdict at their edges."""

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posbias.comparison.scores import compare
from posbias.core.errors import InvalidValueError
from posbias.core.formats import save_json
from posbias.profiles.curves import least_stretch
from posbias.profiles.measurements import load_profile
from posbias.profiles.profile import Profile, harmonic, spearman, uniform, wasserstein
from posbias.reports.answers.predictions import Profile as ProfilePart
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.masks import SlidingWindow
from posbias.theory.mixing import AttentionOnly
from posbias.theory.rollout.dispatch import influence

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
    reached = next(d for d in range(1, n + 1) if sum(mass[n - d :]) >= 0.9 - 1e-12)
    assert abs(s.effective_range - reached) <= 1
    distance = sum(abs(p - 1 / n) for p in mass) / 2
    assert s.flatness == pytest.approx(1 - distance, abs=1e-12)
    assert s.ratio[0] == pytest.approx(s.first_mass / k * n)
    assert s.ratio[2] == pytest.approx(s.last_mass / k * n)


@given(weights)
def test_an_effective_range_holds_nine_tenths(given_weights):
    profile = Profile.from_weights(given_weights)
    reach = profile.summary.effective_range
    assert profile.mass[-reach:].sum() >= 0.9 - 1e-12
    assert profile.mass[profile.tokens - reach + 1 :].sum() < 0.9 + 1e-12


@given(pairs)
def test_spearman_and_wasserstein_equal_scipy(pair):
    p, q = (one / one.sum() for one in pair)
    places = np.arange(p.size) / (p.size - 1)
    assert float(spearman(p, q)) == pytest.approx(scipy.stats.spearmanr(p, q).statistic, abs=1e-12)
    expected = scipy.stats.wasserstein_distance(places, places, p, q)
    assert float(wasserstein(p, q)) == pytest.approx(expected, abs=1e-12)


@given(pairs)
def test_wasserstein_is_a_distance_within_one(pair):
    p, q = (one / one.sum() for one in pair)
    assert float(wasserstein(p, p)) == 0
    assert float(wasserstein(p, q)) == pytest.approx(float(wasserstein(q, p)))
    assert 0 <= float(wasserstein(p, q)) <= 1
    ends = np.zeros((2, p.size))
    ends[0, 0] = ends[1, -1] = 1
    assert float(wasserstein(*ends)) == pytest.approx(1)


def test_spearman_of_a_constant_is_undefined():
    assert math.isnan(float(spearman(uniform(9).mass, harmonic(9).mass)))


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [(1.3, 1.3, "U"), (1.3, 1.0, "primacy"), (1.0, 1.3, "recency"), (1.2, 1.2, "flat"), (1.0, 1.0, "flat")],
)
def test_the_verdict_turns_at_a_quarter_above_the_trough(first, last, verdict):
    weights = np.ones(100)
    weights[:5], weights[-5:] = first, last
    assert Profile.from_weights(weights).summary.verdict == verdict


def test_only_positions_up_to_the_query_count():
    profile = Profile(np.concatenate([uniform(40).mass, np.zeros(60)]), query=39)
    assert profile.summary.tokens == 40
    assert profile.summary.verdict == "flat"


def test_without_first_renormalises_the_rest():
    rest = Profile(np.array([0.5, 0.2, 0.3])).without_first()
    np.testing.assert_allclose(rest.mass, [0.4, 0.6])
    with pytest.raises(InvalidValueError, match="query"):
        Profile(np.array([1.0])).without_first()


def test_a_u_by_the_querys_own_token_alone_is_said():
    """The shape measured on a random Llama: the last token far above an even share, those before it below."""
    mass = np.r_[np.linspace(2.0, 1.0, 128), np.full(122, 0.56), np.full(5, 0.37), 18.3]
    shape = Profile.from_weights(mass).summary
    assert (shape.verdict, shape.verdict_without_last, shape.verdict_without_first) == ("U", "primacy", "U")
    assert shape.ends_alone == ["U only through the query's own token; without it: primacy"]
    sink = Profile.from_weights(np.r_[60.0, np.linspace(0.5, 2.0, 255)]).summary
    assert (sink.verdict, sink.verdict_without_first) == ("U", "recency")
    assert sink.ends_alone == ["U only through the first token; without it: recency"]


def test_what_is_out_of_reach_is_no_trough():
    """Two layers of windows of 32: the query sees 63 of 256 tokens, each number of ways."""
    windows = Architecture(2, (Layer(mask=SlidingWindow(32)),), AttentionOnly())
    shape = influence(windows, 256).summary
    ways = [min(d + 1, 63 - d) / 32**2 for d in range(63)]
    assert (shape.out_of_reach, shape.verdict) == (256 - 63, "recency")
    assert 256 - 63 <= shape.trough < 256
    assert shape.trough_depth == pytest.approx(1 - sum(ways[-13:]) / 13 * 63)


def test_standard_error_is_that_of_resampling():
    """The first-order error of the normalised mean against the spread of a bootstrap."""
    rng = np.random.default_rng(3)
    samples = rng.gamma(2.0, size=(400, 6)) * rng.gamma(1.0, size=(400, 1)) * np.arange(1, 7)
    profile = Profile.from_samples(samples)
    drawn = rng.integers(400, size=(4000, 400))
    means = samples[drawn].mean(axis=1)
    spread = (means / means.sum(axis=1, keepdims=True)).std(axis=0)
    np.testing.assert_allclose(profile.se, spread, rtol=0.1)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mass": [0.5, 0.6]}, "mass: sums to 1.1"),
        ({"mass": [1.5, -0.5]}, "mass: negative"),
        ({"mass": [float("nan"), 1.0]}, "mass: negative or not finite"),
        ({"mass": [1.0], "query": 3}, "query: 3"),
    ],
)
def test_a_profile_that_is_no_distribution_is_refused(fields, named):
    with pytest.raises(InvalidValueError, match=named):
        Profile(np.array(fields.pop("mass")), **fields)


def test_mass_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        uniform(3).mass[0] = 1.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=90), st.integers(1, 90))
def test_theleast_stretch_is_the_least_of_all_sums(mass, length):
    mass, length = np.array(mass), min(length, len(mass))
    start = least_stretch(mass, length)
    sums = [mass[k : k + length].sum() for k in range(len(mass) - length + 1)]
    assert 0 <= start < len(sums)
    np.testing.assert_allclose(sums[start], min(sums), rtol=1e-12)


def test_a_tiny_stretch_between_huge_ones_is_found():
    """Differences of running sums would see 0 here."""
    mass = np.full(1000, 1.0)
    mass[400:480] = 1e-30
    mass[430:480] = 1e-31
    assert least_stretch(mass, 50) == 430


@pytest.mark.parametrize(
    ("mass", "verdict"),
    [
        ([8, 1, 1, 8], "U"),
        ([8, 1, 1, 1], "primacy"),
        ([1, 1, 1, 8], "recency"),
        ([1, 1, 1, 1], "flat"),
        ([1, 9, 9, 1], "middle"),
        # more than its trough, and yet what is lost
        ([40, 4, 4, 4, 4, 4, 0.5, 1], "primacy"),
        # the first is far denser than the trough, and holds next to nothing
        ([0.01, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1], "recency"),
    ],
)
def test_the_verdict_in_plain_cases(mass, verdict):
    assert Profile.from_weights(np.array(mass, dtype=float)).summary.verdict == verdict


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


def test_uniform_mass_needs_nine_tenths_of_the_positions():
    for tokens in (10, 30, 70, 80, 90):
        assert uniform(tokens).summary.effective_range == tokens * 9 // 10


# --- kinds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "numbers", "wrong"),
    [
        ("rate", [0.5, 1.0, 0.0], [0.5, 1.1]),
        ("signed", [-3.0, 0.0, 9.0], [np.inf, 0.0]),
        ("mass", [0.25, 0.75], [-0.5, 1.5]),
    ],
)
def test_each_kind_takes_its_numbers_and_no_others(kind, numbers, wrong):
    assert Profile(np.array(numbers), kind=kind).kind == kind
    with pytest.raises(InvalidValueError, match="mass: "):
        Profile(np.array(wrong), kind=kind)


def test_an_unknown_kind_is_refused(tmp_path):
    """In a process of its own: here the types of arguments are checked before a profile sees them."""
    path = save_json({"profile": [1.0], "kind": "rates"}, tmp_path / "profile.json")
    program = f"from posbias import load_profile; load_profile({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "kind: 'rates' given, one of mass, rate, signed needed" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", ["rate", "signed"])
def test_what_is_no_mass_has_no_shape_and_is_compared_by_rank(kind):
    values = np.array([0.9, 0.2, 0.1, 0.6])
    profile = Profile(values if kind == "rate" else values - 0.5, kind=kind)
    for what in ("summary", "cumulative", "trough_share"):
        with pytest.raises(InvalidValueError, match=f"kind: '{kind}' given"):
            getattr(profile, what)
    for method in (profile.without_first, lambda: profile.share(0, 2)):
        with pytest.raises(InvalidValueError, match=f"kind: '{kind}' given"):
            method()
    mass = Profile.from_weights(np.array([4.0, 2.0, 1.0, 3.0]))
    for p, q in ((mass, profile), (profile, mass), (profile, profile)):
        agreement = compare(p, q).agreements["p"]
        assert agreement.spearman.value == agreement.spearman_without_first.value == pytest.approx(1.0)
        assert math.isnan(agreement.wasserstein.value)
        assert math.isnan(agreement.wasserstein_without_first.value)


def test_prompts_of_a_rate_are_averaged_and_not_divided():
    samples = np.array(
        [[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0]]
    )
    profile = Profile(samples.mean(axis=0), samples=samples, kind="rate")
    noise = compare(uniform(4), profile).reliability
    assert 0.3 < noise.split_half.spearman.value <= noise.noiseless.spearman.value <= 1.0
    assert math.isnan(noise.split_half.wasserstein.value)
    assert noise.noiseless.wasserstein.bounds is None


def test_kinds_are_written_and_read(tmp_path):
    for kind, values in (
        ("rate", [0.5, 1.0, 0.25]),
        ("signed", [-1.0, 2.0, 0.0]),
        ("mass", [0.5, 0.25, 0.25]),
    ):
        profile = Profile(np.array(values), measures="accuracy", kind=kind)
        path = save_json(ProfilePart.of(profile).model_dump(mode="json"), tmp_path / f"{kind}.json")
        read = load_profile(path)
        assert (read.kind, read.measures, read.mass.tolist()) == (kind, "accuracy", values)
