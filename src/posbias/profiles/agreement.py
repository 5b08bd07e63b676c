"""What two profiles agree in: four scores, each with an interval.

Spearman's rank correlation (is the order of positions right?) and the 1-Wasserstein distance on positions
divided by n − 1 (how far would mass have to move?), with and without the first token, which alone can decide
either.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, spearman, wasserstein

SCORES = ("spearman", "wasserstein", "spearman_without_first", "wasserstein_without_first")
"""The fields of `Agreement`, in the order of every axis called score."""
LEAST_PROMPTS = 4
"""With fewer prompts neither resampling them nor leaving them out says how sure a score is: no interval."""


@dataclass(frozen=True)
class Agreement:
    """Spearman and 1-Wasserstein of two profiles, with and without the first token.

    Each is NaN where it is undefined, and has no interval with fewer than `LEAST_PROMPTS` prompts. Of a
    prediction: by Student's t from the bootstrap's standard error over prompts (√(n/(n − 1)) times that of the
    resamples), within what the score can be. It is about the score against a mean of **as many** prompts. Noise in
    that mean lowers Spearman and raises Wasserstein for every prediction alike; the interval does not reach for
    the score without noise. Of a row of `Reliability`: where 95 % of such scores lie, with no standard error.
    """

    spearman: Estimate
    wasserstein: Estimate
    spearman_without_first: Estimate
    wasserstein_without_first: Estimate

    @classmethod
    def of(
        cls,
        values: Float[np.ndarray, "score"],
        low: Float[np.ndarray, "score"] | None = None,
        high: Float[np.ndarray, "score"] | None = None,
    ) -> "Agreement":
        """The four scores in the order of `SCORES`; one that is NaN, or an end of it, has no interval."""
        scores = []
        for place, value in enumerate(values.tolist()):
            ends = None if low is None or high is None else (float(low[place]), float(high[place]))
            defined = ends is not None and not any(map(math.isnan, (value, *ends)))
            scores.append(Estimate(value, math.nan, ends=ends if defined else None))
        return cls(*scores)

    @classmethod
    def estimated(
        cls,
        estimates: Sequence[Estimate],
        least: Sequence[float] = (-math.inf,) * len(SCORES),
        most: float = math.inf,
    ) -> "Agreement":
        """The four scores in the order of `SCORES`, with the part of each interval from `least` to `most`."""
        scores = []
        for one, bound in zip(estimates, least, strict=True):
            low, high = one.interval
            ends = (max(bound, low), min(most, high)) if one.known else None
            scores.append(replace(one, se=one.se if one.known else math.nan, ends=ends))
        return cls(*scores)


def scores(
    p: Float[np.ndarray, "*#batch position"], q: Float[np.ndarray, "*#batch position"], masses: bool
) -> Float[np.ndarray, "score *batch"]:
    """The four scores; Wasserstein is NaN unless both are `masses`.

    Without the first token what is left of a mass is divided by its sum (NaN where nothing is).
    """
    found = []
    for first in (0, 1):
        a, b = p[..., first:], q[..., first:]
        found.append(spearman(a, b))
        if not masses:
            found.append(np.full(found[-1].shape, math.nan))
        else:
            found.append(wasserstein(_whole(a), _whole(b)) if first else wasserstein(a, b))
    return np.array(found)


def means(
    profile: Profile, counts: Float[np.ndarray, "resample prompt"]
) -> Float[np.ndarray, "resample position"]:
    """Influence over prompts that count so often: their mean, of a mass divided by its sum (Eq. 6)."""
    sums = counts @ np.asarray(profile.samples)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / (sums if profile.kind == "mass" else counts).sum(axis=1, keepdims=True)


def counted(drawn: Int[np.ndarray, "resample draw"], prompts: int) -> Float[np.ndarray, "resample prompt"]:
    """How often each prompt occurs in each resample."""
    rows = np.repeat(np.arange(len(drawn)), drawn.shape[1])
    counts = np.zeros((len(drawn), prompts))
    np.add.at(counts, (rows, drawn.reshape(-1)), 1.0)
    return counts


def same_prompts(p: Profile, q: Profile) -> bool:
    """Whether two profiles are measurements of the same prompts, by what names these (`attrs["prompts"]`)."""
    if p.samples is None or q.samples is None or p.attrs.get("prompts") is None:
        return False
    return p.attrs.get("prompts") == q.attrs.get("prompts") and len(p.samples) == len(q.samples)


def _whole(mass: Float[np.ndarray, "*batch position"]) -> Float[np.ndarray, "*batch position"]:
    with np.errstate(invalid="ignore"):
        return mass / mass.sum(axis=-1, keepdims=True)
