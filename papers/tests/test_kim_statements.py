"""Kim et al. 2026: closed forms against mpmath and simulation, margins of statements against plain loops."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from posbias.core.machine import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias.theory.masks import SlidingWindow
from posbias_papers.closed_forms import layernorm
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
    scores = layernorm.isotropic_scores(tokens, dimension, reading="published")
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
    weight = layernorm.cross_weight(model["dimension"], model["anisotropy"], reading="published")
    layers = layernorm.limit_scores(2, **model)
    dimension, alpha = model["dimension"], model["anisotropy"]
    np.testing.assert_allclose(below(layers[0]), alpha * math.sqrt(dimension), rtol=1e-12)
    g = layernorm.residual_coefficient(dimension, alpha, residual=model["residual"])
    i = np.arange(model["tokens"])
    own, others = g + 1 / (1 + i * weight), weight / (1 + i * weight)
    norms = alpha * (1 + g) ** 2 + (1 - alpha) * (own**2 + i * others**2)
    inner = (1 + g) * (alpha * (1 + g) + (1 - alpha) * others)
    expected = math.sqrt(dimension) * inner[:, None] / np.sqrt(np.outer(norms, norms))
    np.testing.assert_allclose(below(layers[1]), below(expected), rtol=1e-11)


@given(st.integers(2, 12), st.integers(1, 4096))
def test_without_layernorm_by_recursion(tokens, dimension):
    scores = layernorm.scores_without_layernorm(tokens, dimension)
    by_recursion = layernorm.limit_scores(2, tokens, dimension, layernorm=False)[1]
    causal = np.tri(tokens, dtype=bool)
    np.testing.assert_allclose(scores[causal], by_recursion[causal], rtol=1e-12)
    published = layernorm.scores_without_layernorm(tokens, dimension, reading="published")
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
