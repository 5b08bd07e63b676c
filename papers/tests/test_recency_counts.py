"""Recency and adjacency counts of given scores against their definition, pair by pair."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias_papers.measurement.wins import wins


def by_definition(logits):
    """Triples, wins and the same of neighbours, [head][query], by three loops over the keys that are seen."""
    heads, queries, _ = logits.shape
    counts = np.zeros((4, heads, queries))
    for head in range(heads):
        for i in range(queries):
            row = logits[head, i]
            for j in range(i):
                for k in range(j):
                    if np.isfinite(row[j]) and np.isfinite(row[k]):
                        counts[:2, head, i] += 1, row[j] > row[k]
                        if j == i - 1:
                            counts[2:, head, i] += 1, row[j] > row[k]
    return counts


def scores(seed, heads, tokens, levels, window):
    """Scores with many ties where there are few `levels`, hidden after the query and beyond the window."""
    drawn = np.random.default_rng(seed).integers(levels, size=(heads, tokens, tokens)).astype(float)
    distance = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    return np.where((distance >= 0) & (distance < window), drawn, -np.inf)


@given(
    st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 24), st.sampled_from([2, 5, 10**9]), st.data()
)
@examples(60)
def test_wins_counted_by_merging_are_those_of_the_definition(seed, heads, tokens, levels, data):
    logits = scores(seed, heads, tokens, levels, data.draw(st.integers(1, tokens)))
    found, expected = wins(logits), by_definition(logits)
    np.testing.assert_array_equal(found.triples, expected[0])
    np.testing.assert_array_equal(found.wins, expected[1])
    np.testing.assert_array_equal(found.neighbour_triples, expected[2])
    np.testing.assert_array_equal(found.neighbour_wins, expected[3])
    some = expected[0].sum(axis=1) > 0
    shares = expected[1].sum(axis=1)[some] / expected[0].sum(axis=1)[some]
    np.testing.assert_allclose(found.recency[some], shares, rtol=1e-14)


def test_scores_that_rise_towards_the_query_have_probability_one_and_falling_ones_nought():
    distance = np.subtract.outer(np.arange(9), np.arange(9)).astype(float)
    rising, falling = (np.where(distance >= 0, sign * distance, -np.inf)[None] for sign in (-1, 1))
    assert (wins(rising).recency, wins(rising).adjacency) == (1.0, 1.0)
    assert (wins(falling).recency, wins(falling).adjacency) == (0.0, 0.0)
    np.testing.assert_array_equal(wins(rising).by_query, [np.nan, np.nan, *[1.0] * 7])


def test_equal_scores_win_nothing_and_two_tokens_have_no_triple():
    assert wins(np.zeros((1, 6, 6))).recency == pytest.approx(0.0)
    assert np.isnan(wins(np.zeros((2, 2, 2))).recency).all()


def test_single_precision_is_counted_as_it_is():
    logits = np.random.default_rng(1).normal(size=(2, 40, 40)).astype(np.float32)
    logits[:, ~np.tri(40, dtype=bool)] = -np.inf
    np.testing.assert_array_equal(wins(logits).wins, by_definition(logits)[1])
