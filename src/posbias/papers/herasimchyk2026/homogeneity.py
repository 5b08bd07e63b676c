"""Table 6: how homogeneous mean content logits are on the diagonal and below it, beside a null.

The similarity (Eq. 9) depends on the bins as much as on the entries. `corrected` bins every head's own range;
`published` bins the range of all layers and heads together, so that a head of small logits looks homogeneous
whatever it does. The null says what of it is the shape of any noise: normal numbers with the mean and deviation of
each head's entries, under the same bins.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.papers.herasimchyk2026.printed import BINS, Reading
from posbias.seeds import stream


@dataclass(frozen=True)
class Homogeneity:
    """Similarities [layer, head] within the diagonal and below it, and of normal numbers in their place."""

    model: str
    diagonal: Float[np.ndarray, "layer head"]
    below: Float[np.ndarray, "layer head"]
    diagonal_null: Float[np.ndarray, "layer head"]
    below_null: Float[np.ndarray, "layer head"]

    def regions(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Either region's name, its similarities and those of its null, of all heads where both are defined."""
        for name, value, null in (
            ("diagonal", self.diagonal, self.diagonal_null),
            ("below it", self.below, self.below_null),
        ):
            kept = np.isfinite(value) & np.isfinite(null)
            yield name, value[kept], null[kept]


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
    from posbias.measurement.quantities.content import constant_diagonal

    fits = [constant_diagonal(layer) for layer in content]
    offset, r2 = np.stack([one.offset for one in fits]), np.stack([one.r2 for one in fits])
    total = np.nanvar(content[..., 1:, 1:], axis=(2, 3))
    left = np.maximum((1.0 - r2) * total - (0.0 if noise is None else noise), 0.0)
    with np.errstate(invalid="ignore"):
        return Fit(offset, r2, r2 * total / (r2 * total + left))


def homogeneity(
    model: str,
    content: Float[np.ndarray, "layer head query key"],
    reading: Reading = "corrected",
    bins: int = BINS,
    seed: int = 0,
) -> Homogeneity:
    """The similarities of mean content matrices (NaN where masked), with their null drawn from `seed`.

    Raises `InvalidValueError` for fewer than two bins or another shape. Source: Herasimchyk et al. 2026, Eq. (9).
    """
    from posbias.measurement.quantities.similarity import content_similarity

    span = "own" if reading == "corrected" else "shared"
    real = content_similarity(content, bins, span)
    null = content_similarity(_normal(content, seed), bins, span)
    return Homogeneity(model, real.diagonal, real.below, null.diagonal, null.below)


def _normal(
    content: Float[np.ndarray, "layer head query key"], seed: int
) -> Float[np.ndarray, "layer head query key"]:
    """Normal numbers in place of the entries, with the mean and deviation of each head's two regions."""
    generator = stream(seed, "herasimchyk2026.homogeneity")
    tokens = content.shape[-1]
    made = np.full_like(content, np.nan)
    own, below = np.eye(tokens, dtype=bool), np.tri(tokens, k=-1, dtype=bool)
    for place in np.ndindex(*content.shape[:2]):
        for region in (own, below):
            seen = region & np.isfinite(content[place])
            entries = content[place][seen]
            if entries.size:
                made[place][seen] = generator.normal(entries.mean(), entries.std(), entries.size)
    return made
