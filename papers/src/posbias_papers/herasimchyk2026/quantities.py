"""What is computed of content logits and averaged attention, levels apart.

Figure 5: constant and diagonal fitted to each head's mean content. Table 6: how alike the entries of a content
matrix are, one minus the normalised entropy of their histogram, with a null:

    Sim(p) = 1 − H(p) / log B,  p the histogram of the entries over B bins  (Eq. 9, Herasimchyk et al. 2026)

It depends on the bins as much as on the entries. With each set's own range, from its least to its largest entry,
it shows the shape of a distribution but nothing of its width; with one range shared by all layers and heads, as in
the authors' notebook, a head of small logits looks homogeneous whatever it does. Section 4: how often averaged
attention is not stochastically monotone (Assumption 4.1).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.core.errors import whole
from posbias.core.machine import stream
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.herasimchyk2026.configs import BINS, REGIONS, Reading
from posbias_papers.herasimchyk2026.levels import need, published_slopes

if TYPE_CHECKING:
    import xarray as xr

PUBLISHED_TOLERANCE = 1e-10
"""Gaps up to this are none in the paper's notebook."""
TAILS = (0.005, 0.995)
"""Quantiles of all entries at which the shared range of Table 6 ends."""


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

    NaN marks pairs that are not seen. `noise` is the variance of an entry's mean over prompts, at most that of
    single logits over their number.
    """
    import torch

    from posbias.measurement.quantities.attention import ByDistance

    fits = []
    for layer in torch.from_numpy(np.array(content, dtype=np.float64)):
        moments = ByDistance(layer.shape[0], layer.shape[1])
        moments.add(0, layer, layer[0].isnan())
        fits.append(moments.fit())
    offset, r2 = (np.stack([one[name] for one in fits]) for name in ("offset", "r2"))
    total = np.nanvar(content[..., 1:, 1:], axis=(2, 3))
    left = np.maximum((1.0 - r2) * total - (0.0 if noise is None else noise), 0.0)
    with np.errstate(invalid="ignore"):
        return Fit(offset, r2, r2 * total / (r2 * total + left))


# --- Table 6: Shannon similarity ---------------------------------------------------------------------------


def shannon_similarity(entries: Float[np.ndarray, "entry"], bins: int, span: tuple[float, float]) -> float:
    """Return 1 − H(p)/log B of the histogram of `entries` over `bins` equal bins of `span` (Eq. 9).

    Entries outside the span are left out; NaN if none is inside. Entries that are all equal have similarity 1.
    Raises `InvalidValueError` for fewer than two bins.
    """
    whole("bins", bins, 2)
    low, high = span
    if low == high:
        return 1.0 if (entries == low).any() else np.nan
    counts, _ = np.histogram(entries, bins=bins, range=(float(low), float(high)))
    if not counts.sum():
        return np.nan
    filled = counts[counts > 0] / counts.sum()
    # + 0.0: a single filled bin has entropy −0.0
    return float(1 + (filled * np.log(filled)).sum() / np.log(bins) + 0.0)


def similarity(
    content: Float[np.ndarray, "layer head query key"], reading: Reading = "corrected", bins: int = BINS
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """The similarity of mean content on and below the diagonal (`REGIONS`), NaN where there are no entries.

    `content` is in softmax units, NaN where masked. `corrected` bins each set's own range, `published` that from
    the .5 to the 99.5 % quantile of all entries, others left out. (The authors take the quantiles of an unseeded
    sample of a million entries, those above the diagonal included.)
    """
    tokens = content.shape[-1]
    sets = [content[:, :, *places] for places in (np.diag_indices(tokens), np.tril_indices(tokens, -1))]
    shared = None
    if reading == "published":
        shared = tuple(np.nanquantile(np.concatenate([part.ravel() for part in sets]), TAILS))
    found = {}
    for region, part in zip(REGIONS, sets, strict=True):
        found[region] = np.full(content.shape[:2], np.nan)
        for place in np.ndindex(*content.shape[:2]):
            entries = part[place][~np.isnan(part[place])]
            if entries.size:
                span = shared or (entries.min(), entries.max())
                found[region][place] = shannon_similarity(entries, bins, span)
    return found


def homogeneity(
    content: Float[np.ndarray, "layer head query key"],
    reading: Reading = "corrected",
    bins: int = BINS,
    seed: int = 0,
) -> dict[str, tuple[Float[np.ndarray, "layer head"], Float[np.ndarray, "layer head"]]]:
    """By region the similarities of mean content matrices (NaN where masked), and those of a null.

    The null, drawn from `seed`, says what is the shape of any noise: normal numbers with the mean and deviation of
    each head's two regions, under the same bins. Both are NaN where one is not defined.
    """
    generator, tokens = stream(seed, "herasimchyk2026.homogeneity"), content.shape[-1]
    normal = np.full_like(content, np.nan)
    for place in np.ndindex(*content.shape[:2]):
        for region in (np.eye(tokens, dtype=bool), np.tri(tokens, k=-1, dtype=bool)):
            seen = region & np.isfinite(content[place])
            entries = content[place][seen]
            if entries.size:
                normal[place][seen] = generator.normal(entries.mean(), entries.std(), entries.size)
    real, null = (similarity(each, reading, bins) for each in (content, normal))
    return {
        region: (real[region] + 0.0 * null[region], null[region] + 0.0 * real[region]) for region in REGIONS
    }


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
        rates, gaps = _twice_normalised(measurement)
        floors = np.full(len(rates), np.nan)
    else:
        need(measurement, ("monotonicity_rate", "monotonicity_gap", "monotonicity_floor"))
        rates = measurement["monotonicity_rate"].values[:, 0]
        gaps, floors = measurement["monotonicity_gap"].values, measurement["monotonicity_floor"].values
    total = rates.sum()
    gap = float((rates * gaps).sum() / total) if total else 0.0
    return Order(float(rates.mean()), gap, float(floors.mean()), int(rates.argmax()))


def _twice_normalised(measurement: "xr.Dataset") -> tuple[np.ndarray, np.ndarray]:
    """Rate and mean gap per layer after ALiBi's biases and a second softmax."""
    from posbias.profiles.stochastic_order import monotonicity

    need(measurement, ("kernel",))
    kernels = measurement["kernel"].values.astype(np.float64)
    position = np.arange(kernels.shape[-1])
    seen = np.tri(position.size, dtype=bool)
    distance = np.where(seen, position[:, None] - position, 0)
    slopes = np.array(published_slopes(measurement.sizes["head"]))
    orders = []
    for kernel in kernels:
        average = np.mean([masked_softmax(kernel - slope * distance, seen) for slope in slopes], axis=0)
        orders.append(monotonicity(average, PUBLISHED_TOLERANCE))
    return np.array([one.rate for one in orders]), np.array([one.mean_gap for one in orders])
