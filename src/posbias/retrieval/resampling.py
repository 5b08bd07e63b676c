"""Means over document sets, and intervals from a bootstrap that takes whole sets.

All that is told of a set (its answer at every place, its control arms) goes into a resample together, so what
makes a set hard cancels in differences. Percentiles are widened as Student's t is (the expanded percentile
interval of Hesterberg 2015, "What teachers should know about the bootstrap"): plain ones are too short for few
sets. Where all sets agree a resample has no spread, and their number alone speaks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.core import seeds
from posbias.profiles.estimate import MOST_DRAWS, otherwise_at_most, quantile_of_t

RESAMPLES = 4000
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Resampled:
    """A mean over `n` document sets, its standard error, and its 95 % interval from the paired bootstrap.

    `narrow` is its 90 % interval. Where `together` intervals hold at once, both are wider accordingly.
    """

    value: float
    se: float
    interval: tuple[float, float]
    n: int
    narrow: tuple[float, float] = (-math.inf, math.inf)
    together: int = 1

    @property
    def half_width(self) -> float:
        return (self.interval[1] - self.interval[0]) / 2

    @property
    def sign(self) -> int:
        """1 or −1 where the interval lies on one side of 0, else 0."""
        low, high = self.interval
        return int(low > 0) - int(high < 0)

    def within(self, bound: float) -> bool:
        """Whether the 90 % interval lies within ± `bound`: equivalence, by two one-sided tests at 5 %.

        And no nearer to the bound than a true difference of that size may seem (variance δ − δ²): where few trials
        differ, resamples alone would promise too much.
        """
        freedom = max(1.0, self.n - 1.0)
        reach = quantile_of_t(freedom, 1 - 0.05 / self.together) * math.sqrt(bound * (1 - bound) / freedom)
        return -bound <= self.narrow[0] and self.narrow[1] <= bound and abs(self.value) + reach <= bound

    @property
    def detectable(self) -> float:
        """The least true difference of shares whose interval leaves out 0 in 80 % of experiments.

        k·se with k = t(.975) + t(.8), were the spread as seen; at least k²/(n − 1 + k²), where a difference of so
        many trials, each right at one place and wrong at the other, would lie (variance δ − δ²).
        """
        freedom = max(1.0, self.n - 1.0)
        k = quantile_of_t(freedom, 1 - 0.025 / self.together) + quantile_of_t(freedom, 0.8)
        return max(0.0 if math.isnan(self.se) else k * self.se, k**2 / (freedom + k**2))

    def sets_for(self, half_width: float) -> int:
        """About how many sets an interval of ± `half_width` needs, were the spread as seen.

        The least n with t(n − 1)·σ/√n ≤ half_width; without spread, with 1 − .05^(1/n) ≤ half_width.
        `MOST_DRAWS` + 1 stands for every number above `MOST_DRAWS`.
        """
        from scipy.special import stdtrit

        draws = np.arange(2, MOST_DRAWS + 1)
        if self.se > 0:
            reach = stdtrit(draws - 1, 0.975) * self.se * np.sqrt(self.n / draws)
        else:
            reach = np.array([otherwise_at_most(int(one)) for one in draws])
        enough = np.flatnonzero(reach <= half_width)
        return int(draws[enough[0]]) if enough.size else MOST_DRAWS + 1

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {"value": self.value, "se": self.se, "interval": list(self.interval), "n": self.n}


def apart(one: Resampled, other: Resampled) -> Resampled:
    """The difference of two means over sets that have nothing to do with each other, one less the other.

    Its interval is made of theirs: each end lies as far off as the root of the sum of squares of how far the two
    means may be off that way ("MOVER": Zou & Donner 2008, Statistics in Medicine 27; Newcombe 1998 for shares). It
    has the level of theirs.
    """
    value, ends = one.value - other.value, []
    for (low, high), (other_low, other_high) in ((one.interval, other.interval), (one.narrow, other.narrow)):
        down = math.hypot(one.value - low, other_high - other.value)
        up = math.hypot(high - one.value, other.value - other_low)
        ends.append((value - down, value + up))
    return Resampled(value, math.hypot(one.se, other.se), ends[0], min(one.n, other.n), ends[1], one.together)


def resampled(
    samples: Float[np.ndarray, "set quantity"],
    limits: Sequence[tuple[float, float]],
    seed: int = 0,
    together: int = 1,
) -> list[Resampled]:
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
        found.append(Resampled(float(means[k]), se, ends[0], sets, ends[1], together))
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
