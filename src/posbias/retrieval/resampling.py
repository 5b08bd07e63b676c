"""Means over document sets, and intervals from a bootstrap that takes whole sets.

All that is told of a set (its answer at every place, its control arms) goes into a resample together, so what
makes a set hard cancels in differences. Percentiles are widened as Student's t is (the expanded percentile
interval of Hesterberg 2015, "What teachers should know about the bootstrap"): plain ones are too short for few
sets. Where all sets agree a resample has no spread, and their number alone speaks.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from posbias.core import seeds
from posbias.profiles.estimate import Estimate, otherwise_at_most, quantile_of_t

RESAMPLES = 4000
_AT_ONCE = 4_000_000


def resampled(
    samples: Float[np.ndarray, "set quantity"],
    limits: Sequence[tuple[float, float]],
    seed: int = 0,
    together: int = 1,
) -> list[Estimate]:
    """The mean of each column over the sets, with intervals from resamples that all columns share.

    `limits` are the least and the most that a column can be: an interval stays within them. A column without
    spread has the interval of the number of sets alone: at most 1 − .05^(1/n) of all sets differ from those seen.
    `together` intervals hold at once in 95 % of experiments (Bonferroni: each in 1 − .05/`together`).
    """
    sets = len(samples)
    means = samples.mean(axis=0)
    errors = samples.std(axis=0, ddof=1) / math.sqrt(sets) if sets > 1 else np.full(len(means), math.inf)
    drawn = _means(samples, seed, RESAMPLES * together) if sets > 1 else np.empty((0, len(means)))
    found = []
    for k, (least, most) in enumerate(limits):
        ends = []
        for miss in (0.05 / together, 0.1 / together):
            if errors[k] > 0 and sets > 1:
                low, high = np.quantile(drawn[:, k], _tails(sets, miss)).tolist()
            else:
                others = otherwise_at_most(sets, miss)
                low, high = means[k] - others * (means[k] - least), means[k] + others * (most - means[k])
            ends.append((float(max(least, low)), float(min(most, high))))
        se = float(errors[k]) if sets > 1 else math.nan
        found.append(
            Estimate(
                float(means[k]),
                se,
                sets,
                ends=ends[0],
                narrow=ends[1],
                method="bootstrap",
                together=together,
            )
        )
    return found


def _tails(sets: int, miss: float) -> list[float]:
    from scipy.special import ndtr

    tail = float(ndtr(-quantile_of_t(sets - 1, 1.0 - miss / 2) * math.sqrt(sets / (sets - 1))))
    return [tail, 1.0 - tail]


def _means(
    samples: Float[np.ndarray, "set quantity"], seed: int, resamples: int
) -> Float[np.ndarray, "resample quantity"]:
    random = seeds.stream(seed, "retrieval.bootstrap")
    sets = len(samples)
    at_once = max(1, _AT_ONCE // sets)
    parts = []
    for begin in range(0, resamples, at_once):
        many = min(at_once, resamples - begin)
        rows = np.repeat(np.arange(many), sets) * sets + random.integers(sets, size=many * sets)
        counts = np.bincount(rows, minlength=many * sets).reshape(many, sets)
        parts.append(counts @ samples / sets)
    return np.concatenate(parts)
