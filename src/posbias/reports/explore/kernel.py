"""An architecture as the numbers that kernel.js sweeps: spans, slopes or tables by distance, factors by row.

No class of mask or encoding is named there or here: a layer is asked what the engines ask of it. One that has no
such form is refused with the reason, which the page shows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Architecture, HeadLogits, Layer
from posbias.theory.masks import Banded, Split, lookahead
from posbias.theory.normalisers import Softmax
from posbias.theory.positional import DenseLogits
from posbias.theory.rollout.dispatch import engines
from posbias.theory.rollout.sweep import merge

MOST_DENSE = 2_048
"""Tokens at most where a layer's kernel is kept whole: 34 MB for each kind of layer."""
OTHER_KEYS = "a query sees other keys than one run of neighbours and the first few"
"""Why there is no form for a mask that is neither a band nor pieces."""


def not_expressed(architecture: Architecture) -> str | None:
    """Why kernel.js has no form for an architecture, in words; None where it has one."""
    if architecture.streams is not None:
        return "several residual streams, where the page has one"
    reasons = (layer_not_expressed(layer) for layer in architecture.layers)
    return next((reason for reason in reasons if reason is not None), None)


def layer_not_expressed(layer: Layer) -> str | None:
    """Why kernel.js has no form for a layer, in words; None where it has one."""
    if not isinstance(layer.normaliser, Softmax):
        return "rows of attention that no softmax makes"
    if isinstance(layer.positional, DenseLogits):
        return "logits by query and key, where the page has logits by distance"
    if not isinstance(layer.mask, Banded | Split):
        return OTHER_KEYS
    return None


def sweeps(layer: Layer) -> bool:
    """Whether a layer's heads are slopes, swept in O(tokens); else its kernel is made whole."""
    alone = isinstance(layer.mask, Banded) and layer.mask.band().behind < 1
    return "sweep" in engines(layer) and not alone


def exported(architecture: Architecture, tokens: int) -> dict[str, Any]:
    """The architecture for texts of up to `tokens` tokens, ready for JSON.

    λ by layer (`mixing`) and the pattern of `layers`. Raises `InvalidValueError` for an architecture that
    kernel.js has no form for, and for more than `MOST_DENSE` tokens where a layer does not sweep.
    """
    reason = not_expressed(architecture)
    if reason is not None:
        raise InvalidValueError(f"architecture: expected plain attention by distance, got {reason}")
    if tokens > MOST_DENSE and not all(map(sweeps, architecture.layers)):
        raise InvalidValueError(
            f"tokens: expected at most {MOST_DENSE:,} with logits by distance, got {tokens:,}"
        )
    layers = [exported_layer(layer.at(tokens), tokens) for layer in architecture.layers]
    return {"mixing": architecture.coefficients.tolist(), "layers": layers}


def exported_layer(layer: Layer, tokens: int) -> dict[str, Any]:
    """A layer, as `exported` has it."""
    return exported_span(layer.mask, tokens) | {
        "heads": exported_heads(layer, tokens),
        "factors": _factors(layer, tokens),
    }


def exported_span(mask: Any, tokens: int) -> dict[str, Any]:
    """Which keys a query sees: `behind`, `always` and `prefix` (null: all), or where pieces of the text begin.

    `step` is the length of equal pieces, null where the text is one; `starts` lists others.
    """
    if isinstance(mask, Split):
        places = mask.pieces(tokens)
        step = places[1] if len(places) > 1 else tokens
        equal = tuple(places) == tuple(range(0, tokens, step))
        starts = None if equal else list(places)
        return {"behind": None, "always": 0, "prefix": 0, "step": step if equal else None, "starts": starts}
    mask.reach(0, tokens)
    band = mask.band()
    numbers = {
        name: None if number >= np.iinfo(np.int64).max else number for name, number in band._asdict().items()
    }
    return {**numbers, "step": None, "starts": None}


def exported_heads(layer: Layer, tokens: int) -> list[dict[str, Any]]:
    """The heads of a layer: weight, logits of diagonal, first column and sink, and a slope or a table each."""
    fixed = layer.head_logits()
    constant, positions = layer.constant, np.arange(lookahead(layer.mask, tokens) + 1)
    if sweeps(layer):
        later = -layer.bias(-np.minimum(positions, 1))[:, -1]
        alike = np.array_equal(later, np.asarray(fixed.slopes))
        merged = merge(fixed) if alike or len(set(later)) == 1 else fixed
        after = merged.slopes if alike else np.resize(later, len(merged.weights))
        return _heads(
            merged, np.zeros_like(merged.weights), slope=merged.slopes, later=np.abs(np.asarray(after))
        )
    bias = layer.bias(np.arange(-positions[-1], layer.mask.farthest(tokens) + 1))
    ahead = int(positions[-1])
    return _heads(fixed, constant, table=bias[:, ahead:], after=bias[:, :ahead][:, ::-1])


def _heads(fixed: HeadLogits, constant: Float[np.ndarray, "head"], **given: Any) -> list[dict[str, Any]]:
    """The numbers of each head: a slope with what is `later`, or a `table` with what is `after`."""
    columns = {
        "weight": fixed.weights,
        "diagonal": fixed.diagonal,
        "first": fixed.first,
        "constant": constant,
    }
    heads = []
    for h in range(len(fixed.weights)):
        head: dict[str, Any] = dict.fromkeys(("slope", "later", "table", "after"))
        head |= {name: float(column[h]) for name, column in columns.items()}
        head |= {name: np.asarray(column)[h].tolist() for name, column in given.items()}
        heads.append(head | {"sink": float(fixed.sinks[h]) if np.isfinite(fixed.sinks[h]) else None})
    return heads


def _factors(layer: Layer, tokens: int) -> Sequence[Sequence[float]] | None:
    """What multiplies the logits of each query, by head; None where nothing does."""
    factors = layer.factors(np.arange(tokens))
    return None if factors is None else factors.tolist()
