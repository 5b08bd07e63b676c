"""Causal averages with residual connections: closed forms against dense products, mpmath and integrals."""

import math

import mpmath
import numpy as np
import pytest
from dense import last_row
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import DecayBias
from posbias.theory.rollout.dispatch import influence
from posbias_papers.closed_forms.causal_averaging import (
    hops_of,
    influence_density,
    poisson_hops,
    smallness_bound,
    turning_points,
)

MIXINGS = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=8)
DECAYS = st.floats(0.05, 8.0)


def dense_row(tokens: int, mixing: list[float], decay: float = 0.0) -> np.ndarray:
    """The last row of the product of (1 − λ_t)I + λ_t·A, from the definition of A."""
    weights = np.tril(np.tile(np.exp(decay * np.arange(tokens) / tokens), (tokens, 1)))
    return last_row([weights / weights.sum(axis=1, keepdims=True)] * len(mixing), mixing)


@given(MIXINGS, st.integers(2, 12))
def test_finitely_many_tokens_are_the_density_smoothed_by_binomials(mixing, tokens):
    """Powers of the Cesàro matrix are Hausdorff matrices: row n is C(n, j)∫ y^j (1 − y)^{n−j} f dy."""
    hops, last = hops_of(mixing), tokens - 1

    def share(key: int) -> float:
        def weighed(distance: float) -> float:
            y = math.exp(-distance)
            density = influence_density(np.array([max(y, 1e-300)]), hops)[0]
            return math.comb(last, key) * y ** (key + 1) * (-math.expm1(-distance)) ** (last - key) * density

        return quad(weighed, 0.0, 120.0, epsabs=1e-11, epsrel=1e-11, limit=400)[0]

    smoothed = np.array([share(key) for key in range(tokens)])
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
        distance = -mpmath.log(y)
        terms = (
            mpmath.nsum(
                lambda k: s ** (k + 1) * distance**k / (mpmath.factorial(k) * mpmath.factorial(k + 1)),
                [0, mpmath.inf],
            )
            if distance and s
            else s
        )
        exact = float(stretch * terms * mpmath.exp(-s))
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-13)


@given(MIXINGS, st.one_of(st.just(0.0), DECAYS))
def test_the_density_leaves_what_the_last_token_keeps(mixing, decay):
    hops = hops_of(mixing)

    def weighed(distance: float) -> float:
        position = math.exp(-distance)
        return position * influence_density(np.array([position]), hops, decay)[0]

    whole = quad(weighed, 0.0, 120.0, epsabs=1e-11, epsrel=1e-11, limit=400)[0]
    assert whole == pytest.approx(1.0 - hops[0], abs=1e-8)


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
    """The sharp condition of infinitely many layers is s < 2(1 − e^{−c}); the smallness condition is no weaker."""
    sharp = -2.0 * math.expm1(-decay)
    assert smallness_bound(decay) <= sharp
    if abs(strength / sharp - 1.0) > 1e-6:
        assert (len(turning_points(poisson_hops(strength), decay)) == 1) == (strength < sharp)


def test_a_rollout_of_many_layers_turns_where_the_closed_form_does():
    tokens, layers, decay = 1000, 400, 2.0
    step = 0.9 * smallness_bound(decay) / layers
    mixing = step / (1.0 + step)
    layer = Layer(positional=DecayBias(decay / tokens))
    mass = influence(Architecture(layers, (layer,), ConstantMixing(mixing)), tokens, threads=1).mass[:-1]
    turns = (np.flatnonzero(np.diff(np.sign(np.diff(mass)))) + 1) / tokens
    expected = turning_points(hops_of([mixing] * layers), decay)
    assert len(expected) == 1
    np.testing.assert_allclose(turns, expected, atol=0.002)
