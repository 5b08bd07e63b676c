"""Masks and their graphs: every mask against its definition, every graph law against brute force."""

import itertools
from math import comb

import architectures
import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refused

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.graph import centre_nodes, reachable, walks
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

LONGEST = 24

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


@st.composite
def cases(draw, longest=LONGEST):
    """A text, and a mask, a pattern of up to three whose prefixes it holds, or an architecture of that pattern."""
    tokens = draw(st.integers(1, longest))
    masks = architectures.masks(30, tokens)
    patterns = st.lists(masks, min_size=1, max_size=3)
    return draw(st.one_of(masks, patterns, patterns.map(built))), tokens


def built(masks):
    """Two layers of each mask, by turns."""
    return Architecture(2 * len(masks), tuple(Layer(mask=mask) for mask in masks))


def of(pattern):
    if isinstance(pattern, Architecture):
        return [layer.mask for layer in pattern.layers]
    return [pattern] if isinstance(pattern, MASKS) else pattern


def adjacency(mask, tokens):
    """The pairs (query, key) of a mask by its definition, one by one."""
    admits = DEFINITIONS[type(mask)]
    return np.array([[admits(mask, i, j, tokens) for j in range(tokens)] for i in range(tokens)], dtype=bool)


def steps(pattern, tokens, layers):
    """The pairs of the first so many layers, bottom first."""
    every = [adjacency(mask, tokens) for mask in of(pattern)]
    return [every[layer % len(every)] for layer in range(layers)]


def closure(pattern, tokens):
    """Warshall's algorithm on the union of the layers."""
    reached = np.any([adjacency(mask, tokens) for mask in of(pattern)], axis=0)
    for k in range(tokens):
        reached |= reached[:, [k]] & reached[[k], :]
    return reached


@pytest.mark.parametrize("kind", MASKS)
@given(tokens=st.integers(1, LONGEST), data=st.data())
@examples(200)
def test_what_a_mask_says_to_engines_is_what_its_definition_admits(kind, tokens, data):
    mask = data.draw(architectures.masks(30, tokens, kind))
    allowed, reached = adjacency(mask, tokens), closure(mask, tokens)
    np.testing.assert_array_equal(mask.allowed(tokens), allowed)
    assert allowed.diagonal().all()
    i, j = np.nonzero(allowed)
    assert mask.farthest(tokens) == (i - j).max()
    assert lookahead(mask, tokens) >= (j - i).max()
    assert isinstance(mask, CustomMask | Prefix) or lookahead(mask, tokens) == (j - i).max()
    seen = bounds(mask, tokens)
    for query in range(tokens):
        last = np.flatnonzero(reached[query]).max()
        assert mask.reach(query, tokens) >= last
        assert isinstance(mask, CustomMask) or mask.reach(query, tokens) == last
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


@given(cases(9), st.integers(0, 6))
def test_walks_are_counted_as_by_matrix_powers(case, depth):
    """Products of matrices of Python integers, lowest layer rightmost."""
    pattern, tokens = case
    expected = np.eye(tokens, dtype=int).astype(object)
    for step in steps(pattern, tokens, depth):
        expected = step.astype(int).astype(object) @ expected
    found = walks(pattern, tokens, depth)
    np.testing.assert_array_equal(found, expected)
    assert all(type(number) is int for number in found.flat)


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(0, 60))
def test_causal_walks_have_their_closed_form(tokens, layer):
    """C(t + i − j, i − j) walks of length t + 1, far beyond 64 bits; under a full mask n^t."""
    found = walks(Causal(), tokens, layer + 1)
    for i, j in itertools.product(range(tokens), repeat=2):
        assert found[i, j] == (comb(layer + i - j, i - j) if j <= i else 0)
    assert walks(Full(), tokens, layer + 1)[-1, 0] == tokens**layer


@given(cases(), st.integers(0, 30))
def test_reach_and_centre_nodes_are_those_of_the_pairs(case, layers):
    pattern, tokens = case
    after = np.eye(tokens, dtype=bool)
    for step in steps(pattern, tokens, layers):
        after = (step.astype(int) @ after.astype(int)) > 0
    np.testing.assert_array_equal(reachable(pattern, tokens, layers), after)
    whole = closure(pattern, tokens)
    np.testing.assert_array_equal(reachable(pattern, tokens), whole)
    np.testing.assert_array_equal(reachable(pattern, tokens, 10**9), whole)
    np.testing.assert_array_equal(centre_nodes(pattern, tokens), np.flatnonzero(whole.all(axis=0)))


@given(st.integers(2, 40), st.integers(2, 200))
def test_a_window_takes_the_layers_of_theorem_4_2(width, tokens):
    layers = -(-(tokens - 1) // (width - 1))
    first = [reachable(SlidingWindow(width), tokens, depth)[-1, 0] for depth in (layers - 1, layers)]
    assert first == [False, True]


def test_what_does_not_fit_is_refused_by_its_name():
    for act in (reachable, centre_nodes, lambda *given: walks(*given, 2)):
        refused("tokens", lambda act=act: act(Causal(), 0), lambda act=act: act(Causal(), 2.0))
        refused("length", lambda act=act: act([Causal(), Prefix(5)], 4))
        for pattern in ([], "causal", Causal):
            refused("pattern", lambda act=act, pattern=pattern: act(pattern, 4))
    refused("last", lambda: Fixed(2, 3))
    refused("depth", lambda: walks(Causal(), 4, -1), lambda: walks(Causal(), 4, 1.5))
    refused("layers", lambda: reachable(Causal(), 4, -2))
