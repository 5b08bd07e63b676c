"""Kim et al. 2026: closed forms against mpmath and simulation, margins of statements against plain loops."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from posbias.core.errors import InvalidValueError
from posbias.core.machine import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, hidden_states, layer_scores, normalised
from posbias.theory.masks import SlidingWindow
from posbias_papers.closed_forms import layernorm
from posbias_papers.simulation.variants import Variant, draw_inputs, draw_weights, run_layers
from posbias_papers.statements import STATEMENTS, verify
from posbias_papers.statements import kim2026_layernorm as simulations
from posbias_papers.statements import kim2026_variants as variants
from posbias_papers.statements.kim2026_layernorm import simulated_scores
from posbias_papers.theorems import judge_statements

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
    assert layernorm.exhibits_recency(scores) == all(scores[i, j] > scores[i, k] for i, j, k in triples)
    masked = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    assert layernorm.recency_margin(masked) == layernorm.recency_margin(scores)


def test_equal_scores_are_no_recency_and_one_token_has_no_pair():
    assert not layernorm.exhibits_recency(np.zeros((3, 3)))
    assert layernorm.recency_margin(np.zeros((1, 1))) == math.inf


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


@given(shares)
def test_fluctuation_tends_to_that_of_a_normal_exponent(anisotropy):
    found = layernorm.fluctuation_factor(10**8, anisotropy)
    assert found == pytest.approx(math.exp((1 - anisotropy**2) ** 2 / 2), rel=3e-4)


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
        scores = layernorm.second_layer_scores(**model)
        for i, row in enumerate(expected):
            np.testing.assert_allclose(scores[i, : i + 1], [float(s) for s in row], rtol=1e-12)
            assert (scores[i, i + 1 :] == -np.inf).all()
        rise = layernorm.log_key_factors(**model)
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
    np.testing.assert_allclose(layernorm.key_factors(**model, reading="published"), keys, rtol=1e-12)
    found = layernorm.query_factors(**model, reading="published")
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


@given(models, st.sampled_from(["corrected", "published"]))
def test_scores_factor_into_query_and_key(model, reading):
    scores = layernorm.second_layer_scores(**model, reading=reading)
    keys = layernorm.key_factors(**model, reading=reading)
    queries = layernorm.query_factors(**model, reading=reading)
    np.testing.assert_allclose(below(scores), below(np.outer(queries, keys)), rtol=1e-14)
    assert (np.diag(scores) == math.sqrt(model["dimension"])).all()


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


@given(models)
def test_a_residual_weakens_recency_and_anisotropy_bounds_it(model):
    assume(model["tokens"] > 2)
    plain = layernorm.log_key_factors(**{**model, "residual": False})
    with_residual = layernorm.log_key_factors(**{**model, "residual": True})
    assert (with_residual[1:] < plain[1:]).all()
    assert (np.diff(with_residual) > 0).all()
    peak = 1 / (math.e * math.sqrt(model["dimension"]))
    published = layernorm.log_key_factors(**{**model, "residual": False}, reading="published")
    assert np.diff(published).max() <= peak * (1 + 1e-12)


# --- the simulation, and the closed forms against it -------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
def test_simulation_is_the_model_token_by_token(residual, normalised):
    samples, tokens, d, alpha = 2, 4, 8, 0.4
    found = simulated_scores(5, samples, tokens, d, alpha, residual=residual, layernorm=normalised, depth=3)
    rng = stream(5, "verify/kim/embeddings")
    shared, noise = rng.standard_normal((samples, 1, d)), rng.standard_normal((samples, tokens, d))
    for sample in range(samples):
        x = [
            [noise[sample, i, c] / d**0.5 + (alpha / (1 - alpha) / d) ** 0.5 * shared[sample, 0, c]
             for c in range(d)]
            for i in range(tokens)
        ]  # fmt: skip
        for layer in range(3):
            y = x
            if normalised:
                y = []
                for row in x:
                    mean = sum(row) / d
                    deviation = (sum((one - mean) ** 2 for one in row) / d) ** 0.5
                    y.append([(one - mean) / deviation for one in row])
            after = []
            for i in range(tokens):
                scores = [sum(a * b for a, b in zip(y[i], y[j], strict=True)) / d**0.5 for j in range(i + 1)]
                assert found[layer, sample, i, : i + 1] == pytest.approx(scores, rel=1e-9, abs=1e-12)
                total = sum(math.exp(s) for s in scores)
                mixed = [sum(math.exp(s) * y[j][c] for j, s in enumerate(scores)) / total for c in range(d)]
                after.append([m + residual * x[i][c] for c, m in enumerate(mixed)])
            x = after


GRID = [
    (256, 0.35, False), (256, 0.5, True), (256, 0.9, False), (576, 0.5, False), (1024, 0.5, True),
    (1024, 0.8, False),
]  # fmt: skip


@pytest.mark.parametrize(("dimension", "anisotropy", "residual"), GRID)
def test_rise_along_rows_is_that_of_the_simulation(dimension, anisotropy, residual):
    """Within 4 standard errors and 5/d; without κ it misses by more wherever κ is not near one."""
    model = {"tokens": 5, "dimension": dimension, "anisotropy": anisotropy, "residual": residual}
    first, second = simulated_scores(11, 1500, **model)
    change = second - first
    drawn = sum(change[:, i, i - 1] - change[:, i, 0] for i in (2, 3, 4))
    mean, error = drawn.mean(), drawn.std() / math.sqrt(drawn.size)

    def predicted(factor):
        with mpmath.workdps(60):
            rows = high_precision_scores(**model, factor=factor)
            return float(sum(rows[i][i - 1] - rows[i][0] for i in (2, 3, 4)))

    factor = layernorm.fluctuation_factor(dimension, anisotropy)
    assert abs(mean - predicted(factor)) < 4 * error + 5 / dimension * mean
    assert 4 * error < 0.3 * mean
    if factor > 1.2:
        assert mean - predicted(1.0) > 4 * error


def test_first_order_is_what_the_second_order_leaves():
    """Shrinking the weights by t leaves a rest of order t²: the part taken out is the derivative."""
    first, second = simulated_scores(4, 200, 5, 144, 0.3)
    change = np.stack([below(one) for one in second - first])
    linear = np.stack([below(one) for one in simulations.first_order(first, 144)])
    rest = np.abs(change - linear).mean() / np.abs(linear).mean()
    assert rest < 5 * np.exp(-0.7 * 12)
    assert rest > 0


@pytest.mark.parametrize(
    ("dimension", "anisotropy", "residual", "printed"),
    [(16, 0.5, False, 0.6382), (64, 0.5, False, 0.5544), (16, 0.5, True, 0.5931), (64, 0.5, True, 0.5457)],
)
def test_recency_probabilities_of_section_three(dimension, anisotropy, residual, printed):
    drawn = simulated_scores(1, 1500, 10, dimension, anisotropy, residual=residual)
    for scores, expected in zip(drawn, (0.5, printed), strict=True):
        share = simulations.recency_shares(scores)
        assert abs(share.mean() - expected) < 4 * share.std() / math.sqrt(share.size) + 5e-5


def test_recency_share_counts_every_triple():
    scores = np.random.default_rng(0).standard_normal((3, 6, 6))
    triples = list(itertools.combinations(range(6), 3))  # k < j < i
    expected = [np.mean([one[i, j] > one[i, k] for k, j, i in triples]) for one in scores]
    assert simulations.recency_shares(scores) == pytest.approx(expected, rel=1e-14)


# --- the statements ----------------------------------------------------------------------------------------


def test_what_the_paper_states_stands_and_misprints_are_claims_of_their_own():
    found = verify([one for one in STATEMENTS if one.source == "kim2026"], instances=8)
    judged = {
        one.id.removeprefix("kim2026/"): (one.verdict, one.claim.strength)
        for one in judge_statements(["kim2026"], {finding.statement.key: finding for finding in found})
        if one.claim.provenance == "paper"
    }
    stands = ("theorem-1", "proposition-1", "proposition-2", "proposition-3")
    misprints = ("proposition-3-proof", "equation-19")
    observed = {
        "section-3-shared-components": ("holds", "observation"),
        "section-4-heads": ("holds", "observation"),
        "section-4-relative-encodings": ("holds", "hedged"),
    }
    assert judged == observed | dict.fromkeys(stands, ("holds", "theorem")) | dict.fromkeys(
        misprints, ("fails", "constant")
    )


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: layernorm.second_layer_scores(0, 16), "tokens"),
        (lambda: layernorm.second_layer_scores(4, 3), "dimension"),
        (lambda: layernorm.second_layer_scores(4, 0, reading="published"), "dimension"),
        (lambda: layernorm.key_factors(4, 16, 1.0), "anisotropy"),
        (lambda: layernorm.key_factors(4, 16, -0.1, reading="published"), "anisotropy"),
        (lambda: layernorm.fluctuation_factor(16, math.nan), "anisotropy"),
        (lambda: layernorm.second_layer_scores(4, 16, reading="printed"), "reading"),
        (lambda: layernorm.limit_scores(0, 4, 16), "depth"),
        (lambda: layernorm.scores_without_layernorm(4, 0), "dimension"),
        (lambda: layernorm.recency_margin(np.zeros((2, 3))), "scores"),
        (lambda: layernorm.recency_margin(np.full((2, 2), np.nan)), "scores"),
    ],
)
def test_bad_arguments_are_named(call, argument):
    with pytest.raises(InvalidValueError, match=f"^{argument}: "):
        call()


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
    assert variants.mean_squared_distance(dimension) == pytest.approx(expected, rel=1e-6)


@given(st.integers(3, 40), st.integers(0, 99))
def test_the_distance_is_decided_by_the_share_along_equal_entries(dimension, seed):
    x = np.random.default_rng(seed).normal(0.3, 1, dimension)
    near = normalised(RecencyModel(2, dimension), x[None, None])[0, 0] / math.sqrt(dimension)
    sine = x.sum() / math.sqrt(dimension) / math.sqrt(sum(one * one for one in x))
    apart = sum((a - b) ** 2 for a, b in zip(near, x / np.linalg.norm(x), strict=True))
    assert apart == pytest.approx(2 - 2 * math.sqrt(1 - sine**2), abs=1e-12)


@given(st.integers(2, 5), st.integers(3, 8), st.integers(0, 99))
def test_cosines_are_those_of_every_pair(tokens, dimension, seed):
    x = np.random.default_rng(seed).normal(size=(tokens, dimension))
    expected = [
        x[i] @ x[j] / math.sqrt((x[i] @ x[i]) * (x[j] @ x[j])) for i in range(tokens) for j in range(i)
    ]
    assert variants.cosines(x) == pytest.approx(expected, abs=1e-12)


@given(
    st.sampled_from(["none", "layernorm", "rmsnorm"]), st.booleans(), st.sampled_from(["pre", "post"]),
    st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=30)
def test_scores_are_inner_products_of_the_hidden_states(norm, residual, order, seed):
    model = RecencyModel(4, 6, 0.3, norm, residual, 3, order)
    x = embeddings(stream(seed, "test"), model, 3)
    scores, attention = layer_scores(model, x)
    states = hidden_states(model, x)
    assert (states[0] == x).all()
    for layer, state in enumerate(states):
        y = normalised(model, state) if order == "pre" else state
        np.testing.assert_allclose(scores[layer], y @ y.swapaxes(1, 2) / math.sqrt(6), rtol=1e-12)
        if layer < 2:
            mixed = np.einsum("sij,sjd->sid", attention[layer], y) + residual * state
            mixed = normalised(model, mixed) if order == "post" else mixed
            np.testing.assert_allclose(states[layer + 1], mixed, rtol=1e-10, atol=1e-12)


@given(st.integers(3, 7), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=30)
def test_what_is_beyond_distance_is_the_last_query_less_the_first(tokens, heads, seed):
    scores = np.random.default_rng(seed).normal(size=(2, heads, tokens, tokens))
    for one, found in zip(scores, variants.beyond_distance(scores), strict=True):
        last = tokens - 1
        apart = [one[h, last, last - away] - one[h, away, 0] for h in range(heads) for away in range(1, last)]
        assert found == pytest.approx(sum(apart) / len(apart), rel=1e-9, abs=1e-12)


@given(st.integers(3, 7), st.integers(0, 99))
@settings(max_examples=30)
def test_scores_of_distance_alone_have_nothing_beyond_it(tokens, seed):
    of_distance = np.random.default_rng(seed).normal(size=2 * tokens)
    place = np.arange(tokens)
    scores = of_distance[place[:, None] - place][None, None]
    assert variants.beyond_distance(scores) == pytest.approx(0.0, abs=1e-12)
    assert (variants.beyond_distance(scores + 0.1 * place[:, None]) > 0).all()


def test_the_second_layer_is_that_of_a_network_given_all_inputs():
    variant = Variant(RecencyModel(5, 8, depth=2), heads=2, positional="alibi", direction="input")
    scores, content = variants.second_layer(variant, 3, 9)
    (x,) = draw_inputs(variant, 3, 0, 9)
    for layer, (score, bare, _) in enumerate(run_layers(x, variant, draw_weights(variant, 3, 0))):
        np.testing.assert_array_equal(scores[layer], score)
        np.testing.assert_array_equal(content[layer], bare)


# --- masks -------------------------------------------------------------------------------------------------


def test_shares_by_query_are_those_of_the_pairs_it_sees():
    model = RecencyModel(9, depth=2, mask=SlidingWindow(3))
    shares = variants.shares_by_query(model, 1, 20)
    scores = layer_scores(model, embeddings(stream(1, "verify/kim/masks"), model, 20))[0][1]
    for query in range(9):
        seen = list(range(max(0, query - 2), query))
        expected = scores[:, query, seen[1]] > scores[:, query, seen[0]] if len(seen) == 2 else math.nan
        np.testing.assert_array_equal(shares[:, query], np.broadcast_to(expected, 20).astype(float))
