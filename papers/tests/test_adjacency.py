"""The adjacency probability against loops over pairs of keys, drawn and controlled by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.machine import sequence
from posbias.simulation import RecencyModel, simulate_recency
from posbias.simulation.token_space import STREAM, block_size, embeddings, layer_scores


def adjacent_shares(scores):
    """Of every sample and layer, how often the key before the query scores higher than an earlier one."""
    depth, samples, tokens, _ = scores.shape
    shares = np.zeros((depth, samples))
    for layer in range(depth):
        for sample in range(samples):
            one = scores[layer, sample]
            pairs = [(i, k) for i in range(2, tokens) for k in range(i - 1)]
            shares[layer, sample] = sum(one[i, i - 1] > one[i, k] for i, k in pairs) / len(pairs)
    return shares


@given(
    st.integers(3, 7), st.integers(3, 12), st.floats(0, 0.9), st.sampled_from(["layernorm", "rmsnorm", "none"]),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=25)
def test_it_is_the_share_of_keys_that_the_neighbour_beats(tokens, dimension, alpha, norm, residual, seed):
    model = RecencyModel(tokens, dimension, alpha, norm, residual, depth=3)
    samples = 40
    rng = np.random.default_rng(sequence(seed, STREAM, 0))
    shares = adjacent_shares(layer_scores(model, embeddings(rng, model, block_size(model))[:samples])[0])
    found = simulate_recency(model, samples, seed=seed, engine="token_space").adjacency_probability
    assert found[0].value == pytest.approx(shares[0].mean(), rel=1e-12)
    for layer in (1, 2):
        slope = np.cov(shares[layer], shares[0])[0, 1] / shares[0].var(ddof=1) if np.ptp(shares[0]) else 0.0
        expected = shares[layer].mean() - slope * (shares[0].mean() - 0.5)
        assert found[layer].value == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_two_tokens_have_none():
    result = simulate_recency(RecencyModel(tokens=2), 10)
    with pytest.raises(InvalidValueError, match=r"^tokens: "):
        print(result.adjacency_probability)
