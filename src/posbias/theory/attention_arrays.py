"""Arrays that are to be attention: their layers, whatever holds them, and whether they are attention at all."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError
from posbias.theory.masks import Mask

EXACT = 1e-5
"""How far from one a row of float32 or float64 may sum."""


def layers_of(arrays: Any) -> list[Float[np.ndarray, "text head query key"]]:
    """An array for each layer, bottom first, with axes for texts and heads."""
    by_layer = isinstance(arrays, list | tuple) and any(
        one is None or hasattr(one, "shape") for one in arrays
    )
    if by_layer:
        layers = [as_array(one, f"layer {number}") for number, one in enumerate(arrays)]
        shapes = "[query, key], [head, query, key] or [text, head, query, key]"
    else:
        whole = as_array(arrays, "arrays")
        layers = list(whole) if whole.ndim else [whole]
        shapes = "[layer, query, key], [layer, head, query, key] or [layer, text, head, query, key]"
    if not layers:
        raise InvalidValueError("attention: no layer given, at least one needed")
    for number, layer in enumerate(layers):
        if not 2 <= layer.ndim <= 4:
            where, shape = (f"layer {number}: ", layer.shape) if by_layer else ("", np.shape(layers))
            raise InvalidValueError(f"attention: {where}shape {shape} given, {shapes} needed")
    return [layer[(None,) * (4 - layer.ndim)] for layer in layers]


def brief(mask: Mask) -> str:
    """A mask in words, by its class where it says much."""
    said = repr(mask)
    return said if len(said) <= 60 else type(mask).__name__


def as_array(given: Any, name: str) -> np.ndarray:
    """Numbers as NumPy has them; a tensor of torch by what it can do."""
    if given is None:
        raise InvalidValueError(
            f"attention: {name}: None given, weights needed; sdpa and flash attention give none, load the model "
            "with attn_implementation='eager'"
        )
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = (given.float() if "bfloat16" in str(given.dtype) else given).numpy()
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "fiu":
        kind = "booleans (who may see whom is mask=)" if array.dtype.kind == "b" else type(given).__name__
        raise InvalidValueError(f"attention: {name}: expected an array of numbers, got {kind}")
    return array


def check_shapes(layers: Sequence[Float[np.ndarray, "text head query key"]]) -> None:
    """Refuse layers that differ in size, and those with more or fewer keys than queries."""
    for number, layer in enumerate(layers):
        queries, keys = layer.shape[-2:]
        if queries != keys or not layer.size:
            raise InvalidValueError(
                f"attention: layer {number}: {queries} queries × {keys} keys given, as many queries as keys needed"
            )
        if layer.shape != layers[0].shape:
            names = "texts × heads × queries × keys"
            given, first = (" × ".join(map(str, one.shape)) for one in (layer, layers[0]))
            raise InvalidValueError(
                f"attention: layer {number}: {names} {given} given, {first} needed, as in layer 0"
            )


def check_texts(
    layers: Sequence[Float[np.ndarray, "text head query key"]],
    allowed: Sequence[Bool[np.ndarray, "query key"]],
) -> None:
    """Refuse padding and several texts in a row, by the weights of all layers and heads.

    A padded query has a row of zeros or NaN, or an even one that reaches keys its mask forbids (transformers'
    softmax over masked keys only); a padded key has no weight from any other query. A text begins at k where no
    query from k on gives weight to a key before k. Only pairs count that the mask of some layer allows.
    """
    seen, tokens = np.any(allowed, axis=0), layers[0].shape[-1]
    for text in range(len(layers[0])):
        used, blank = np.zeros((tokens, tokens), dtype=bool), np.ones(tokens, dtype=bool)
        for layer, mask in zip(layers, allowed, strict=True):
            positive = (layer[text] > 0).any(axis=0)
            even = (layer[text] == layer[text][..., :1]).all(axis=(0, 2)) & ~mask.all(axis=1)
            blank &= even | ~positive.any(axis=1)
            used |= positive
        if blank.all():
            continue  # no attention: check_layer says why
        used[blank] = False
        padded = ~used.any(axis=0) & (blank | seen[~blank].any(axis=0))
        starts = np.flatnonzero(_starts(used) & ~_starts(seen))
        real = np.flatnonzero(~padded)
        first, last = int(real[0]), int(real[-1]) + 1
        if padded.any():
            inside = int(padded[first:last].sum())
            found = f"padding: {first} tokens at the start, {inside} inside, {tokens - last} at the end"
        elif len(starts):
            bounds = [0, *starts.tolist(), tokens]
            # the last that is no single token: what stands before it or after may be padding
            first, last = max(pairwise(bounds), key=lambda part: (part[1] - part[0] > 1, part))
            where = shortened(bounds[1:-1])
            found = f"padding, or several texts: tokens at or after {where} give no weight to those before"
        else:
            continue
        raise InvalidValueError(
            f"attention: expected one text without padding in each row, got row {text} with {found}; pass "
            f"each text alone, such as layer[..., {first}:{last}, {first}:{last}], or a mask= without those pairs"
        )


def _starts(used: Bool[np.ndarray, "query key"]) -> Bool[np.ndarray, "key"]:
    """Whether no query from a position on uses a key before it; never at position 0."""
    earliest = np.where(used.any(axis=1), used.argmax(axis=1), len(used))
    earliest = np.minimum.accumulate(earliest[::-1])[::-1]
    return (earliest >= np.arange(len(used))) & (np.arange(len(used)) > 0)


def check_layer(
    number: int,
    layer: Float[np.ndarray, "text head query key"],
    mask: Mask,
    allowed: Bool[np.ndarray, "query key"],
    row_error: float | None,
    learned_sinks: bool,
) -> float:
    """The largest distance of a row's sum from one, or above it where learned sinks take a part.

    Raises where the layer is no attention under its mask.
    """
    if not np.isfinite(layer).all() or (layer < 0).any():
        raise InvalidValueError(
            f"attention: layer {number}: negative or not finite somewhere, numbers ≥ 0 needed"
        )
    outside = np.argwhere((layer > 0) & ~allowed)
    if len(outside):
        _, head, query, key = outside[0]
        raise InvalidValueError(
            f"attention: layer {number}, head {head}: query {query} gives weight to key {key}, which "
            f"{brief(mask)} does not allow; another mask of Attention.from_arrays needed, if this is meant"
        )
    with np.errstate(over="ignore"):  # what is infinite then is refused
        over = layer.sum(axis=-1, dtype=np.float64) - 1.0
        limit = _rounding(layer) if row_error is None else row_error
    off = np.maximum(over, 0.0) if learned_sinks else np.abs(over)
    if off.max() > limit:
        _, head, query = np.unravel_index(off.argmax(), off.shape)
        hint = "; learned_sinks=True, if a learned sink takes the rest" if over.max() <= limit else ""
        raise InvalidValueError(
            f"attention: layer {number}, head {head}: the row of query {query} is {off.max():.2g} away from "
            f"summing to one, at most {limit:.2g} (row_error of Attention.from_arrays) needed{hint}"
        )
    return float(off.max())


def _rounding(layer: Float[np.ndarray, "text head query key"]) -> float:
    """How far from one a row may sum: two roundings of the coarsest type whose numbers these all are."""
    single = layer.astype(np.float32)
    if (single == layer).all():
        if not (single.view(np.uint32) & 0xFFFF).any():
            return 2.0**-7  # bfloat16
        half = layer.astype(np.float16)
        if (half == layer).all():
            # below 2⁻¹⁴ a rounding of float16 is absolute
            return 2.0**-10 + layer.shape[-1] * 2.0**-25
    return EXACT
