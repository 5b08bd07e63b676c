"""The residual-aware theory: its order against definitions, its bounds against oracles, its statements tried."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.profiles import stochastic_order
from posbias.theory.masks import SlidingWindow
from posbias.theory.mixing import AttentionOnly, ConstantMixing, PerLayer, PowerDecay, PreNormInit
from posbias_papers.closed_forms import bounds
from posbias_papers.statements.draws import Sampler, growing
from posbias_papers.statements.herasimchyk2026 import (
    encoding_and_content,
    prefix_at,
    prefix_covariance,
    run_network,
)

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


@pytest.mark.parametrize(
    "kernel",
    [np.ones((2, 3)) / 3, np.array([[0.5, 0.4], [0.5, 0.5]]), np.array([[np.nan, 1.0], [0.5, 0.5]])],
)
def test_what_is_no_kernel_is_refused(kernel):
    with pytest.raises(InvalidValueError):
        stochastic_order.monotonicity(kernel)


coefficients = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(np.array)


def closed_product(exponent, a):
    """Π_{t≥1} (1 − a/t^β) for β = 2, 3, 4: products over t of linear factors give sines and gammas."""
    import mpmath

    root = mpmath.mpf(a) ** (mpmath.mpf(1) / exponent)
    turns = [mpmath.expjpi(mpmath.mpf(2 * k) / exponent) for k in range(exponent)]
    return float(mpmath.re(1 / mpmath.fprod(mpmath.gamma(1 - root * turn) for turn in turns)))


@given(st.sampled_from([2, 3, 4]), st.floats(1e-6, 1), st.floats(0.01, 0.999))
def test_infinite_product_equals_its_closed_form(exponent, initial, share):
    found = bounds.retained(PowerDecay(initial, float(exponent)), 1 - share)
    assert found == pytest.approx(closed_product(exponent, share * initial), rel=1e-12)


def test_total_mixing_decides_the_dichotomy():
    for mixing in (
        ConstantMixing(1e-9),
        AttentionOnly(),
        PreNormInit(),
        PowerDecay(0.5, 0.3),
        PowerDecay(0.5, 1.0),
    ):
        assert bounds.retained(mixing, 0.1) == 0.0
    assert bounds.retained(ConstantMixing(0.0), 0.1) == bounds.retained(PowerDecay(0.0, 1.0), 0.1) == 1.0
    with pytest.raises(InvalidValueError, match=r"^mixing: "):
        bounds.retained(PerLayer((0.1, 0.2)), 0.1)


def test_dichotomy_holds_far_down():
    """Two tokens under NoPE, where P_11 = Π(1 − λ/2) exactly: the limit is approached or is zero."""
    for mixing in (PowerDecay(1.0, 2.0), PowerDecay(0.7, 3.0)):
        own = bounds.self_bound(mixing.values(200_000), 0.5)[-1]
        limit = bounds.retained(mixing, 0.5)
        assert limit < own < limit * (1 + 1e-5)
    # β = 1: Π(1 − 1/2t) falls as depth^−½, by Gamma(½)
    own = bounds.self_bound(PowerDecay(1.0, 1.0).values(100_000), 0.5)[-1]
    assert own == pytest.approx(1 / math.sqrt(math.pi * 100_000), rel=1e-5)


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
    attention = run_network(**network)[1]
    assert math.prod(0.5 + 0.5 * A[1, 1] for A in attention) == pytest.approx(kept(150), rel=1e-9)
