"""Two and three tokens, integrated: rules against known means, scores against mpmath, loops and simulation."""

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from posbias.core.errors import InvalidValueError
from posbias.simulation import RecencyModel, simulate_recency
from posbias_papers.closed_forms import recency
from posbias_papers.closed_forms.layernorm import correlation_rule
from posbias_papers.closed_forms.recency import exact_scores, recency_excess

NORMS = ("layernorm", "rmsnorm", "none")


# --- Gauss rules -------------------------------------------------------------------------------------------


@given(st.integers(1, 4096), st.integers(2, 24))
@settings(max_examples=40)
def test_lengths_have_the_moments_of_a_chi_variate(freedom, count):
    node, weight = recency.lengths(freedom, count)
    assert (node > 0).all()
    assert (weight > 0).all()
    for power in range(2 * count):
        log_moment = 0.5 * power * math.log(2) + gammaln((freedom + power) / 2) - gammaln(freedom / 2)
        # in units of the largest node: high powers of lengths about 64 hold no more digits than that
        scaled = np.sum(weight * (node / node.max()) ** power)
        assert scaled == pytest.approx(math.exp(log_moment - power * math.log(node.max())), rel=1e-9)


@given(st.integers(0, 4096), st.integers(2, 24))
@settings(max_examples=40)
def test_angles_have_the_density_of_a_power_of_the_sine(power, count):
    node, weight = recency.angles(power, count)
    assert ((node > 0) & (node < math.pi)).all()
    assert weight.sum() == pytest.approx(1.0, rel=1e-13)
    assert np.sum(weight * np.cos(node)) == pytest.approx(0.0, abs=1e-13)
    if count >= 12:
        assert np.sum(weight * np.cos(node) ** 2) == pytest.approx(1.0 / (power + 2), rel=1e-9)


@given(st.integers(2, 2000), st.sampled_from([0.0, 0.3, 0.6, 0.9, 0.99]))
@settings(max_examples=30)
def test_correlations_have_the_known_mean(freedom, alpha):
    """E r = α·(2/ν)·(Γ((ν+1)/2)/Γ(ν/2))²·₂F₁(½, ½; ν/2 + 1; α²) (Hotelling 1953)."""
    u, weight = correlation_rule(freedom, alpha)
    known = 2 / freedom * math.exp(2 * (gammaln((freedom + 1) / 2) - gammaln(freedom / 2)))
    known *= alpha * float(mpmath.hyp2f1(0.5, 0.5, freedom / 2 + 1, alpha**2))
    tolerance = 1e-11 if freedom > 3 else 1e-7  # at ν = 2 the density is no zero at r = ±1
    assert weight.sum() == pytest.approx(1.0, rel=tolerance)
    assert np.sum(weight * np.tanh(u + math.atanh(alpha))) == pytest.approx(known, rel=tolerance, abs=1e-14)


# --- the geometry: tokens have the distribution they should ------------------------------------------------


coordinates = st.lists(st.floats(-2.0, 2.0), min_size=9, max_size=9)


@given(coordinates, st.sampled_from(NORMS), st.booleans(), st.integers(1, 4), st.integers(2, 3))
def test_scores_of_given_tokens_are_those_of_plain_loops(numbers, norm, residual, depth, tokens):
    x = np.tril(np.array(numbers).reshape(3, 3)[:tokens, :tokens])
    x[np.arange(tokens), np.arange(tokens)] = 0.5 + np.abs(np.diag(x))
    dimension = 7
    found = recency._Layers(tokens, dimension, 0.3, norm, residual, depth).scores(x)
    for layer in range(depth):
        y = x if norm == "none" else math.sqrt(dimension) * x / np.linalg.norm(x, axis=1, keepdims=True)
        after = np.zeros_like(x)
        for i in range(tokens):
            scores = [float(y[i] @ y[j]) / math.sqrt(dimension) for j in range(i + 1)]
            assert found[layer, i, : i + 1] == pytest.approx(scores, rel=1e-9, abs=1e-11)
            shares = np.exp(scores) / np.exp(scores).sum()
            after[i] = sum(shares[j] * y[j] for j in range(i + 1)) + residual * x[i]
        x = after


# --- two tokens against mpmath -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dimension", "alpha", "norm"),
    [
        (4, 0.3, "layernorm"), (4, 0.0, "rmsnorm"), (5, 0.99, "layernorm"), (16, 0.5, "layernorm"),
        (64, 0.0, "layernorm"),
    ],
)  # fmt: skip
def test_two_tokens_are_a_mean_over_hotellings_density(dimension, alpha, norm):
    nu = dimension - (norm == "layernorm")
    with mpmath.workdps(20):
        a, root, half = mpmath.mpf(alpha), mpmath.sqrt(dimension), mpmath.mpf(1) / 2

        def density(r):
            series = mpmath.hyp2f1(half, half, nu + half, (1 + a * r) / 2)
            return (1 - r * r) ** (mpmath.mpf(nu - 3) / 2) * (1 - a * r) ** (half - nu) * series

        def score(r):
            u = mpmath.exp(root * (r - 1))
            return root * (r + u) / mpmath.sqrt(1 + 2 * u * r + u * u)

        points = sorted({-1, 0, a, (1 + a) / 2, 1})
        whole = mpmath.quad(density, points)
        expected = mpmath.quad(lambda r: density(r) * score(r), points) / whole
    found = exact_scores(2, dimension, alpha, norm=norm).scores
    assert found.value[1, 1, 0] == pytest.approx(float(expected), rel=1e-10)
    assert found.error[1, 1, 0] < 1e-11


# --- three tokens ------------------------------------------------------------------------------------------


def test_numbers_at_sixteen_dimensions():
    scores = exact_scores(3, 16, 0.5)
    assert scores.rises.value[1] == pytest.approx(0.12159262, rel=3e-7)
    assert scores.scores.value[1, 2] == pytest.approx([2.3441715, 2.4657641, 4.0], abs=1e-7)
    assert recency_excess(16, 0.5).value[1] == pytest.approx(0.0734968, abs=5e-8)


@pytest.mark.parametrize(("norm", "residual"), list(itertools.product(NORMS, (False, True))))
def test_the_noise_along_the_difference_decides_once(norm, residual):
    """S_21 − S_20 passes zero once, upwards: what the recency probability is computed by."""
    model = recency._Layers(3, 6, 0.4, norm, residual, 4)
    rules = [recency.lengths(model.freedom, 3)] * 2 + [recency.angles(model.freedom - 2, 5)]
    rules += [recency.lengths(model.freedom - 1, 3), recency.angles(model.freedom - 3, 4)]
    along = np.linspace(-recency.REACH, recency.REACH, 241)[:, None]
    for (*pair, length, around), weight in recency.blocks(rules):
        third, _ = recency._third(model, *pair)
        layers = model.scores(third(along + 0 * weight, length * np.cos(around), length * np.sin(around)))
        above = recency._last_rise(layers) > 0
        assert (np.diff(above.astype(int), axis=1) >= 0).all()


def test_without_a_norm_the_second_layer_knows_no_order_of_three():
    """Token 2's output is symmetric in tokens 0 and 1, and the difference of theirs is along x_1 − x_0."""
    assert np.abs(recency_excess(8, norm="none", nodes=6).value).max() < 1e-13
    anisotropic = recency_excess(8, 0.4, norm="none", residual=True, depth=3)
    assert abs(anisotropic.value[1]) < 1e-5
    assert anisotropic.value[2] + anisotropic.error[2] < -0.01


GRID = [
    (4, 0.6, "rmsnorm", False), (16, 0.5, "layernorm", False), (16, 0.6, "none", True),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        (4, 0.0, "layernorm", False), (4, 0.6, "layernorm", True), (16, 0.0, "layernorm", False),
        (16, 0.6, "layernorm", True), (16, 0.0, "none", False), (64, 0.6, "layernorm", False),
        (64, 0.6, "rmsnorm", True),
    ]),
]  # fmt: skip


@functools.cache
def integrals(dimension, alpha, norm, residual):
    options = {"norm": norm, "residual": residual}
    return exact_scores(3, dimension, alpha, depth=3, **options), recency_excess(dimension, alpha, **options)


def deviations(dimension, alpha, norm, residual, *, simulated_norm=None, simulated_alpha=None):
    """(simulated − integrated)/standard error of rises and scores of layers 2 and 3, and excess of layer 2."""
    scores, excess = integrals(dimension, alpha, norm, residual)
    model = RecencyModel(
        tokens=3, dimension=dimension, anisotropy=simulated_alpha if simulated_alpha is not None else alpha,
        norm=simulated_norm or norm, residual=residual, depth=3,
    )  # fmt: skip
    drawn = simulate_recency(model, 10**6, seed=4, threads=1)
    below = np.tri(3, k=-1, dtype=bool)
    pairs = [
        (drawn.rises.value[1:, 2, 1], drawn.rises.se[1:, 2, 1], scores.rises.value[1:], scores.rises.error[1:]),
        (
            drawn.recency_probability[1].value - 0.5, drawn.recency_probability[1].se,
            excess.value[1], excess.error[1],
        ),
        (
            drawn.mean_scores.value[:, below], drawn.mean_scores.se[:, below],
            scores.scores.value[:, below], scores.scores.error[:, below],
        ),
    ]  # fmt: skip
    for _, se, _, error in pairs:
        assert (error < se).all()  # what is not sure of the integrals is less than the noise
    return np.concatenate(
        [((value - exact) / np.hypot(se, error)).ravel() for value, se, exact, error in pairs]
    )


@pytest.mark.parametrize(("dimension", "alpha", "norm", "residual"), GRID)
def test_integrals_are_what_simulation_finds(dimension, alpha, norm, residual):
    assert np.abs(deviations(dimension, alpha, norm, residual)).max() < 4


def test_simulation_of_another_model_is_noticed():
    assert np.abs(deviations(16, 0.5, "layernorm", False, simulated_norm="rmsnorm")).max() > 10
    assert np.abs(deviations(16, 0.5, "layernorm", False, simulated_alpha=0.49)).max() > 10


@pytest.mark.parametrize(("alpha", "residual"), [(0.3, False), (0.75, True)])
def test_the_error_is_no_less_than_what_more_nodes_change(alpha, residual):
    few, many = (exact_scores(3, 8, alpha, residual=residual, nodes=nodes) for nodes in (6, 10))
    below = np.tri(3, k=-1, dtype=bool)
    off = np.abs(few.scores.value - many.scores.value)[:, below]
    # errors are differences of two rules, and may by chance be small at one entry: the largest counts
    assert off.max() <= 2 * few.scores.error[:, below].max()
    assert abs(few.rises.value[1] - many.rises.value[1]) <= 2 * few.rises.error[1]
    assert many.rises.error[1] < few.rises.error[1]


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "argument"), [((4, 16), "tokens"), ((3, 3), "dimension"), ((2, 16, 1.0), "anisotropy")]
)
def test_a_model_that_cannot_be_integrated_is_refused(given, argument):
    with pytest.raises(InvalidValueError, match=f"^{argument}: "):
        exact_scores(*given)
