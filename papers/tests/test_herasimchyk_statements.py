"""The residual-aware theory: its order against definitions, its bounds against oracles, its statements tried."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.profiles import stochastic_order
from posbias.theory.architecture import Layer
from posbias.theory.encodings import ALiBi, DecayBias, NoPE
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import AttentionOnly, ConstantMixing, PerLayer, PowerDecay, PreNormInit
from posbias.theory.rollout.kernel import layer_kernel
from posbias_papers.closed_forms import residual_bounds
from posbias_papers.statements import STATEMENTS, check, draws
from posbias_papers.statements.herasimchyk2026_depth import deep_rollouts, growing, run_network
from posbias_papers.statements.herasimchyk2026_order import draw_encoding, prefix_at, prefix_covariance
from posbias_papers.statements.margins import rollout_row
from posbias_papers.statements.record import fields

BY_KEY = {one.key.removeprefix("herasimchyk-"): one for one in STATEMENTS}

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
    margin = stochastic_order.dominance(pair[0] / PARTS, pair[1] / PARTS)
    assert (margin >= 0) == (later >= earlier).all()
    assert stochastic_order.dominates(pair[0] / PARTS, pair[1] / PARTS) == (margin >= 0)


@given(pairs, st.randoms(use_true_random=False))
def test_dominance_bounds_the_mean_of_every_increasing_function(pair, random):
    """E_μ φ − E_ν φ = Σ_k (prefix of ν − prefix of μ)(φ(k+1) − φ(k)) ≥ margin · (φ(n−1) − φ(0))."""
    later, earlier = pair[0] / PARTS, pair[1] / PARTS
    values = np.sort([random.random() for _ in later])
    gain = later @ values - earlier @ values
    margin = float(stochastic_order.dominance(later, earlier))
    assert gain >= margin * (values[-1] - values[0]) - 1e-14


@given(pairs)
def test_prefix_drift_is_the_gain_of_each_prefix(pair):
    before, after = pair
    drift = stochastic_order.prefix_drift(before / PARTS, after / PARTS)
    expected = [(sum(after[: k + 1]) - sum(before[: k + 1])) / PARTS for k in range(len(before) - 1)]
    assert drift.tolist() == expected
    if expected:
        assert stochastic_order.dominance(before / PARTS, after / PARTS) == min(expected)


def test_prefixes_of_float32_are_summed_in_float64():
    mass = np.full(100_000, 1e-5, dtype=np.float32)
    exact = float(np.float32(1e-5)) * 100_000
    assert stochastic_order.prefix_mass(mass)[-1] == pytest.approx(exact, rel=1e-12)


def test_batches_are_compared_along_the_last_axis():
    rng = np.random.default_rng(3)
    later, earlier = rng.dirichlet(np.ones(5), (4, 3)), rng.dirichlet(np.ones(5), 3)
    margins = stochastic_order.dominance(later, earlier)
    assert margins.shape == (4, 3)
    assert margins[2, 1] == stochastic_order.dominance(later[2, 1], earlier[1])


@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(7)])
@pytest.mark.parametrize("positional", [NoPE(), ALiBi(), DecayBias(0.3)])
def test_kernels_of_the_theory_are_monotone_and_a_planted_violation_is_found(mask, positional):
    kernel = layer_kernel(Layer(heads=4, positional=positional, mask=mask), 40)
    assert stochastic_order.monotonicity(kernel).holds
    # the last row is given more of the first key than the row before it, taken from its own
    planted = kernel[38, 0] - kernel[39, 0] + 1e-6
    kernel[39, 0] += planted
    kernel[39, 39] -= planted
    violated = stochastic_order.monotonicity(kernel, tolerance=1e-9)
    gaps = np.array([kernel[39, : k + 1].sum() - kernel[:39, : k + 1].sum(axis=1) for k in range(39)])
    assert violated.violations == (gaps > 1e-9).sum() > 0
    assert violated.mean_gap == pytest.approx(gaps[gaps > 1e-9].mean(), rel=1e-9)
    assert violated.margin == pytest.approx(-gaps.max(), rel=1e-9)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (np.ones((2, 3)) / 3, "shape"),
        (np.array([[0.5, 0.4], [0.5, 0.5]]), "row sum is 0.1"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "negative"),
        (np.array([[np.nan, 1.0], [0.5, 0.5]]), "not finite"),
        (np.zeros((0, 0)), "shape"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel, words):
    with pytest.raises(InvalidValueError, match=words):
        stochastic_order.monotonicity(kernel)


def test_other_bad_input_of_the_order_is_refused():
    with pytest.raises(InvalidValueError, match="tolerance: -1"):
        stochastic_order.monotonicity(np.eye(2), tolerance=-1.0)
    with pytest.raises(InvalidValueError, match="after: "):
        stochastic_order.prefix_drift(np.ones(2) / 2, np.ones(3) / 3)
    with pytest.raises(InvalidValueError, match="before: not finite"):
        stochastic_order.dominance(np.array([np.nan, 1.0]), np.ones(2) / 2)


# --- residual_bounds.py against closed forms and enumeration -----------------------------------------------

coefficients = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(np.array)


def closed_product(exponent, a):
    """Π_{t≥1} (1 − a/t^β) for β = 2, 3, 4: products over t of linear factors give sines and gammas."""
    import mpmath

    root = mpmath.mpf(a) ** (mpmath.mpf(1) / exponent)
    turns = [mpmath.expjpi(mpmath.mpf(2 * k) / exponent) for k in range(exponent)]
    return float(mpmath.re(1 / mpmath.fprod(mpmath.gamma(1 - root * turn) for turn in turns)))


@given(st.sampled_from([2, 3, 4]), st.floats(1e-6, 1), st.floats(0.01, 0.999))
def test_infinite_product_equals_its_closed_form(exponent, initial, share):
    found = math.exp(residual_bounds.log_product(PowerDecay(initial, float(exponent)), share))
    assert found == pytest.approx(closed_product(exponent, share * initial), rel=1e-12)


@pytest.mark.parametrize("exponent", [1.05, 1.5, 2.5])
def test_infinite_product_lies_between_brackets_of_its_tail(exponent):
    depth, a = 100_000, 0.7
    explicit = np.log1p(-a * np.arange(1.0, depth + 1) ** -exponent).sum()
    # x ≤ −ln(1 − x) ≤ x/(1 − x), and the sum lies between the integrals from depth + 1 and from depth
    low, high = (a * start ** (1 - exponent) / (exponent - 1) for start in (depth + 1.0, float(depth)))
    found = residual_bounds.log_product(PowerDecay(1.0, exponent), a)
    assert explicit - high / (1 - a * depth**-exponent) - 1e-9 <= found <= explicit - low + 1e-9


@pytest.mark.parametrize(
    ("mixing", "total"),
    [
        (ConstantMixing(0.0), 0.0),
        (ConstantMixing(1e-9), math.inf),
        (AttentionOnly(), math.inf),
        (PreNormInit(), math.inf),
        (PowerDecay(0.5, 0.3), math.inf),
        (PowerDecay(0.5, 1.0), math.inf),
        (PowerDecay(0.0, 1.0), 0.0),
        (PowerDecay(0.5, 2.0), 0.5 * math.pi**2 / 6),
        (PowerDecay(0.5, 4.0), 0.5 * math.pi**4 / 90),
    ],
)
def test_total_mixing_decides_the_dichotomy(mixing, total):
    assert residual_bounds.total_mixing(mixing) == pytest.approx(total, rel=1e-14)
    found = residual_bounds.dichotomy(mixing, 0.1)
    assert found.collapses == math.isinf(total)
    assert (found.retained == 0.0) == found.collapses
    assert found.first_token == 1.0 - found.retained


def test_dichotomy_holds_far_down():
    """Two tokens under NoPE, where P_11 = Π(1 − λ/2) exactly: the limit is approached or is zero."""
    for mixing in (PowerDecay(1.0, 2.0), PowerDecay(0.7, 3.0)):
        own = residual_bounds.self_bound(mixing.values(200_000), 0.5)[-1]
        limit = residual_bounds.dichotomy(mixing, 0.5).retained
        assert limit < own < limit * (1 + 1e-5)
    # β = 1: Π(1 − 1/2t) falls as depth^−½, by Gamma(½)
    own = residual_bounds.self_bound(PowerDecay(1.0, 1.0).values(100_000), 0.5)[-1]
    assert own == pytest.approx(1 / math.sqrt(math.pi * 100_000), rel=1e-5)


@given(coefficients, st.floats(0, 0.3), st.integers(0, 3))
def test_bounds_equal_their_products_written_out(lam, floor, position):
    for depth in range(1, len(lam) + 1):
        part = lam[:depth].tolist()
        own = math.prod(1 - (1 - floor) * one for one in part)
        suffix = math.prod(1 - position * floor * one for one in part)
        assert residual_bounds.self_bound(lam, floor)[depth - 1] == pytest.approx(own, rel=1e-13)
        assert residual_bounds.suffix_bound(lam, floor, position)[depth - 1] == pytest.approx(
            suffix, rel=1e-13
        )
        exponential = residual_bounds.exponential_bound(lam, floor, position)[depth - 1]
        assert exponential == pytest.approx(math.exp(-position * floor * sum(part)), rel=1e-13)
        assert exponential >= suffix * (1 - 1e-13)


@given(coefficients, st.floats(0, 1), st.integers(0, 5))
def test_window_bound_sums_over_all_outcomes(lam, floor, query):
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=len(lam)):
        if sum(outcome) < query:
            chances = [floor * one if hit else 1 - floor * one for hit, one in zip(outcome, lam, strict=True)]
            total += math.prod(chances)
    assert residual_bounds.window_bound(lam, floor, query) == pytest.approx(total, rel=1e-12, abs=1e-300)


@given(coefficients, st.lists(st.floats(0, 3), min_size=8, max_size=8), st.floats(0, 5))
def test_hidden_state_bound_is_attained_by_a_single_token(lam, norms, start):
    state = start
    for one, norm in zip(lam, norms, strict=False):
        state = (1 - one) * state + one * norm * state
    found = residual_bounds.hidden_state_bound(lam, np.array(norms[: len(lam)]), start)[-1]
    assert found == pytest.approx(state, rel=1e-12)


@given(st.integers(1, 6), st.floats(0, 4), st.floats(0, 4))
def test_softmax_floor_is_the_least_over_all_corners(keys, logit_bound, positional_range):
    """The least weight is attained where logits are at their bounds: try every such row."""
    corners = itertools.product([-logit_bound, logit_bound + positional_range], repeat=keys)
    least = min(math.exp(min(row)) / sum(map(math.exp, row)) for row in corners)
    assert residual_bounds.softmax_floor(keys, logit_bound, positional_range) == pytest.approx(
        least, rel=1e-12
    )


def test_heads_are_averaged():
    heads = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3))
    np.testing.assert_allclose(residual_bounds.average_heads(heads), (heads[0] + heads[1]) / 2, rtol=1e-15)
    np.testing.assert_allclose(
        residual_bounds.average_heads(heads, [0.25, 0.75]), 0.25 * heads[0] + 0.75 * heads[1], rtol=1e-14
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: residual_bounds.total_mixing(PerLayer((0.1, 0.2))), "mixing: 2 measured"),
        (lambda: residual_bounds.dichotomy(ConstantMixing(0.1), 0.0), "floor: 0.0 given"),
        (lambda: residual_bounds.self_bound(np.array([0.5, 1.2]), 0.1), "coefficients"),
        (lambda: residual_bounds.self_bound(np.array([0.5]), 1.2), "floor: 1.2 given"),
        (lambda: residual_bounds.suffix_bound(np.array([0.5]), 0.5, 3), "position: 3 given"),
        (lambda: residual_bounds.exponential_bound(np.array([0.5]), 0.5, -1), "position: -1 given"),
        (lambda: residual_bounds.window_bound(np.array([0.5]), 0.5, -1), "query: -1 given"),
        (lambda: residual_bounds.softmax_floor(0, 1.0), "keys: 0 given"),
        (lambda: residual_bounds.softmax_floor(2, math.inf), "logit_bound: inf given"),
        (lambda: residual_bounds.log_product(ConstantMixing(0.5), 1.5), "share: 1.5 given"),
        (lambda: residual_bounds.hidden_state_bound(np.array([0.5]), -np.ones(1), 1.0), "value_norms"),
        (lambda: residual_bounds.hidden_state_bound(np.array([0.5]), np.ones(1), math.inf), "initial: inf"),
        (lambda: residual_bounds.smallest_admitted(np.eye(2), np.zeros((2, 2), dtype=bool)), "with 0 pairs"),
        (
            lambda: residual_bounds.smallest_admitted(np.ones((2, 2)) / 2, np.eye(2, dtype=bool)),
            "outside|none",
        ),
        (lambda: residual_bounds.average_heads(np.ones((2, 1, 1)), [0.5, 0.6]), "weights"),
    ],
)
def test_bad_input_of_the_bounds_is_refused(call, words):
    with pytest.raises(InvalidValueError, match=words):
        call()


# --- the statements ----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.booleans(), st.booleans())
@examples(300)
def test_drawn_kernels_satisfy_the_hypotheses(seed, edge, positive):
    rng = np.random.default_rng(seed)
    tokens, width = draws.size(rng, edge)
    draw = draws.positive if positive else draws.monotone
    kernel = draw(rng, tokens, width, edge)
    inside = SlidingWindow(width).allowed(tokens)
    assert (kernel[~inside] == 0).all()
    assert (kernel[inside] > 0).all() if positive else (kernel >= 0).all()
    np.testing.assert_allclose(kernel.sum(axis=1), 1.0, atol=1e-14)
    prefix = np.cumsum(kernel, axis=1)
    assert all((prefix[i] >= prefix[later] - 1e-14).all() for later in range(tokens) for i in range(later))


@given(st.integers(0, 2**32), st.booleans())
def test_drawn_encodings_and_contents_satisfy_the_hypotheses(seed, edge):
    """Proposition 4.4: recency-favouring logits; a mean kernel that is monotone though its inputs are not."""
    instance = draw_encoding(np.random.default_rng(seed), edge)
    assert (np.diff(instance["positional"], axis=-1) >= 0).all()
    allowed = SlidingWindow(instance["width"]).allowed(instance["positional"].shape[-1])
    for layer in instance["content"]:
        weights = np.exp(layer - layer.max(axis=-1, keepdims=True)) * allowed
        mean = (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=0)
        assert stochastic_order.monotonicity(mean).holds


@given(st.integers(0, 2**32))
def test_rolled_rows_are_those_of_the_product(seed):
    stack = draws.stack(np.random.default_rng(seed), False)
    product = np.eye(stack["kernels"].shape[-1])
    for A, lam in zip(stack["kernels"], stack["mixing"], strict=True):
        product = ((1 - lam) * np.eye(len(A)) + lam * A) @ product
    row = rollout_row(stack["kernels"], stack["mixing"])
    np.testing.assert_allclose(row, product[-1], rtol=1e-12, atol=1e-300)


# --- mistakes that must be noticed -------------------------------------------------------------------------


def test_one_depth_too_few_or_a_rate_too_fast_is_caught():
    """Theorem 5.4 (ii) with the rate of the next position: (j + 1)ε in place of jε."""

    def too_fast(instance):
        rollouts, mixing, floor = deep_rollouts(**fields(instance))
        return float(residual_bounds.exponential_bound(mixing, floor, 2)[-1] - rollouts[-1, :, 1].max())

    wrong = replace(BY_KEY["5.4-ii"].as_printed, slack=too_fast)
    assert check(wrong, 200, 0, "rate").counterexample is not None


@given(st.integers(0, 2**32))
def test_the_softmax_step_fails_for_logits_that_favour_early_keys(seed):
    instance = dict(BY_KEY["A.1.3"].as_printed.draw(np.random.default_rng(seed), False))
    instance["positional"] = np.arange(len(instance["content"]), dtype=float)
    instance["strengths"] = np.array([0.0, 0.5])
    assert BY_KEY["A.1.3"].as_printed.slack(instance) >= -1e-12
    assert BY_KEY["A.1.3"].as_printed.slack(instance | {"positional": -instance["positional"]}) < -1e-6


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
    _, attention = run_network(**fields(growing([[0.0], [0.1]], 0.1, 30.0, 150)))
    assert math.prod(0.5 + 0.5 * A[1, 1] for A in attention) == pytest.approx(kept(150), rel=1e-9)


def test_a_full_mask_and_rising_logits_need_not_be_monotone():
    """The note on Assumption 4.1: weights 1, 1, 0.1, 0.1 by distance without mask; a rise under the causal one."""
    distance = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    full = np.array([1, 1, 0.1, 0.1])[distance]
    assert not stochastic_order.monotonicity(full / full.sum(axis=1, keepdims=True)).holds
    rising = np.tril(np.array([1, 0.01, 5, 100.0])[distance])
    assert not stochastic_order.monotonicity(rising / rising.sum(axis=1, keepdims=True)).holds
