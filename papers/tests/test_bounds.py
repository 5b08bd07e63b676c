"""What statements rest on: the order of rows, bounds and critical distances against definitions and mpmath; causal
averages with residual connections against dense products, mpmath and integrals.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dense import last_row
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from posbias.core.errors import InvalidValueError
from posbias.profiles import stochastic_order
from posbias.theory import critical_distances
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import AttentionOnly, ConstantMixing, PerLayer, PowerDecay, PreNormInit
from posbias.theory.positional import DecayBias, RoPE
from posbias.theory.rollout.dispatch import influence
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.closed_forms import bounds
from posbias_papers.closed_forms.causal_averaging import (
    hops_of,
    influence_density,
    poisson_hops,
    turning_points,
)
from posbias_papers.statements import STATEMENTS, margins
from posbias_papers.statements.draws import Sampler, growing
from posbias_papers.statements.herasimchyk2026 import encoding_and_content, prefix_at, prefix_covariance
from posbias_papers.statements.margins import order_margin

PARTS = 64
"""Masses in 64ths: their sums are exact in float64, so that counts and margins can be compared with ==."""


@st.composite
def distributions(draw, tokens):
    cuts = draw(st.lists(st.integers(0, PARTS), min_size=tokens - 1, max_size=tokens - 1))
    return np.diff([0, *sorted(cuts), PARTS])


@st.composite
def kernels(draw):
    tokens = draw(st.integers(1, 6))
    return np.array([draw(distributions(tokens)) for _ in range(tokens)])


pairs = st.integers(1, 7).flatmap(lambda tokens: st.tuples(distributions(tokens), distributions(tokens)))


# --- stochastic_order.py against the definitions -----------------------------------------------------------


def brute_force_gaps(parts):
    """Every triple of Assumption 4.1 by the letter, in exact fractions."""
    tokens = len(parts)
    return [
        Fraction(int(parts[later, : k + 1].sum() - parts[earlier, : k + 1].sum()), PARTS)
        for earlier, later in itertools.combinations(range(tokens), 2)
        for k in range(tokens - 1)
    ]


@given(kernels(), st.sampled_from([0, 1, 5]))
@examples(300)
def test_monotonicity_counts_every_triple(parts, tolerance):
    found = stochastic_order.monotonicity(parts / PARTS, tolerance=tolerance / PARTS)
    gaps = brute_force_gaps(parts)
    beyond = [gap for gap in gaps if gap > Fraction(tolerance, PARTS)]
    assert found.triples == len(gaps)
    assert found.violations == len(beyond)
    assert found.rate == (len(beyond) / len(gaps) if gaps else 0.0)
    assert found.mean_gap == pytest.approx(float(sum(beyond) / len(beyond)) if beyond else 0.0, rel=1e-14)
    assert found.margin == (float(-max(gaps)) if gaps else 0.0)
    assert found.holds == (not beyond)


@given(pairs)
@examples(300)
def test_dominance_is_that_of_quantiles(pair):
    """μ ⪰ ν exactly when each quantile of μ is at least that of ν: no prefix masses here."""
    later, earlier = (np.repeat(np.arange(len(parts)), parts) for parts in pair)
    margin = order_margin(pair[0] / PARTS, pair[1] / PARTS)
    assert (margin >= 0) == (later >= earlier).all()


@pytest.mark.parametrize(
    "kernel", [np.ones((2, 3)) / 3, np.array([[0.5, 0.4], [0.5, 0.5]]), np.array([[np.nan, 1.0], [0.5, 0.5]])]
)
def test_what_is_no_kernel_is_refused(kernel):
    with pytest.raises(InvalidValueError):
        stochastic_order.monotonicity(kernel)


coefficients = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(np.array)


def closed_product(exponent, a):
    """Π_{t≥1} (1 − a/t^β) for β = 2, 3, 4: products over t of linear factors give sines and gammas."""
    root = mpmath.mpf(a) ** (mpmath.mpf(1) / exponent)
    turns = [mpmath.expjpi(mpmath.mpf(2 * k) / exponent) for k in range(exponent)]
    return float(mpmath.re(1 / mpmath.fprod(mpmath.gamma(1 - root * turn) for turn in turns)))


@given(st.sampled_from([2, 3, 4]), st.floats(1e-6, 1), st.floats(0.01, 0.999))
def test_infinite_product_equals_its_closed_form(exponent, initial, share):
    found = bounds.retained(PowerDecay(initial, float(exponent)), 1 - share)
    assert found == pytest.approx(closed_product(exponent, share * initial), rel=1e-12)


def test_total_mixing_decides_the_dichotomy():
    slow = PowerDecay(0.5, 0.3), PowerDecay(0.5, 1.0)
    for mixing in (ConstantMixing(1e-9), AttentionOnly(), PreNormInit(), *slow):
        assert bounds.retained(mixing, 0.1) == 0.0
    assert bounds.retained(ConstantMixing(0.0), 0.1) == bounds.retained(PowerDecay(0.0, 1.0), 0.1) == 1.0
    with pytest.raises(InvalidValueError, match=r"^mixing: "):
        bounds.retained(PerLayer((0.1, 0.2)), 0.1)


@given(coefficients, st.floats(0, 0.3), st.integers(0, 3))
def test_bounds_equal_their_products_written_out(lam, floor, position):
    for depth in range(1, len(lam) + 1):
        part = lam[:depth].tolist()
        own = math.prod(1 - (1 - floor) * one for one in part)
        suffix = math.prod(1 - position * floor * one for one in part)
        assert bounds.self_bound(lam, floor)[depth - 1] == pytest.approx(own, rel=1e-13)
        found = np.exp(bounds.log_collapse_bound(np.full(len(lam), floor), position, lam))[depth - 1]
        assert found == pytest.approx(suffix, rel=1e-12)
        exponential = bounds.exponential_bound(lam, floor, position)[depth - 1]
        assert exponential == pytest.approx(math.exp(-position * floor * sum(part)), rel=1e-13)
        assert exponential >= suffix * (1 - 1e-13)


@given(coefficients, st.floats(0, 1), st.integers(0, 5))
def test_window_bound_sums_over_all_outcomes(lam, floor, query):
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=len(lam)):
        if sum(outcome) < query:
            chances = [floor * one if hit else 1 - floor * one for hit, one in zip(outcome, lam, strict=True)]
            total += math.prod(chances)
    assert bounds.window_bound(lam, floor, query) == pytest.approx(total, rel=1e-12, abs=1e-300)


# --- the statements ----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.booleans(), st.booleans())
@examples(300)
def test_drawn_kernels_satisfy_the_hypotheses(seed, edge, positive):
    sampler = Sampler(np.random.default_rng(seed), edge)
    kernel, (tokens, width) = sampler.positive() if positive else sampler.monotone(), sampler.size
    inside = SlidingWindow(width).allowed(tokens)
    assert (kernel[~inside] == 0).all()
    assert (kernel[inside] > 0).all() if positive else (kernel >= 0).all()
    np.testing.assert_allclose(kernel.sum(axis=1), 1.0, atol=1e-14)
    prefix = np.cumsum(kernel, axis=1)
    assert all((prefix[i] >= prefix[later] - 1e-14).all() for later in range(tokens) for i in range(later))


@given(st.integers(0, 2**32), st.booleans())
def test_drawn_encodings_and_contents_satisfy_the_hypotheses(seed, edge):
    """Proposition 4.4: recency-favouring logits; a mean kernel that is monotone though its inputs are not."""
    instance = encoding_and_content(Sampler(np.random.default_rng(seed), edge))
    assert (np.diff(instance["positional"], axis=-1) >= 0).all()
    allowed = SlidingWindow(instance["width"]).allowed(instance["positional"].shape[-1])
    for layer in instance["content"]:
        weights = np.exp(layer - layer.max(axis=-1, keepdims=True)) * allowed
        mean = (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=0)
        assert stochastic_order.monotonicity(mean).holds


# --- mistakes that must be noticed -------------------------------------------------------------------------


def test_the_slope_of_a_prefix_is_the_covariance_in_forty_digits():
    content, positional, strength = [0.3, -1.2, 2.0, 0.7], [-1.0, -1.0, 0.5, 3.0], 0.8
    slope = [prefix_at(np.array(content), np.array(positional), strength + 1e-30j).imag * 1e30]
    found = [*slope, prefix_covariance(np.array(content), np.array(positional), strength)]
    with mpmath.workdps(40):

        def prefix(m, at):
            weights = [mpmath.exp(s + at * b) for s, b in zip(content, positional, strict=True)]
            return mpmath.fsum(weights[: m + 1]) / mpmath.fsum(weights)

        exact = [float(mpmath.diff(lambda at, m=m: prefix(m, at), strength)) for m in range(3)]
    for one in found:
        np.testing.assert_allclose(one, exact, rtol=1e-12)


# --- the counterexamples, worked out without the package's code --------------------------------------------


def test_the_second_token_keeps_a_share_although_total_mixing_diverges():
    """Theorem 5.4 (ii) from the assumptions: token 0 is zero, token 1 grows until it sees itself alone."""

    def kept(depth):
        state, share = 0.1, 1.0
        for layer in range(depth):
            logit = 0.01 * state * state
            own = 1.0 / (1.0 + math.exp(-min(logit, 700.0)))
            value = 30.0 if layer % 2 == 0 else 1 / 30
            share *= 0.5 + 0.5 * own
            state = 0.5 * state + 0.5 * own * value * state
        return share

    assert kept(60) == kept(150) == pytest.approx(0.18249551842986955, rel=1e-9)
    network = {name: np.array(part) for name, part in growing([[0.0], [0.1]], 0.1, 30.0, 150).items()}
    attention = margins.run_network(**network, allowed=np.tri(2, dtype=bool))[1]
    assert math.prod(0.5 + 0.5 * A[1, 1] for A in attention) == pytest.approx(kept(150), rel=1e-9)


SEEDS = st.integers(0, 2**32 - 1)
BY_KEY = {one.key: one for one in STATEMENTS}


def random_stack(seed, mask, tokens, layers, spread=2.0):
    rng = np.random.default_rng(seed)
    return masked_softmax(rng.normal(0, spread, (layers, tokens, tokens)), mask.allowed(tokens))


def brute_rollout(kernels, query, key):
    """P_ij as the sum over all walks of one step per layer, bottom layer first."""
    tokens = len(kernels[0])
    walks = [((key,), 1.0)]
    for kernel in kernels:
        walks = [((*w, i), p * kernel[i][w[-1]]) for w, p in walks for i in range(tokens) if kernel[i][w[-1]]]
    return math.fsum(p for w, p in walks if w[-1] == query)


# --- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wu-4.6", "wu-4.7", "wu-I.1", "wu-I.2"])
@given(seed=SEEDS, edge=st.booleans())
@settings(max_examples=15)
def test_drawn_rotary_instances_satisfy_the_hypotheses(kind, seed, edge):
    one = BY_KEY[kind].draw(Sampler(np.random.default_rng(seed), edge))
    queries, keys, angles = one["queries"], one["keys"], one["angles"]
    tokens, first = queries.shape[1], angles.min()
    cosine = np.einsum("tic,tjc->tij", queries, keys) / (
        np.linalg.norm(queries, axis=-1)[:, :, None] * np.linalg.norm(keys, axis=-1)[:, None]
    )
    assert (np.arccos(np.clip(cosine, -1, 1)) <= one["delta"] * first + 1e-7).all()
    if len(angles) == 1:
        assert (one["delta"] + tokens - 1) * first <= np.pi + 1e-9
    else:
        shares = [np.linalg.norm(v.reshape(*v.shape[:-1], -1, 2), axis=-1) / np.linalg.norm(v, axis=-1)[..., None]
                  for v in (queries, keys)]  # fmt: skip
        beta = shares[0].min() * shares[1].min()
        spread = one["delta"] * np.pi * first / math.sqrt(beta)
        assert spread + 2 * (tokens - 1) * angles.max() <= 2 * np.pi + 1e-9


# --- collapse ----------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(2, 9), st.integers(1, 25), st.floats(0, 6))
@examples(60)
def test_collapse_bound_covers_every_suffix(seed, tokens, depth, spread):
    kernels = random_stack(seed, Causal(), tokens, depth, spread)
    floors = kernels[:, np.tri(tokens, dtype=bool)].min(axis=1)
    for mixing in (np.ones(depth), np.random.default_rng(seed).random(depth)):
        suffixes = margins.suffixes(margins.rollouts(kernels, mixing))
        covers = np.stack([bounds.log_collapse_bound(floors, j, mixing) for j in range(tokens)], axis=1)
        assert (suffixes <= np.exp(covers) * (1 + 1e-12)).all()


@given(SEEDS, st.integers(1, 4), st.integers(1, 4), st.sampled_from([Causal(), SlidingWindow(2, sinks=1)]))
@examples(30)
def test_rollouts_are_sums_over_walks(seed, tokens, depth, mask):
    kernels = random_stack(seed, mask, tokens, depth)
    walks = [
        [[brute_rollout(kernels[: t + 1], i, j) for j in range(tokens)] for i in range(tokens)]
        for t in range(depth)
    ]
    np.testing.assert_allclose(margins.rollouts(kernels), walks, rtol=1e-12)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(np.exp(margins.log_rollouts(np.log(kernels))), walks, rtol=1e-12)


@given(st.integers(1, 50), st.floats(0, 400), st.floats(0, 900))
def test_the_floor_is_attained(keys, bound, span):
    logits = np.full((1, keys), bound + span)
    logits[0, 0] = -bound
    found = margins.log_softmax(logits, np.ones((1, keys), dtype=bool))[0, 0]
    assert found == pytest.approx(bounds.log_attention_floor(keys, bound, span), rel=1e-12, abs=1e-14)


# --- envelopes ---------------------------------------------------------------------------------------------


@given(st.integers(1, 100_000), st.integers(0, 100_000))
@settings(max_examples=40)
def test_log_walks_against_mpmath(depth, distance):
    with mpmath.workdps(40):
        exact = mpmath.loggamma(depth + distance) - mpmath.loggamma(depth) - mpmath.loggamma(distance + 1)
        found = bounds.log_walks(depth, np.array([distance, 0]))
        assert abs(found[0] - float(exact)) <= 1e-12 * float(exact) + 1e-30
        assert found[1] == 0


# --- critical distances ------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.floats(0.02, 5))
@settings(max_examples=40)
def test_decay_distance_by_brute_force_and_mpmath(depth, rate):
    star = critical_distances.critical_distance(depth, rate)
    with mpmath.workdps(30):
        assert star == pytest.approx(float((depth - 1) / mpmath.expm1(rate)), rel=1e-14)
        heights = [
            mpmath.log(math.comb(depth - 1 + x, x)) - mpmath.mpf(rate) * x for x in range(int(star) + 20)
        ]
    assert critical_distances.modal_distance(depth, rate) == max(range(len(heights)), key=heights.__getitem__)


@given(st.integers(2, 40), st.floats(0.01, 3), st.floats(0.1, 20))
@settings(max_examples=40)
def test_rope_distance_by_brute_force_and_mpmath(depth, angle, rate):
    star = critical_distances.rope_critical_distance(depth, angle, rate)
    with mpmath.workdps(40):
        theta, c, t = mpmath.mpf(angle), mpmath.mpf(rate), depth - 1
        root = mpmath.findroot(lambda x: mpmath.log(1 + t / x) - 2 * c * theta**2 * x, star)
        assert star == pytest.approx(float(root), rel=1e-13)
        heights = [mpmath.log(math.comb(t + x, x)) - c * (theta * x) ** 2 for x in range(int(star) + 20)]
        best = critical_distances.rope_modal_distance(depth, angle, rate)
        assert max(heights) - heights[best] < 1e-12
        assert star - 1 < best < star + 0.5


def test_a_decay_rollout_peaks_at_the_modal_distance_and_rope_at_its_drift():
    depths = [1, 2, 3, 5, 8, 12]
    decay = critical_distances.distance_curve(DecayBias(0.1), depths, 400)
    np.testing.assert_array_equal(decay.rollout, decay.modal)
    np.testing.assert_allclose(decay.drift, decay.predicted - 0.5, rtol=1e-9)
    exact = [bounds.log_walks(12, np.arange(100)) - 0.1 * np.arange(100) + 12 * math.log(-math.expm1(-0.1))]
    mass = influence(Architecture(12, (Layer(positional=DecayBias(0.1)),), AttentionOnly()), 1000).mass[::-1]
    np.testing.assert_allclose(np.log(mass[:100]), exact[0], atol=1e-9)
    rope = critical_distances.distance_curve(RoPE(((100.0,),), frequencies=(0.01,)), depths, 300)
    assert (np.abs(rope.rollout - rope.drift)[1:] < 1).all()
    assert (rope.rollout > 2 * rope.predicted)[-2:].all()
    assert (np.abs(rope.modal - rope.predicted) <= 1).all()


# --- beyond the numbered statements --------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "second"), [("log", 0.7), ("power", 0.4), ("power", 1.7)])
def test_kerple_envelopes_against_walks(kind, second):
    tokens, scale, depth = 4, 1.3, 3
    content = np.random.default_rng(3).uniform(-0.4, 0.4, (depth, tokens, tokens))
    seen, away = np.tri(tokens, dtype=bool), np.abs(np.subtract.outer(range(tokens), range(tokens)))

    def bias(d):
        return scale * (np.log1p(second * d) if kind == "log" else d**second)

    weights = np.where(seen, np.exp(content - bias(away)), 0.0)
    kernels = weights / weights.sum(axis=-1, keepdims=True)
    span = np.ptp(content[:, seen])
    least = math.exp(-span) / np.exp(-bias(np.arange(tokens))).sum()
    slacks = []
    for T, (i, j) in itertools.product(range(1, depth + 1), np.argwhere(seen)):
        value, d = brute_rollout(kernels[:T], i, j), i - j
        costs, walks = (bias(d), T * bias(d / T)), math.comb(T - 1 + d, d)
        slacks.append(1 - walks * least**T * math.exp(-max(costs)) / value)
        slacks.append(1 - value / (walks * math.exp(T * span - min(costs))))
    instance = {"content": content, "kind": kind, "scale": scale, "second": second}
    assert BY_KEY["wu-4.5-kerple"].slack(instance) == pytest.approx(min(slacks), abs=1e-12)
    assert BY_KEY["wu-4.4-kerple"].slack(instance) >= 0


# --- single instances: how much is left, and where a claim is false --------------------------------------------

EQUALS = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
"""Tokens 0 and 1 see each other: both are the centre."""
APART = [[1.0, 0.0, 0.0], [-1.0, 2.0, 0.0], [-3.0, 1.0, 1.0]]
"""Logits under which ReLU leaves tokens 1 and 2 no edge to token 0."""
TOGETHER = [[1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [-3.0, 1.0, 1.0]]
"""Logits under which it leaves every token an edge to an earlier one."""
FIRST = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
SECOND = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]
LESS = [[1, 0, 0], [0.6, 0.4, 0], [0.6, 0.2, 0.2]]
ONE = [[[1.0]]]
OPPOSITE = {"hidden": [[-1.0], [1.0]], "queries": ONE, "keys": ONE, "values": ONE, "mixing": [1.0]}


@pytest.mark.parametrize(
    ("key", "instance", "least", "most"),
    [
        # ε² = ¼ is what token 2 draws from token 0 in two layers; without a centre nothing is claimed (slack 1)
        ("wu-4.1-masks", {"kernels": [EQUALS], "depth": 8}, 0.0, 1e-12),
        ("wu-4.1-masks", {"kernels": [np.eye(2).tolist()], "depth": 8}, 1.0, 1.0),
        # .4 is left of at most 1 − ε = .8
        ("wu-4.1-masks", {"kernels": [LESS], "depth": 8}, 0.4999, 0.5001),
        # two masks that have a centre only together
        ("wu-3.2-masks", {"kernels": [FIRST, SECOND], "depth": 20}, -1e-12, 1e-12),
        ("wu-3.2-masks", {"kernels": [FIRST, np.eye(3).tolist()], "depth": 20}, 1.0, 1.0),
        # 1/(1 + e²) against e⁻²/2
        ("wu-4.1-softmax", {"logits": [[[0, 0], [0, 2]]], "kind": "causal", "size": 1}, 0.4323, 0.4324),
        # each claim about ReLU is false of the other one's logits
        ("wu-4.1-relu-apart", {"logits": [APART] * 12}, -1e-12, 0.99),
        ("wu-4.1-relu-apart", {"logits": [TOGETHER] * 6}, -1.0, -1.0),
        ("wu-4.1-relu-reach", {"logits": [TOGETHER] * 6}, 0.0, 0.99),
        ("wu-4.1-relu-reach", {"logits": [APART] * 8}, -math.inf, -0.01),
        # a wider window leaves more on the first tokens
        ("wu-4.2-narrower", {"logits": [[0.0, 0.0, 0.0]], "rate": 0.0, "narrow": 3, "wide": 2}, -1.0, -1.0),
        # of larger angles RoPE does not decay as slowly
        ("wu-4.6-decay", {"tokens": 2048, "product": 10.0, "angle": 1e-2, "rate": 0.05}, -math.inf, -0.01),
        # the mean of one head has its floor
        ("herasimchyk-5.1", {"heads": [[[[1, 0], [0.5, 0.5]]]], "mixing": [1.0], "width": 2}, -1e-12, 1e-12),
        # the floor of a network is attained where one key is opposite to the other
        ("herasimchyk-5.4-ii-residual", OPPOSITE, -1e-12, 1e-12),
    ],
)
def test_slack_of_single_instances(key, instance, least, most):
    assert least <= BY_KEY[key].slack(instance, corrected=True) <= most


# --- causal averages ---------------------------------------------------------------------------------------


MIXINGS = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=8)
DECAYS = st.floats(0.05, 8.0)


def dense_row(tokens: int, mixing: list[float], decay: float = 0.0) -> np.ndarray:
    """The last row of the product of (1 − λ_t)I + λ_t·A, from the definition of A."""
    weights = np.tril(np.tile(np.exp(decay * np.arange(tokens) / tokens), (tokens, 1)))
    return last_row([weights / weights.sum(axis=1, keepdims=True)] * len(mixing), mixing)


def integral(weight, hops, decay=0.0):
    """∫ weight(x)·density(y) y dx, y = e^−x: the density over positions, with what weighs it."""

    def weighed(distance: float) -> float:
        y = math.exp(-distance)
        return weight(distance) * y * influence_density(np.array([max(y, 1e-300)]), hops, decay)[0]

    return quad(weighed, 0.0, 120.0, epsabs=1e-11, epsrel=1e-11, limit=400)[0]


@given(MIXINGS, st.integers(2, 12))
def test_finitely_many_tokens_are_the_density_smoothed_by_binomials(mixing, tokens):
    """Powers of the Cesàro matrix are Hausdorff matrices: row n is C(n, j)∫ y^j (1 − y)^{n−j} f dy."""
    hops, last = hops_of(mixing), tokens - 1

    def binomial(key: int):
        return lambda x: math.comb(last, key) * math.exp(-key * x) * (-math.expm1(-x)) ** (last - key)

    smoothed = np.array([integral(binomial(key), hops) for key in range(tokens)])
    smoothed[-1] += hops[0]
    np.testing.assert_allclose(dense_row(tokens, mixing), smoothed, atol=1e-8)


@pytest.mark.parametrize("decay", [0.0, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("mixing", [[0.5] * 6, [0.9, 0.1, 0.3, 0.2], [0.02] * 40])
def test_dense_products_tend_to_the_closed_form_as_one_over_tokens(mixing, decay):
    def off(tokens: int) -> float:
        middles, inner = (np.arange(tokens) + 0.5) / tokens, slice(tokens // 10, tokens - 1)
        exact = influence_density(middles, hops_of(mixing), decay) / tokens
        return float(np.abs(dense_row(tokens, mixing, decay) / exact - 1.0)[inner].max())

    few, many = off(200), off(800)
    assert many < 0.04
    assert many < 0.3 * few + 1e-12


@given(st.floats(0.0, 12.0), st.one_of(st.just(0.0), DECAYS), st.floats(0.001, 1.0))
def test_many_layers_of_little_mixing_give_a_bessel_function(strength, decay, position):
    found = influence_density(np.array([position]), poisson_hops(strength), decay)[0]
    with mpmath.workdps(40):
        sigma, c, s = mpmath.mpf(position), mpmath.mpf(decay), mpmath.mpf(strength)
        y = mpmath.expm1(c * sigma) / mpmath.expm1(c) if decay else sigma
        stretch = c * mpmath.exp(c * sigma) / mpmath.expm1(c) if decay else mpmath.mpf(1)
        # Σ_k s^(k+1) x^k / (k! (k+1)!), x the distance −log y
        terms = s * mpmath.hyp0f1(2, -s * mpmath.log(y))
        exact = float(stretch * terms * mpmath.exp(-s))
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-13)


@given(MIXINGS, st.one_of(st.just(0.0), DECAYS))
def test_the_density_leaves_what_the_last_token_keeps(mixing, decay):
    hops = hops_of(mixing)
    assert integral(lambda x: 1.0, hops, decay) == pytest.approx(1.0 - hops[0], abs=1e-8)


@given(st.one_of(MIXINGS.map(hops_of), st.floats(0.05, 8.0).map(poisson_hops)), DECAYS)
def test_turning_points_are_where_the_density_turns(hops, decay):
    """Differences on a grid have one sign between turning points, the one that the theorem says."""
    found = turning_points(hops, decay)
    assert len(found) <= 2
    assert list(found) == sorted(found)
    second = hops[2] if len(hops) > 2 else 0.0
    assert (second < hops[1] * -math.expm1(-decay)) == (len(found) == 1)
    # of the slope's sign nothing is known where it is flat: close to each point, and at the ends
    edges = [1e-3, *found, 1.0]
    rising = [False, True, False][: len(found) + 1]
    for low, high, rises in zip(edges, edges[1:], rising, strict=False):
        room = 1e-3 * (high - low)
        if high - low < 1e-4 or low + room >= high - room:
            continue
        values = influence_density(np.linspace(low + room, high - room, 50), hops, decay)
        steps = np.diff(values) / values[1:]
        assert (steps > -1e-11).all() if rises else (steps < 1e-11).all()


@given(st.floats(0.05, 4.0), DECAYS)
def test_a_u_has_one_minimum_exactly_up_to_twice_the_share_of_recency(strength, decay):
    """The sharp condition of infinitely many layers is s < 2(1 − e^{−c})."""
    sharp = -2.0 * math.expm1(-decay)
    if abs(strength / sharp - 1.0) > 1e-6:
        assert (len(turning_points(poisson_hops(strength), decay)) == 1) == (strength < sharp)


def test_a_rollout_of_many_layers_turns_where_the_closed_form_does():
    tokens, layers, decay = 1000, 400, 2.0
    step = 0.9 * (3.0 - math.sqrt(3.0)) / layers
    mixing = step / (1.0 + step)
    layer = Layer(positional=DecayBias(decay / tokens))
    mass = influence(Architecture(layers, (layer,), ConstantMixing(mixing)), tokens, threads=1).mass[:-1]
    turns = (np.flatnonzero(np.diff(np.sign(np.diff(mass)))) + 1) / tokens
    expected = turning_points(hops_of([mixing] * layers), decay)
    assert len(expected) == 1
    np.testing.assert_allclose(turns, expected, atol=0.002)
