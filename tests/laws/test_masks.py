"""Masks and their graphs: every mask against its definition, every graph law against brute force."""

import itertools
from math import comb

import architectures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.graph import (
    centre_nodes,
    graph,
    layers_to_reach,
    reachable,
    walks,
)
from posbias.theory.masks import (
    MASKS,
    BlockSparse,
    Causal,
    Chunked,
    CustomMask,
    Dilated,
    Fixed,
    Full,
    Prefix,
    SlidingWindow,
    bounds,
    lookahead,
)

SHORTEST, LONGEST = 3, 24
"""Prefixes are no longer than the shortest text."""

DEFINITIONS = {
    Causal: lambda mask, i, j, n: j <= i,
    SlidingWindow: lambda mask, i, j, n: j <= i and (i - j < mask.width or j < mask.sinks),
    Prefix: lambda mask, i, j, n: j <= i or max(i, j) < mask.length,
    Full: lambda mask, i, j, n: True,
    Chunked: lambda mask, i, j, n: j <= i and j // mask.width == i // mask.width,
    Dilated: lambda mask, i, j, n: (
        j <= i and (i - j) % mask.stride == 0 and (mask.width is None or (i - j) // mask.stride < mask.width)
    ),
    BlockSparse: lambda mask, i, j, n: (
        j <= i
        and (
            i // mask.block - j // mask.block < mask.local
            or j // mask.block < mask.first
            or (mask.stride is not None and (j // mask.block + 1) % mask.stride == 0)
        )
    ),
    Fixed: lambda mask, i, j, n: (
        j <= i and (i // mask.block == j // mask.block or j % mask.block >= mask.block - mask.last)
    ),
    CustomMask: lambda mask, i, j, n: bool(
        mask.rule.content(i, j) if callable(mask.rule.content) else mask.rule.content[i, j]
    ),
}
masks = architectures.masks(30, SHORTEST)
texts = st.integers(SHORTEST, LONGEST)
patterns = st.one_of(masks, st.lists(masks, min_size=1, max_size=3))


def adjacency(mask, tokens):
    """The pairs (query, key) of a mask by its definition, one by one."""
    admits = DEFINITIONS[type(mask)]
    return np.array([[admits(mask, i, j, tokens) for j in range(tokens)] for i in range(tokens)], dtype=bool)


def of(pattern):
    return [pattern] if isinstance(pattern, MASKS) else pattern


def counted(pattern, tokens, depth):
    """Walks by plain products of matrices of Python integers, lowest layer rightmost."""
    product = [[int(i == j) for j in range(tokens)] for i in range(tokens)]
    for layer in range(depth):
        step = adjacency(of(pattern)[layer % len(of(pattern))], tokens)
        product = [
            [sum(product[k][j] for k in range(tokens) if step[i, k]) for j in range(tokens)]
            for i in range(tokens)
        ]
    return np.array(product, dtype=object)


def enumerated(pattern, tokens, depth):
    """Walks one by one."""
    steps = [adjacency(of(pattern)[layer % len(of(pattern))], tokens) for layer in range(depth)]
    found = np.zeros((tokens, tokens), dtype=object)
    for path in itertools.product(range(tokens), repeat=depth + 1):
        found[path[-1], path[0]] += all(steps[t][path[t + 1], path[t]] for t in range(depth))
    return found


def closure(pattern, tokens):
    """Warshall's algorithm on the union of the layers."""
    reached = np.any([adjacency(mask, tokens) for mask in of(pattern)], axis=0)
    for k in range(tokens):
        reached |= reached[:, [k]] & reached[[k], :]
    return reached


def test_every_mask_is_defined():
    assert set(DEFINITIONS) == set(MASKS), "a new mask needs a definition here"


@given(masks, texts)
def test_a_mask_admits_what_its_definition_says(mask, tokens):
    np.testing.assert_array_equal(mask.allowed(tokens), adjacency(mask, tokens))
    assert mask.allowed(tokens).diagonal().all()


@given(masks, texts, st.data())
def test_reach_and_farthest_are_those_of_the_pairs(mask, tokens, data):
    query = data.draw(st.integers(0, tokens - 1))
    assert mask.reach(query, tokens) == np.flatnonzero(closure(mask, tokens)[query]).max()
    i, j = np.nonzero(adjacency(mask, tokens))
    assert mask.farthest(tokens) == (i - j).max()


@given(masks, texts)
def test_what_a_mask_says_to_engines_is_what_it_admits(mask, tokens):
    allowed = adjacency(mask, tokens)
    i, j = np.nonzero(allowed)
    assert lookahead(mask, tokens) >= (j - i).max()
    assert isinstance(mask, CustomMask | Prefix) or lookahead(mask, tokens) == (j - i).max()
    seen = bounds(mask, tokens)
    for query in range(tokens):
        keys = np.flatnonzero(allowed[query])
        if seen is not None:
            run = np.arange(seen.low[query], seen.high[query] + 1)
            first = np.arange(min(seen.always, seen.low[query]))
            np.testing.assert_array_equal(np.concatenate([first, run]), keys)
        if hasattr(mask, "keys"):
            np.testing.assert_array_equal(mask.keys(query, tokens), keys)
    if hasattr(mask, "pieces"):
        starts = np.searchsorted(mask.pieces(tokens), np.arange(tokens), side="right")
        np.testing.assert_array_equal(allowed, np.tri(tokens, dtype=bool) & np.equal.outer(starts, starts))


@given(st.integers(0, 40), st.integers(1, LONGEST))
def test_a_window_of_the_whole_text_is_causal(beyond, tokens):
    mask = SlidingWindow(tokens + beyond)
    np.testing.assert_array_equal(mask.allowed(tokens), Causal().allowed(tokens))
    assert (graph(mask, tokens) != graph(Causal(), tokens)).nnz == 0


@given(patterns, texts)
def test_the_graph_has_an_edge_for_each_admitted_pair(pattern, tokens):
    made = graph(pattern, tokens)
    assert made.format == "csr"
    assert made.dtype == bool
    union = np.any([adjacency(mask, tokens) for mask in of(pattern)], axis=0)
    np.testing.assert_array_equal(made.toarray(), union.T)
    assert made.nnz == union.sum()


@given(patterns, st.integers(SHORTEST, 9), st.integers(0, 6))
def test_walks_are_counted_as_by_matrix_powers(pattern, tokens, depth):
    found = walks(pattern, tokens, depth)
    np.testing.assert_array_equal(found, counted(pattern, tokens, depth))
    assert all(type(number) is int for number in found.flat)


@settings(max_examples=15)
@given(patterns, st.integers(SHORTEST, 4), st.integers(0, 4))
def test_walks_are_those_that_can_be_listed(pattern, tokens, depth):
    np.testing.assert_array_equal(walks(pattern, tokens, depth), enumerated(pattern, tokens, depth))


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(0, 60))
def test_causal_walks_have_their_closed_form(tokens, layer):
    """C(t + i − j, i − j) walks of length t + 1, far beyond 64 bits."""
    found = walks(Causal(), tokens, layer + 1)
    for i, j in itertools.product(range(tokens), repeat=2):
        assert found[i, j] == (comb(layer + i - j, i - j) if j <= i else 0)


def test_walks_beyond_floating_point_are_exact():
    found = walks(Full(), 50, 100)
    assert found[7, 3] == 50**99
    assert walks(Causal(), 60, 40)[59, 0] == comb(39 + 59, 59)


@given(patterns, texts, st.integers(0, 30))
def test_reachable_are_the_ends_of_walks(pattern, tokens, layers):
    expected = np.eye(tokens, dtype=bool)
    for layer in range(layers):
        step = adjacency(of(pattern)[layer % len(of(pattern))], tokens)
        expected = (step.astype(int) @ expected.astype(int)) > 0
    np.testing.assert_array_equal(reachable(pattern, tokens, layers), expected)


@given(patterns, texts)
def test_reachable_ever_is_the_closure(pattern, tokens):
    np.testing.assert_array_equal(reachable(pattern, tokens), closure(pattern, tokens))


def test_a_long_chain_is_reached_to_its_end():
    np.testing.assert_array_equal(reachable(SlidingWindow(2), 300), np.tri(300, dtype=bool))
    np.testing.assert_array_equal(
        reachable(SlidingWindow(2), 300, 10**9), reachable(SlidingWindow(2), 300, 299)
    )


@given(patterns, texts)
def test_centre_nodes_reach_every_node(pattern, tokens):
    expected = np.flatnonzero(closure(pattern, tokens).all(axis=0))
    np.testing.assert_array_equal(centre_nodes(pattern, tokens), expected)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (Causal(), [0]),
        (SlidingWindow(2), [0]),
        (SlidingWindow(1), []),
        (SlidingWindow(1, sinks=2), [0]),
        (Prefix(3), [0, 1, 2]),
        (Full(), list(range(10))),
        (Chunked(10), [0]),
        (Chunked(9), []),
        ([Chunked(4), Causal()], [0]),
        (Dilated(2), []),
        (BlockSparse(3), []),
        (BlockSparse(3, 2), [0]),
        (BlockSparse(3, first=1), [0]),
        ([SlidingWindow(1), SlidingWindow(1), Causal()], [0]),
    ],
)
def test_centre_nodes_are_those_of_the_paper(mask, expected):
    """Wu et al. 2025, Figure 1: the first token, or the prefix."""
    assert centre_nodes(mask, 10).tolist() == expected


def test_one_token_is_its_own_centre():
    for mask in (Causal(), SlidingWindow(1), Prefix(1), Full()):
        assert centre_nodes(mask, 1).tolist() == [0]
        assert reachable(mask, 1).tolist() == [[True]]
        assert walks(mask, 1, 3).tolist() == [[1]]
        assert layers_to_reach(mask, 1) == 0


@given(patterns, texts, st.data())
def test_layers_to_reach_is_the_first_layer_that_does(pattern, tokens, data):
    position = st.integers(-tokens, tokens - 1)
    query, key = data.draw(position), data.draw(position)
    steps = (reachable(pattern, tokens, layers)[query, key] for layers in range(3 * tokens + 1))
    expected = next((layers for layers, reached in enumerate(steps) if reached), None)
    assert layers_to_reach(pattern, tokens, query, key) == expected


@given(st.integers(2, 40), st.integers(2, 200))
def test_a_window_takes_the_layers_of_theorem_4_2(width, tokens):
    assert layers_to_reach(SlidingWindow(width), tokens) == -(-(tokens - 1) // (width - 1))


@given(patterns, st.integers(SHORTEST, 12))
def test_an_architecture_is_the_pattern_of_its_layers(pattern, tokens):
    stack = of(pattern)
    built = Architecture(2 * len(stack), tuple(Layer(mask=mask) for mask in stack))
    assert (graph(built, tokens) != graph(stack, tokens)).nnz == 0
    np.testing.assert_array_equal(reachable(built, tokens, 3), reachable(stack, tokens, 3))
    np.testing.assert_array_equal(centre_nodes(built, tokens), centre_nodes(stack, tokens))
    np.testing.assert_array_equal(walks(built, tokens, 4), walks(stack, tokens, 4))


EVERY = {
    "graph": graph,
    "reachable": reachable,
    "centre_nodes": centre_nodes,
    "walks": lambda pattern, tokens: walks(pattern, tokens, 2),
    "layers_to_reach": layers_to_reach,
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("field", "pattern", "tokens"),
    [
        ("tokens", Causal(), 0),
        ("tokens", Causal(), 2.0),
        ("length", Prefix(5), 4),
        ("length", [Causal(), Prefix(5)], 4),
        ("pattern", [], 4),
        ("pattern", "causal", 4),
        ("pattern", Causal, 4),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(name, field, pattern, tokens):
    with pytest.raises(InvalidValueError, match=f"^{field}: "):
        EVERY[name](pattern, tokens)


def test_wrong_depths_and_positions_are_named():
    for name, call in (
        ("depth", lambda: walks(Causal(), 4, -1)),
        ("depth", lambda: walks(Causal(), 4, 1.5)),
        ("layers", lambda: reachable(Causal(), 4, -2)),
        ("query", lambda: layers_to_reach(Causal(), 4, query=4)),
        ("key", lambda: layers_to_reach(Causal(), 4, key=-5)),
    ):
        with pytest.raises(InvalidValueError, match=f"^{name}: "):
            call()
