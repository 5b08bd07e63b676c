"""Masks that cut the text into causal texts of their own: each piece goes through its layers by itself.

A query sees the keys of its own piece alone, so the kernel is block-diagonal and each block is that of a causal
layer. The first token of the text stands in the first piece only: in others there is no first column.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from posbias.theory.architecture import Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.masks import Causal, Split, is_causal
from posbias.theory.rollout.kernel import Row
from posbias.theory.rollout.plan import plan
from posbias.theory.rollout.sweep import sweep

Push = Callable[[Layer, float, Row], tuple[Row, float]]


def starts(layer: Layer, tokens: int) -> tuple[int, ...] | None:
    """Where the causal texts begin that a layer's mask makes of one: (0,) where it is causal; None of others."""
    if isinstance(layer.mask, Split):
        return layer.mask.pieces(tokens)
    return (0,) if is_causal(layer.mask, tokens) else None


def push_pieces(push: Push, layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """row · R of one layer whose mask cuts the text, each piece by the engine `push`; and what its sink takes."""
    out, lost = np.zeros(len(row)), 0.0
    first, others = alone(layer, True), alone(layer, False)
    for start, stop in _pieces(starts(layer, len(row)) or (0,), row):
        out[start:stop], taken = push(first if start == 0 else others, mixing, row[start:stop])
        lost += taken
    return out, lost


def sweep_pieces(
    stack: Sequence[Layer], mixing: Float[np.ndarray, "layer"], row: Row, cuts: Sequence[int], threads: int
) -> tuple[Row, float]:
    """row · R_T ⋯ R_1 of layers that all cut the text at `cuts`, by the fused sweep; and what their sinks take."""
    if len(cuts) == 1:
        return sweep(plan(stack, mixing, len(row)), row, threads)
    out, lost, plans = np.zeros(len(row)), 0.0, {}
    for start, stop in _pieces(cuts, row):
        kind = (stop - start, start == 0)
        if kind not in plans:
            plans[kind] = plan([alone(layer, start == 0) for layer in stack], mixing, stop - start)
        out[start:stop], taken = sweep(plans[kind], row[start:stop], threads)
        lost += taken
    return out, lost


def alone(layer: Layer, first: bool) -> Layer:
    """A layer as a piece of the text sees it: causal, and with the first column in the first piece alone."""
    if first or not layer.head_logits().first.any():
        return replace(layer, mask=Causal())
    diagonal = layer.content.diagonal_of(layer.heads, layer.groups)
    constant = getattr(layer.content, "constant", (0.0,))
    return replace(layer, mask=Causal(), content=ConstantDiagonal(tuple(diagonal.tolist()), constant))


def _pieces(cuts: Sequence[int], row: Row) -> Iterator[tuple[int, int]]:
    """The pieces (start, stop) of a row that are not empty of influence."""
    for start, stop in pairwise([*cuts, len(row)]):
        if row[start:stop].any():
            yield start, stop
