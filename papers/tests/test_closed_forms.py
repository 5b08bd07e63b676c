"""Recency that LayerNorm induces: closed forms and integrals against mpmath, known means, loops and simulation."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import beta

from posbias.core.errors import InvalidValueError
from posbias.core.machine import stream
from posbias.profiles.estimate import Estimate
from posbias.simulation import simulate_recency
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias.theory.masks import SlidingWindow
from posbias_papers.closed_forms import layernorm, recency
from posbias_papers.closed_forms.layernorm import (
    SecondLayer,
    closed_form,
    closed_scores,
    correlation_rule,
    deviation,
)
from posbias_papers.closed_forms.recency import exact_scores, recency_excess
from posbias_papers.statements.kim2026 import mean_squared_distance, shares_by_query

dimensions = st.integers(4, 4096)
shares = st.one_of(st.sampled_from([0.0, 1e-9, 0.5, 1 - 1e-6]), st.floats(0.0, 0.999))
models = st.fixed_dictionaries(
    {"tokens": st.integers(2, 12), "dimension": dimensions, "anisotropy": shares, "residual": st.booleans()}
)


def below(scores):
    return scores[np.tri(len(scores), k=-1, dtype=bool)]


# --- Definition 1 ------------------------------------------------------------------------------------------


@given(st.integers(2, 7), st.randoms(use_true_random=False), st.booleans())
def test_margin_is_the_least_over_all_triples(tokens, random, ordered):
    scores = np.array([[float(random.randint(-9, 9)) for _ in range(tokens)] for _ in range(tokens)])
    if ordered:
        scores = np.cumsum(np.abs(scores), axis=1)
    triples = [(i, j, k) for i in range(tokens) for j in range(i + 1) for k in range(j)]
    assert layernorm.recency_margin(scores) == min(scores[i, j] - scores[i, k] for i, j, k in triples)
    masked = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    assert layernorm.recency_margin(masked) == layernorm.recency_margin(scores)


# --- κ, the factor of fluctuation --------------------------------------------------------------------------


@given(dimensions)
def test_fluctuation_without_anisotropy_is_a_bessel_function(dimension):
    """At α = 0 embeddings are uniform on a sphere in d − 1 dimensions, and the mean is a ₀F₁."""
    m = dimension - 1
    expected = mpmath.mpf(m - 1) / m * mpmath.hyp0f1(mpmath.mpf(m + 2) / 2, mpmath.mpf(dimension) / 4)
    assert layernorm.fluctuation_factor(dimension) == pytest.approx(float(expected), rel=1e-11)


@pytest.mark.parametrize(
    ("dimension", "anisotropy"),
    [(4, 0.3), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((5, 0.99), (16, 0.5), (64, 0.7)))],
)
def test_fluctuation_is_the_mean_over_fishers_density(dimension, anisotropy):
    """The density in r as an integral over the ratio of lengths, not the hypergeometric form of the code."""
    with mpmath.workdps(15):
        n, rho = dimension, mpmath.mpf(anisotropy)

        def density(r):
            inner = mpmath.quad(lambda t: (mpmath.cosh(t) - rho * r) ** (1 - n), [0, 1, 3, 12], maxdegree=4)
            front = (n - 2) / mpmath.pi * (1 - rho**2) ** (mpmath.mpf(n - 1) / 2)
            return front * (1 - r**2) ** (mpmath.mpf(n - 4) / 2) * inner

        def integrand(r):
            return density(r) * (1 - r**2) * mpmath.exp(mpmath.sqrt(n) * (r - rho)) / (1 - rho**2)

        expected = mpmath.quad(integrand, [-1, 0, rho, (1 + rho) / 2, 1], maxdegree=5)
    assert layernorm.fluctuation_factor(dimension, anisotropy) == pytest.approx(float(expected), rel=1e-9)


# --- the closed forms against 80 digits --------------------------------------------------------------------


def high_precision_scores(tokens, dimension, anisotropy, residual, factor):
    """S⁽²⁾ by the definition: weights of tokens, their inner products αJ + (1 − α)I, normalised."""
    a, root = mpmath.mpf(anisotropy), mpmath.sqrt(dimension)
    own, other = mpmath.exp(root), mpmath.mpf(factor) * mpmath.exp(a * root)
    g = 1 / mpmath.sqrt(dimension * (1 - a)) if residual else mpmath.mpf(0)
    weights = mpmath.matrix(tokens, tokens)
    for i in range(tokens):
        for k in range(i + 1):
            weights[i, k] = (own if k == i else other) / (own + i * other) + (g if k == i else 0)
    gram = mpmath.matrix(tokens, tokens)
    for i, j in itertools.product(range(tokens), repeat=2):
        gram[i, j] = a + (1 - a) * (i == j)
    products = weights * gram * weights.T
    return [
        [root * products[i, j] / mpmath.sqrt(products[i, i] * products[j, j]) for j in range(i + 1)]
        for i in range(tokens)
    ]


@given(models)
@settings(max_examples=30)
def test_corrected_scores_are_those_of_the_weights(model):
    with mpmath.workdps(80):
        factor = layernorm.fluctuation_factor(model["dimension"], model["anisotropy"])
        expected = high_precision_scores(**model, factor=factor)
        scores = layernorm.SecondLayer(**model).scores
        for i, row in enumerate(expected):
            np.testing.assert_allclose(scores[i, : i + 1], [float(s) for s in row], rtol=1e-12)
            assert (scores[i, i + 1 :] == -np.inf).all()
        rise = layernorm.SecondLayer(**model).log_rise
        last = [float(mpmath.log(score / expected[-1][0])) for score in expected[-1][:-1]]
        # relative to each difference, down to e^(−2·64): what subtraction in float64 cannot see
        np.testing.assert_allclose(rise[:-1], last, rtol=1e-9)


@given(models)
@settings(max_examples=30)
def test_published_forms_are_the_printed_ones(model):
    """Eqs. 33, 37, 41 and 42 by the letter, positions from 1."""
    tokens, dimension, alpha, residual = (
        model[name] for name in ("tokens", "dimension", "anisotropy", "residual")
    )
    with mpmath.workdps(80):
        a, d, gamma = mpmath.mpf(alpha), mpmath.mpf(dimension), int(residual)
        own, other = mpmath.exp(mpmath.sqrt(d)), mpmath.exp(a * mpmath.sqrt(d))
        big = [own + other * (i - 1) for i in range(1, tokens + 1)]
        keys, queries = [], []
        for i, D in enumerate(big, start=1):
            square = D**2 * (gamma**2 + 2 * a * gamma + a) + D * (1 - a) * (2 * gamma * own + other)
            length = mpmath.sqrt(d) * mpmath.sqrt(square + (1 - a) * (own**2 - own * other)) / D
            bracket = a * (d * gamma * D + own) + other + a * other * (i - 2)
            inner = d * (1 + d * gamma) * bracket / D
            keys.append(float(1 / length))
            queries.append(float(d * inner / length))
    np.testing.assert_allclose(layernorm.SecondLayer(**model, reading="published").keys, keys, rtol=1e-12)
    found = layernorm.SecondLayer(**model, reading="published").queries
    np.testing.assert_allclose(found, queries, rtol=1e-12)


@given(st.integers(2, 12), dimensions)
@settings(max_examples=30)
def test_equation_five_by_the_letter(tokens, dimension):
    scores = closed_scores(RecencyModel(tokens, dimension, 0.0), "published")
    with mpmath.workdps(80):
        root = mpmath.sqrt(dimension)
        e = mpmath.exp(root)
        for i, j in itertools.combinations(range(1, tokens + 1), 2):  # i < j here: query j, key i
            bottom = mpmath.sqrt(e**2 + j - 1) * mpmath.sqrt(e**2 + i - 1)
            assert scores[j - 1, i - 1] == pytest.approx(float(root * (e + i - 1) / bottom), rel=1e-12)
    assert (np.diag(scores) == math.sqrt(dimension)).all()


@given(models)
def test_recursion_of_means_gives_the_second_layer(model):
    """Without fluctuations (κ = 1) the closed form is the second step of the recursion."""
    first, second = layernorm.limit_scores(RecencyModel(**model, depth=2))
    np.testing.assert_allclose(below(first), model["anisotropy"] * math.sqrt(model["dimension"]), rtol=1e-12)
    means = layernorm.SecondLayer(**model, reading="means")
    np.testing.assert_allclose(below(second), below(means.scores), rtol=1e-11)


@given(st.integers(2, 12), st.integers(1, 4096))
def test_without_layernorm_by_recursion(tokens, dimension):
    model = RecencyModel(tokens, dimension, 0.0, "none", depth=2)
    scores, by_recursion = closed_scores(model), layernorm.limit_scores(model)[1]
    causal = np.tri(tokens, dtype=bool)
    np.testing.assert_allclose(scores[causal], by_recursion[causal], rtol=1e-12)
    published = closed_scores(model, "published")
    expected = [1 / (math.exp(1 / math.sqrt(dimension)) + i - 1) for i in range(1, tokens + 1)]
    assert [published[i, j] for i in range(tokens) for j in range(i)] == pytest.approx(
        [expected[i] for i in range(tokens) for j in range(i)], rel=1e-14
    )


# --- norms, heads, encodings, masks ------------------------------------------------------------------------


@given(st.integers(4, 4096))
@settings(max_examples=30)
def test_mean_squared_distance_is_the_mean_over_the_beta_law(dimension):
    # in the sine, whose density has no pole
    expected, _ = quad(
        lambda s: (2 - 2 * math.sqrt(1 - s * s)) * beta.pdf(s * s, 0.5, (dimension - 1) / 2) * 2 * s,
        1e-12,
        1,
        points=[min(1, c / math.sqrt(dimension)) for c in (0.5, 2, 6)],
        limit=200,
    )
    assert mean_squared_distance(dimension) == pytest.approx(expected, rel=1e-6)


# --- masks -------------------------------------------------------------------------------------------------


def test_shares_by_query_are_those_of_the_pairs_it_sees():
    model = RecencyModel(9, depth=2, mask=SlidingWindow(3))
    shares = shares_by_query(model, 1, 20)
    scores = layer_scores(model, embeddings(stream(1, "verify/kim/masks"), model, 20))[0][1]
    for query in range(9):
        seen = list(range(max(0, query - 2), query))
        expected = scores[:, query, seen[1]] > scores[:, query, seen[0]] if len(seen) == 2 else math.nan
        np.testing.assert_array_equal(shares[:, query], np.broadcast_to(expected, 20).astype(float))


def deviations(dimensions, quantity, reading="corrected", **model):
    """Of the closed form for three tokens, from the integrals."""
    off = []
    for d in dimensions:
        one = RecencyModel(3, d, depth=2, **model)
        exact = exact_scores(one, nodes=8)
        level = exact.scores.value[1, 2, 0]
        truth = level if quantity == "level" else exact.rises.value[1] / level
        off.append(deviation(closed_form(quantity, one, reading), truth).value)
    return np.array(off)


# --- rates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("alpha", "dimension"), [(0.25, 1024), (0.5, 2048), (0.75, 4096)])
def test_what_is_left_of_the_rise_falls_like_one_over_root_d(alpha, dimension, residual):
    """−α(1 − α)²/(2√d): weights and lengths are correlated, and the weights' exponent tilts them."""
    (off,) = deviations([dimension], "rise", anisotropy=alpha, residual=residual)
    limit = -alpha * (1 - alpha) ** 2 / (2 * math.sqrt(dimension))
    assert off == pytest.approx(limit, rel=0.3 if residual else 0.06)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.75])
def test_what_is_left_of_the_level_falls_like_one_over_d(alpha, residual):
    """E r = α − α(1 − α²)/(2d): the mean of a sample correlation."""
    off = deviations([512, 2048], "level", anisotropy=alpha, residual=residual)
    assert off * [512, 2048] == pytest.approx((1 - alpha**2) / 2, rel=0.02)


def test_equation_nineteen_over_root_d_is_right_to_a_power_of_three_halves():
    off = deviations([64, 256, 1024, 4096], "level", norm="none", anisotropy=0.0)
    slopes = np.diff(np.log(np.abs(off))) / math.log(4)
    np.testing.assert_allclose(slopes, -1.5, atol=0.06)


# --- readings that do not become right ---------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
def test_without_kappa_the_rise_stays_off_by_it(residual):
    off = deviations([1024], "rise", "means", residual=residual)
    kappa = layernorm.fluctuation_factor(1024, 0.5)
    assert off == pytest.approx(1 / kappa - 1, abs=0.003)
    assert abs(off[0]) > 50 * abs(deviations([1024], "rise", residual=residual)[0])


# --- the forms and how far they are off --------------------------------------------------------------------------


@given(st.integers(3, 12), st.integers(4, 900), st.floats(0.0, 0.95), st.booleans())
def test_rise_and_level_are_those_of_the_scores(tokens, dimension, alpha, residual):
    model = RecencyModel(tokens, dimension, alpha, residual=residual)
    for reading in layernorm.READINGS:
        row = SecondLayer.of(model, reading).scores[-1]
        assert closed_form("rise", model, reading) == pytest.approx(row[-2] / row[0] - 1, rel=1e-6, abs=1e-14)
        if alpha or residual:
            assert closed_form("level", model, reading) == row[0]


def test_a_deviation_has_the_error_of_what_was_found():
    off = deviation(3.0, Estimate(2.0, 0.1, 50))
    assert (off.value, off.se, off.n) == (0.5, pytest.approx(3 * 0.1 / 4), 50)
    assert deviation(3.0, 2.0).se == 0


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
    found = recency.node_scores(RecencyModel(tokens, dimension, 0.3, norm, residual, depth), x)
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
    found = exact_scores(RecencyModel(2, dimension, alpha, norm, depth=2)).scores
    assert found.value[1, 1, 0] == pytest.approx(float(expected), rel=1e-10)
    assert found.error[1, 1, 0] < 1e-11


# --- three tokens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "residual"), list(itertools.product(NORMS, (False, True))))
def test_the_noise_along_the_difference_decides_once(norm, residual):
    """S_21 − S_20 passes zero once, upwards: what the recency probability is computed by."""
    model = RecencyModel(3, 6, 0.4, norm, residual, 4)
    rules = [recency.lengths(model.freedom, 3)] * 2 + [recency.angles(model.freedom - 2, 5)]
    rules += [recency.lengths(model.freedom - 1, 3), recency.angles(model.freedom - 3, 4)]
    along = np.linspace(-recency.REACH, recency.REACH, 241)[:, None]
    for (*pair, length, around), weight in recency.blocks(rules):
        third, _ = recency._third(model, *pair)
        layers = recency.node_scores(
            model, third(along + 0 * weight, length * np.cos(around), length * np.sin(around))
        )
        above = recency._last_rise(layers) > 0
        assert (np.diff(above.astype(int), axis=1) >= 0).all()


def test_without_a_norm_the_second_layer_knows_no_order_of_three():
    """Token 2's output is symmetric in tokens 0 and 1, and the difference of theirs is along x_1 − x_0."""
    plain = RecencyModel(3, 8, 0.0, "none", depth=2)
    assert np.abs(recency_excess(plain, nodes=6).value).max() < 1e-13
    anisotropic = recency_excess(RecencyModel(3, 8, 0.4, "none", residual=True, depth=3), nodes=6)
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


@pytest.mark.parametrize(("dimension", "alpha", "norm", "residual"), GRID)
def test_integrals_are_what_simulation_finds(dimension, alpha, norm, residual):
    """Scores and rises of layers 2 and 3, and the excess of layer 2."""
    model = RecencyModel(3, dimension, alpha, norm, residual, depth=3)
    exact, excess = exact_scores(model), recency_excess(replace(model, depth=2))
    drawn = simulate_recency(model, 10**6, seed=4, threads=1)
    second, below = drawn.recency_probability[1], np.tri(3, k=-1, dtype=bool)
    for value, se, integral, error in (
        (second.value - 0.5, second.se, excess.value[1], excess.error[1]),
        *zip(drawn.rises.value[1:, 2, 1], drawn.rises.se[1:, 2, 1], exact.rises.value[1:], exact.rises.error[1:],
             strict=True),
        (drawn.mean_scores.value[:, below], drawn.mean_scores.se[:, below],
         exact.scores.value[:, below], exact.scores.error[:, below]),
    ):  # fmt: skip
        assert np.all(error < se)  # what is not sure of the integrals is less than the noise
        assert np.abs((value - integral) / np.hypot(se, error)).max() < 4


@pytest.mark.parametrize(("alpha", "residual"), [(0.3, False), (0.75, True)])
def test_the_error_is_no_less_than_what_more_nodes_change(alpha, residual):
    model = RecencyModel(3, 8, alpha, residual=residual, depth=2)
    few, many = (exact_scores(model, nodes) for nodes in (6, 10))
    below = np.tri(3, k=-1, dtype=bool)
    off = np.abs(few.scores.value - many.scores.value)[:, below]
    # errors are differences of two rules, and may by chance be small at one entry: the largest counts
    assert off.max() <= 2 * few.scores.error[:, below].max()
    assert abs(few.rises.value[1] - many.rises.value[1]) <= 2 * few.rises.error[1]
    assert many.rises.error[1] < few.rises.error[1]


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "argument"),
    [
        (RecencyModel(4, 16), "tokens"),
        (RecencyModel(3, 3), "dimension"),
        (RecencyModel(3, 16, temperature=2.0), "model"),
        (RecencyModel(3, 16, mask=SlidingWindow(2)), "model"),
    ],
)
def test_a_model_without_integral_or_closed_form_is_refused(model, argument):
    for form in (exact_scores, *([closed_scores, layernorm.limit_scores] if argument == "model" else [])):
        with pytest.raises(InvalidValueError, match=f"^{argument}: "):
            form(model)


def test_the_recency_probability_needs_three_tokens():
    with pytest.raises(InvalidValueError, match=r"^tokens: "):
        recency_excess(RecencyModel(2, 16))
