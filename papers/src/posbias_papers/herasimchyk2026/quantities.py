"""What is computed of content logits and averaged attention, levels apart.

Figure 5: constant and diagonal fitted to each head's mean content. Table 6: how alike the entries of a content
matrix are, one minus the normalised entropy of their histogram, with a null:

    Sim(p) = 1 − H(p) / log B,  p the histogram of the entries over B bins  (Eq. 9, Herasimchyk et al. 2026)

It depends on the bins as much as on the entries, so both number and range are asked for: with each set's `own`
range, from its least to its largest entry, it tells the shape of a distribution but nothing of its width; with one
`shared` range it tells the width against that of all layers and heads together, which is what the authors'
notebook does: a head of small logits looks homogeneous whatever it does. Section 4: how often averaged attention
is not stochastically monotone (Assumption 4.1).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError, nearest, shortened
from posbias.core.machine import stream
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.herasimchyk2026.configs import BINS, REGIONS, Reading
from posbias_papers.herasimchyk2026.levels import need, published_slopes

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement.quantities.attention import ConstantDiagonal

PUBLISHED_TOLERANCE = 1e-10
"""Gaps up to this are none in the paper's notebook."""


# --- Figure 5: constant and diagonal -----------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Constant and diagonal fitted to each head's mean content: the `offset` δ, and the share `r2` explained.

    The mean over some prompts has noise, which no fit explains; `most` is the share without as much variance as
    noise may have, so that the share of the true means lies between the two.
    """

    offset: Float[np.ndarray, "layer head"]
    r2: Float[np.ndarray, "layer head"]
    most: Float[np.ndarray, "layer head"]


def fit(
    content: Float[np.ndarray, "layer head query key"], noise: Float[np.ndarray, "layer head"] | None = None
) -> Fit:
    """The least-squares fit of Proposition 4.5's u + δ·1[i = j] to mean content matrices, keys from 1 on.

    `noise` is the variance of an entry's mean over prompts, at most that of single logits over their number.
    """
    fits = [constant_diagonal(layer) for layer in content]
    offset, r2 = np.stack([one.offset for one in fits]), np.stack([one.r2 for one in fits])
    total = np.nanvar(content[..., 1:, 1:], axis=(2, 3))
    left = np.maximum((1.0 - r2) * total - (0.0 if noise is None else noise), 0.0)
    with np.errstate(invalid="ignore"):
        return Fit(offset, r2, r2 * total / (r2 * total + left))


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


# --- Table 6: Shannon similarity ---------------------------------------------------------------------------

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


def _quantiles(*sets: np.ndarray) -> tuple[float, float]:
    low, high = np.nanquantile(np.concatenate([part.ravel() for part in sets]), _TAILS)
    return float(low), float(high)


def _each(
    sets: Float[np.ndarray, "layer head entry"], bins: int, common: tuple[float, float] | None
) -> Float[np.ndarray, "layer head"]:
    values = np.full(sets.shape[:2], np.nan)
    for place in np.ndindex(*values.shape):
        entries = sets[place][~np.isnan(sets[place])]
        if len(entries):
            values[place] = shannon_similarity(entries, bins, common or (entries.min(), entries.max()))
    return values


def homogeneity(
    content: Float[np.ndarray, "layer head query key"],
    reading: Reading = "corrected",
    bins: int = BINS,
    seed: int = 0,
) -> dict[str, tuple[Float[np.ndarray, "layer head"], Float[np.ndarray, "layer head"]]]:
    """By region the similarities of mean content matrices (NaN where masked), and those of a null.

    `corrected` bins every head's own range, `published` that of all heads together. The null, drawn from `seed`,
    says what is the shape of any noise: normal numbers with the mean and deviation of each head's two regions,
    under the same bins. Both are NaN where one is not defined. Raises as `content_similarity`.
    """
    span: Range = "own" if reading == "corrected" else "shared"
    generator, tokens = stream(seed, "herasimchyk2026.homogeneity"), content.shape[-1]
    normal = np.full_like(content, np.nan)
    for place in np.ndindex(*content.shape[:2]):
        for region in (np.eye(tokens, dtype=bool), np.tri(tokens, k=-1, dtype=bool)):
            seen = region & np.isfinite(content[place])
            entries = content[place][seen]
            if entries.size:
                normal[place][seen] = generator.normal(entries.mean(), entries.std(), entries.size)
    real, null = (content_similarity(each, bins, span) for each in (content, normal))
    pairs = dict(zip(REGIONS, ((real.diagonal, null.diagonal), (real.below, null.below)), strict=True))
    return {region: (value + 0.0 * other, other + 0.0 * value) for region, (value, other) in pairs.items()}


# --- Section 4: stochastic monotonicity --------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """Violating triples of a model on a corpus, over all layers: their share, mean gap, and the noise floor.

    `floor` is the share expected from sampling noise alone, NaN where it was not measured or means nothing;
    `worst` the layer with the highest rate.
    """

    rate: float
    gap: float
    floor: float
    worst: int


def order_of(measurement: "xr.Dataset", reading: Reading = "corrected") -> Order:
    """The violations of one measurement. Raises `InvalidValueError` where a variable is missing.

    `corrected` is the measurement's own count, on attention averaged over prompts and heads. `published` repeats
    the paper's notebook: ALiBi's biases are added to averaged attention, and a second softmax follows; what it
    counts is nearly ALiBi alone, which is monotone by construction. It needs the variable `kernel`, which
    measurements of long prompts do not have. All triples of all layers count alike. Source: Herasimchyk et al.
    2026, Assumption 4.1 and after.
    """
    if reading == "published":
        rates, gaps = _again(measurement)
        floors = np.full(len(rates), np.nan)
    else:
        need(measurement, ("monotonicity_rate", "monotonicity_gap", "monotonicity_floor"))
        rates = measurement["monotonicity_rate"].values[:, 0]
        gaps, floors = measurement["monotonicity_gap"].values, measurement["monotonicity_floor"].values
    total = rates.sum()
    gap = float((rates * gaps).sum() / total) if total else 0.0
    return Order(float(rates.mean()), gap, float(floors.mean()), int(rates.argmax()))


def _again(measurement: "xr.Dataset") -> tuple[np.ndarray, np.ndarray]:
    """Rate and mean gap per layer after ALiBi's biases and a second softmax."""
    from posbias.profiles.stochastic_order import monotonicity

    need(measurement, ("kernel",))
    kernels = measurement["kernel"].values.astype(np.float64)
    tokens = kernels.shape[-1]
    position = np.arange(tokens)
    seen = np.tri(tokens, dtype=bool)
    distance = np.where(seen, position[:, None] - position, 0)
    slopes = np.array(published_slopes(measurement.sizes["head"]))
    found = []
    for kernel in kernels:
        average = np.zeros_like(kernel)
        for slope in slopes:
            average += masked_softmax(kernel - slope * distance, seen) / len(slopes)
        found.append(monotonicity(average, PUBLISHED_TOLERANCE))
    return np.array([one.rate for one in found]), np.array([one.mean_gap for one in found])
