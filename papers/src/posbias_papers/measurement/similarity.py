"""How alike the entries of a content matrix are: one minus the normalised entropy of their histogram.

    Sim(p) = 1 − H(p) / log B,  p the histogram of the entries over B bins  (Eq. 9, Herasimchyk et al. 2026)

Taken of the diagonal and of the strictly lower part of each layer's and head's mean content matrix, it is meant
to say that content is a constant with an offset on the diagonal (Table 6). It depends on the bins as much as on
the entries, so both number and range are asked for: with each set's `own` range, from its least to its largest
entry, it tells the shape of a distribution but nothing of its width; with one `shared` range it tells the width
against that of all layers and heads together, which is what the authors' notebook does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest

if TYPE_CHECKING:
    from posbias.measurement.quantities.attention import ConstantDiagonal

Range = Literal["own", "shared"]
PUBLISHED_BINS = 199
"""Bins of the authors' notebook: 200 edges over the shared range."""
_TAILS = (0.005, 0.995)


@dataclass(frozen=True)
class Similarity:
    """Similarities within the diagonal and within the part below it, per layer and head, between 0 and 1.

    NaN where a set has no entries (or, under the shared range, none inside it).
    """

    diagonal: Float[np.ndarray, "layer head"]
    below: Float[np.ndarray, "layer head"]


def shannon_similarity(entries: Float[np.ndarray, "entry"], bins: int, span: tuple[float, float]) -> float:
    """Return 1 − H(p)/log B of the histogram of `entries` over `bins` equal bins of `span` (Eq. 9).

    Entries outside the span are left out; NaN if none is inside. Entries that are all equal have similarity 1.
    Raises `InvalidValueError` for fewer than two bins or a span that does not go up.
    """
    if bins < 2:
        raise InvalidValueError(f"bins: {bins} given, at least 2 needed")
    low, high = span
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise InvalidValueError(f"span: {span} given, two finite numbers, the lower one first, needed")
    if low == high:
        return 1.0 if (entries == low).any() else np.nan
    counts, _ = np.histogram(entries, bins=bins, range=(float(low), float(high)))
    if not counts.sum():
        return np.nan
    filled = counts[counts > 0] / counts.sum()
    # + 0.0: a single filled bin has entropy −0.0
    return float(1 + (filled * np.log(filled)).sum() / np.log(bins) + 0.0)


def content_similarity(
    content: Float[np.ndarray, "layer head query key"], bins: int, span: Range = "own"
) -> Similarity:
    """Return within-diagonal and within-off-diagonal similarities of mean content matrices (Table 6).

    `content` is in softmax units, NaN where masked. `span` "own": each set's own least to largest entry;
    "shared": from the .5 to the 99.5 % quantile of all entries on and below the diagonals, entries outside left
    out. The authors use 199 shared bins; they take the quantiles of an unseeded sample of a million entries,
    those above the diagonal included. Raises `InvalidValueError` for another shape, span or number of bins.
    """
    if content.ndim != 4 or content.shape[2] != content.shape[3]:
        raise InvalidValueError(f"content: shape {content.shape} given, layer × head × query × key needed")
    if span not in ("own", "shared"):
        raise InvalidValueError(
            f"span: {shortened(span)} given, 'own' or 'shared' needed{nearest(span, ('own', 'shared'))}"
        )
    on = np.diagonal(content, axis1=2, axis2=3)
    below = content[:, :, *np.tril_indices(content.shape[2], -1)]
    common = _quantiles(on, below) if span == "shared" else None
    return Similarity(_each(on, bins, common), _each(below, bins, common))


def _quantiles(*sets: Float[np.ndarray, "layer head entry"]) -> tuple[float, float]:
    low, high = np.nanquantile(np.concatenate([part.ravel() for part in sets]), _TAILS)
    return float(low), float(high)


def _each(
    sets: Float[np.ndarray, "layer head entry"], bins: int, common: tuple[float, float] | None
) -> Float[np.ndarray, "layer head"]:
    found = np.full(sets.shape[:2], np.nan)
    for place in np.ndindex(*found.shape):
        entries = sets[place][~np.isnan(sets[place])]
        if len(entries):
            found[place] = shannon_similarity(entries, bins, common or (entries.min(), entries.max()))
    return found


def constant_diagonal(matrix: Float[np.ndarray, "head query key"]) -> "ConstantDiagonal":
    """Fit a constant and an offset on the diagonal to whole content matrices, as the dense mean `content`.

    NaN marks pairs that are not seen; keys j ≥ 1, as `ByDistance.fit`, whose fit to the pairs of each prompt is
    what a measurement keeps.
    """
    import torch

    from posbias.measurement.quantities.attention import ByDistance

    heads, tokens, _ = matrix.shape
    moments = ByDistance(heads, tokens)
    # a copy: torch refuses read-only memory
    given = torch.from_numpy(np.array(matrix, dtype=np.float64))
    moments.add(0, given, given[0].isnan())
    return moments.fit()
