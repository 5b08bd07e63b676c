"""What Kim et al. say beyond their statements: exact distances, cosines by hand, and mistakes that are caught."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from posbias.core.seeds import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, hidden_states, layer_scores, normalised
from posbias_papers.statements import kim2026_variants as extensions


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
    assert extensions.mean_squared_distance(dimension) == pytest.approx(expected, rel=1e-6)


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
    assert extensions.cosines(x) == pytest.approx(expected, abs=1e-12)


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
