"""A mask as a directed graph: an edge j → i where query i may attend to key j (Wu et al. 2025, §3).

Through several layers information takes a walk, one edge a layer, so that who can influence whom is
reachability, and the tokens that can influence all are the centre nodes (Definition 3.1). Every function takes
a mask, a pattern of masks that repeats up the stack (bottom first), or an architecture, whose layers are the
pattern. Masks alone speak here: neither mixing nor logits. Every token attends to itself, so what is reached
stays reached.

The keys of a query lie in a few runs of neighbours. With sums of rows taken once, a layer gathers each run as
one difference: O(n) a column, whatever the mask.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int, Shaped

from posbias.core import memory
from posbias.core.arguments import position, shortened, whole
from posbias.core.errors import InvalidValueError, MissingPackageError
from posbias.core.spec import MOST_LAYERS
from posbias.theory.architecture import Architecture
from posbias.theory.masks import MASKS, Mask, bounds

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Pattern = Mask | Sequence[Mask] | Architecture
"""A mask, masks that repeat up the stack (bottom first), or an architecture."""
PIECE = 1 << 20
"""Entries that are gathered at a time."""
NARROW = 64
"""Columns from which on rows are summed one by one."""


@dataclass(frozen=True)
class Runs:
    """The keys of every query as runs start … stop − 1, ordered by query, then key; `first` run of each query."""

    first: Int[np.ndarray, "query"]
    start: Int[np.ndarray, "run"]
    stop: Int[np.ndarray, "run"]

    @property
    def edges(self) -> int:
        """The number of admitted pairs."""
        return int((self.stop - self.start).sum())


def graph(pattern: Pattern, tokens: int) -> "csr_array":
    """The graph as an adjacency matrix: entry (j, i) is True where query i may attend to key j.

    Sparse, tokens × tokens, boolean, the orientation of `scipy.sparse.csgraph` (the transpose of `allowed`);
    a pattern's edges are those of all its layers together. Memory grows with the edges: tokens·width for a
    window. Raises `InvalidValueError` for tokens < 1, a pattern that is none, a prefix longer than the text,
    or more edges than memory can hold. Source: Wu et al. 2025, §3.
    """
    masks = masks_of(pattern, tokens)
    every = {mask: runs(mask, tokens) for mask in masks}
    memory.require(16 * sum(one.edges for one in every.values()), "tokens", tokens)
    matrices = (_adjacency(one, tokens) for one in every.values())
    return functools.reduce(operator.add, matrices).T.tocsr()


def networkx_graph(pattern: Pattern, tokens: int) -> Any:
    """The same graph as a `networkx.DiGraph` whose nodes are positions 0 … tokens − 1, self-loops included.

    Raises `MissingPackageError` when networkx is not installed, and `InvalidValueError` as `graph` does.
    """
    try:
        import networkx
    except ModuleNotFoundError:
        raise MissingPackageError(
            "networkx: not installed, needed for its graphs; run: pip install networkx"
        ) from None
    edges = graph(pattern, tokens)
    memory.require(320 * edges.nnz, "tokens", tokens)
    keys, queries = edges.nonzero()
    made = networkx.DiGraph()
    made.add_nodes_from(range(tokens))
    made.add_edges_from(zip(keys.tolist(), queries.tolist(), strict=True))
    return made


def reachable(pattern: Pattern, tokens: int, layers: int | None = None) -> Bool[np.ndarray, "query key"]:
    """True where key j can influence query i through the lowest `layers` layers; without them, through any number.

    Raises `InvalidValueError` for tokens < 1, layers < 0, a pattern that is none, a prefix longer than the
    text, or a matrix that memory cannot hold. Source: Wu et al. 2025, §3.
    """
    masks = masks_of(pattern, tokens)
    depth = len(masks) if layers is None else whole("layers", layers, 0)
    memory.require(16 * tokens**2, "tokens", tokens)
    every = {mask: runs(mask, tokens) for mask in masks}
    reached, settled = np.eye(tokens, dtype=bool), 0
    for layer in range(depth):
        grown = _through(every[masks[layer % len(masks)]], reached) > 0
        settled = settled + 1 if np.array_equal(grown, reached) else 0
        reached = grown
        if settled == len(masks):
            return reached
    while layers is None:
        # twice as many layers at a time: the graph of what is reached, taken as a mask
        grown = _through(runs_of(reached), reached) > 0
        if np.array_equal(grown, reached):
            break
        reached = grown
    return reached


def centre_nodes(pattern: Pattern, tokens: int) -> Int[np.ndarray, "node"]:
    """The positions from which every position can be reached, in order; none for a window of one token.

    They are the strongly connected component that no other leads into, if there is only one such. Memory
    grows with the edges. Raises `InvalidValueError` as `graph` does. Source: Wu et al. 2025, Definition 3.1.
    """
    from scipy.sparse.csgraph import connected_components

    edges = graph(pattern, tokens)
    memory.require(32 * edges.nnz, "tokens", tokens)
    number, component = connected_components(edges, connection="strong")
    keys, queries = component[edges.nonzero()[0]], component[edges.nonzero()[1]]
    entered = np.unique(queries[keys != queries])
    sources = np.setdiff1d(np.arange(number), entered)
    return np.flatnonzero(component == sources[0]) if len(sources) == 1 else np.zeros(0, dtype=np.int64)


def walks(pattern: Pattern, tokens: int, depth: int) -> Shaped[np.ndarray, "query key"]:
    """The number of walks from key j to query i through the lowest `depth` layers, as exact integers.

    An array of Python integers; a walk takes one edge a layer, so its length is `depth`, which is t + 1 for
    the paper's layers 0 … t: for the causal mask (t + i − j choose i − j). Raises `InvalidValueError` for
    tokens < 1, depth < 0 or above `MOST_LAYERS`, a pattern that is none, a prefix longer than the text, or
    numbers that memory cannot hold. Source: Wu et al. 2025, §4.1.
    """
    masks = masks_of(pattern, tokens)
    depth = whole("depth", depth, 0)
    if depth > MOST_LAYERS:
        raise InvalidValueError(f"depth: {depth} given, at most {MOST_LAYERS:,} needed")
    memory.require(3 * (8 + 28) * tokens**2, "tokens", tokens)
    every = {mask: runs(mask, tokens) for mask in masks}
    stack = [every[masks[layer % len(masks)]] for layer in range(depth)]
    ending = np.full((tokens, 1), 1, dtype=object)
    for one in stack:
        ending = _through(one, ending)
    digits = -(-int(ending.max()).bit_length() // 30)
    memory.require(3 * (8 + 28 + 4 * digits) * tokens**2, "depth", depth)
    counted = np.zeros((tokens, tokens), dtype=object)
    np.fill_diagonal(counted, 1)
    for one in stack:
        counted = _through(one, counted)
    return counted


def layers_to_reach(pattern: Pattern, tokens: int, query: int = -1, key: int = 0) -> int | None:
    """The number of layers, from the bottom, after which `key` can influence `query`; None if it never can.

    By default how deep a stack must be for the last token to hear of the first: for a window of w tokens
    ⌈(n − 1)/(w − 1)⌉, the exponent of Wu et al. 2025, Theorem 4.2. Positions count from 0, negative ones from
    the end. Takes O(tokens) per layer. Raises `InvalidValueError` for tokens < 1, a position outside the
    text, a pattern that is none or a prefix longer than the text.
    """
    masks = masks_of(pattern, tokens)
    target, source = position("query", query, tokens), position("key", key, tokens)
    every = [runs(mask, tokens) for mask in masks]
    reached, settled = (np.arange(tokens) == source)[:, None], 0
    for layer in count():
        if reached[target, 0]:
            return layer
        grown = _through(every[layer % len(masks)], reached) > 0
        settled = settled + 1 if np.array_equal(grown, reached) else 0
        if settled == len(masks):
            return None
        reached = grown
    raise AssertionError


def runs(mask: Mask, tokens: int) -> Runs:
    """The runs of keys of every query under a mask; no matrix is made where they are one run and the first few."""
    position = np.arange(memory.length("tokens", tokens, each=64))
    seen = bounds(mask, tokens)
    if seen is None:
        return runs_of(mask.allowed(tokens))
    # first keys that touch the run are one run with it
    first = np.minimum(seen.always, position + 1)
    low = np.where(first >= seen.low, 0, seen.low)
    apart = (first > 0) & (low > 0)
    if not apart.any():
        return Runs(position, low, seen.high + 1)
    owner = np.concatenate([position, position[apart]])
    order = np.lexsort((np.concatenate([np.ones(tokens), np.zeros(apart.sum())]), owner))
    start = np.concatenate([low, np.zeros(apart.sum(), dtype=np.int64)])[order]
    stop = np.concatenate([seen.high + 1, first[apart]])[order]
    return Runs(np.searchsorted(owner[order], position), start, stop)


def runs_of(allowed: Bool[np.ndarray, "query key"]) -> Runs:
    """The runs of keys of every query of a dense mask, in which every query has a key."""
    bounded = np.pad(allowed, ((0, 0), (1, 1)))
    changes = bounded[:, 1:] != bounded[:, :-1]
    # every run begins with one change and ends with the next
    query, place = np.nonzero(changes)
    return Runs(np.searchsorted(query[::2], np.arange(len(allowed))), place[::2], place[1::2])


def _through(layer: Runs, below: Shaped[np.ndarray, "key column"]) -> Shaped[np.ndarray, "query column"]:
    """What every query gathers through one layer: the sum of the rows of `below` over its keys, exact."""
    kind = object if below.dtype == object else np.int32
    summed = _summed(below.astype(kind, copy=False))
    gathered = np.empty(below.shape, dtype=kind)
    ends = np.append(layer.first, len(layer.start))
    query = 0
    while query < len(below):
        # as many queries as fit, at least one
        most = ends[query] + max(PIECE // below.shape[1], 1)
        following = max(query + 1, int(np.searchsorted(ends, most, side="right")) - 1)
        part = slice(ends[query], ends[following])
        pieces = summed[layer.stop[part]] - summed[layer.start[part]]
        if len(pieces) > following - query:
            pieces = np.add.reduceat(pieces, ends[query:following] - ends[query], axis=0)
        gathered[query:following] = pieces
        query = following
    return gathered


def _summed(rows: Shaped[np.ndarray, "key column"]) -> Shaped[np.ndarray, "bound column"]:
    """The sums of the first 0 … n rows."""
    summed = np.zeros((len(rows) + 1, rows.shape[1]), dtype=rows.dtype)
    if rows.shape[1] < NARROW:
        np.cumsum(rows, axis=0, out=summed[1:])
    else:
        # far faster than cumsum, which strides through memory
        for k, row in enumerate(rows):
            np.add(summed[k], row, out=summed[k + 1])
    return summed


def _adjacency(one: Runs, tokens: int) -> "csr_array":
    """The boolean matrix (query, key) of these runs."""
    from scipy.sparse import csr_array

    index = np.int32 if one.edges < 2**31 else np.int64
    length = one.stop - one.start
    ends = np.concatenate([[0], np.cumsum(length)])
    columns = np.repeat((one.start - ends[:-1]).astype(index), length)
    columns += np.arange(one.edges, dtype=index)
    bounds = ends[np.append(one.first, len(length))].astype(index)
    return csr_array((np.ones(one.edges, dtype=bool), columns, bounds), shape=(tokens, tokens))


def masks_of(pattern: Pattern, tokens: int) -> tuple[Mask, ...]:
    """The masks of a pattern, bottom first; `tokens` is checked beside it."""
    whole("tokens", tokens, 1)
    if isinstance(pattern, Architecture):
        return tuple(layer.mask for layer in pattern.layers)
    masks = pattern if isinstance(pattern, Sequence) else (pattern,)
    if not masks or not all(isinstance(one, MASKS) for one in masks):
        names = ", ".join(cls.__name__ for cls in MASKS)
        raise InvalidValueError(
            f"pattern: {shortened(pattern)} given, "
            f"a mask ({names}), one or more of them, or an architecture needed"
        )
    return tuple(masks)
