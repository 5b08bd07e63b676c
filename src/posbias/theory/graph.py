"""A mask as a directed graph: an edge j → i where query i may attend to key j (Wu et al. 2025, §3).

Through several layers information takes a walk, one edge a layer, so that who can influence whom is
reachability, and the tokens that can influence all are the centre nodes (Definition 3.1). Every function takes
a mask, a pattern of masks that repeats up the stack (bottom first), or an architecture, whose layers are the
pattern. Masks alone speak here: neither mixing nor logits. Every token attends to itself, so what is reached
stays reached. Matrices are dense, tokens × tokens. All raise `InvalidValueError` for tokens < 1, a pattern that is
none, a prefix longer than the text, or a matrix that memory cannot hold.
"""

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from jaxtyping import Bool, Int, Shaped

from posbias.core import machine
from posbias.core.errors import whole, wrong
from posbias.theory.architecture import Architecture
from posbias.theory.masks import MASKS, Mask

Pattern = Mask | Sequence[Mask] | Architecture
"""A mask, masks that repeat up the stack (bottom first), or an architecture."""
Allowed = Bool[np.ndarray, "query key"]


def reachable(pattern: Pattern, tokens: int, layers: int | None = None) -> Allowed:
    """True where key j can influence query i through the lowest `layers` layers; without them, through any number.

    Raises `InvalidValueError` for layers < 0 as well. Source: Wu et al. 2025, §3.
    """
    if layers is None:
        reached = np.any(_matrices(pattern, tokens), axis=0)
        while not np.array_equal(grown := _through(reached, reached), reached):
            reached = grown
        return reached
    reached, settled = np.eye(whole("tokens", tokens, 1), dtype=bool), 0
    matrices = _matrices(pattern, tokens)
    for layer in islice(cycle(matrices), whole("layers", layers, 0)):
        grown = _through(layer, reached)
        settled = settled + 1 if np.array_equal(grown, reached) else 0
        if settled == len(matrices):  # a whole pattern adds nothing: none ever will
            break
        reached = grown
    return reached


def centre_nodes(pattern: Pattern, tokens: int) -> Int[np.ndarray, "node"]:
    """The positions from which every position can be reached, in order; none for a window of one token.

    Source: Wu et al. 2025, Definition 3.1.
    """
    return np.flatnonzero(reachable(pattern, tokens).all(axis=0))


def walks(pattern: Pattern, tokens: int, depth: int) -> Shaped[np.ndarray, "query key"]:
    """The number of walks from key j to query i through the lowest `depth` layers, as exact integers.

    An array of Python integers; a walk takes one edge a layer, so its length is `depth`, which is t + 1 for
    the paper's layers 0 … t: for the causal mask (t + i − j choose i − j). O(tokens³) a layer. Raises
    `InvalidValueError` for depth < 0 as well. Source: Wu et al. 2025, §4.1.
    """
    counted = np.eye(whole("tokens", tokens, 1), dtype=int).astype(object)
    for layer in islice(cycle(_matrices(pattern, tokens)), whole("depth", depth, 0)):
        counted = np.stack([counted[keys].sum(axis=0) for keys in layer])
    return counted


def _matrices(pattern: Pattern, tokens: int) -> list[Allowed]:
    """Who may attend to whom in each layer of a pattern."""
    machine.require(16 * whole("tokens", tokens, 1) ** 2, "tokens", tokens)
    if isinstance(pattern, Architecture):  # whose masks may be of classes of one's own
        return [layer.mask.allowed(tokens) for layer in pattern.layers]
    masks = pattern if isinstance(pattern, Sequence) else (pattern,)
    if not masks or not all(isinstance(one, MASKS) for one in masks):
        names = ", ".join(cls.__name__ for cls in MASKS)
        raise wrong("pattern", f"masks ({names}), or an architecture", pattern)
    return [mask.allowed(tokens) for mask in masks]


def _through(layer: Allowed, below: Bool[np.ndarray, "key column"]) -> Bool[np.ndarray, "query column"]:
    """Whether a query sees a key that is reached, for each column; sums of ones are exact in float32."""
    return layer.astype(np.float32) @ below.astype(np.float32) > 0
