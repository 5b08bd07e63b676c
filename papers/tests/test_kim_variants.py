"""Heads, encodings, parts of a layer and lengths as Kim et al. speak of them; mistakes that are caught."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.seeds import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias.theory.masks import SlidingWindow
from posbias_papers.simulation.variants import Variant, draw_inputs, draw_weights, run_layers
from posbias_papers.statements import kim2026_variants as variants


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
