"""Numbers of an ensemble: one per member, with two errors.

Over members: how much a number varies from network to network, with all that differs between them (initial
weights, training data, test sequences). Over sequences: how well the numbers of these very networks are known.
A member whose training was stopped has no number: NaN, left out of the estimates, null in JSON.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.profiles.estimate import Estimate

ZERO = 1e-9
"""A number of at most this is none."""


@dataclass(frozen=True, eq=False)
class Averages:
    """Each member's mean over its `counts` sequences, and the standard error of that mean over sequences."""

    values: Float[np.ndarray, "member"]
    errors: Float[np.ndarray, "member"]
    counts: Int[np.ndarray, "member"]

    @property
    def over_members(self) -> Estimate:
        """Mean over members with its standard error, which is NaN for one member."""
        return estimate_members(self.values)

    @property
    def over_sequences(self) -> Estimate:
        """The same mean with the error that the choice of sequences alone gives it."""
        kept = np.isfinite(self.values)
        if not kept.any():
            return Estimate(math.nan, math.nan, 1)
        error = float(np.sqrt((self.errors[kept] ** 2).sum()) / kept.sum())
        return Estimate(float(self.values[kept].mean()), error, int(self.counts[kept].sum()))

    @property
    def estimate(self) -> Estimate:
        """Over members; of a single one, with the error over its sequences."""
        over_members = self.over_members
        return over_members if over_members.known else self.over_sequences

    def only(self, members: Bool[np.ndarray, "member"]) -> "Averages":
        """The same with NaN for every other member."""
        values, errors = (np.where(members, held, np.nan) for held in (self.values, self.errors))
        return Averages(values, errors, self.counts)


def average(
    samples: Float[np.ndarray, "member sequence"], keep: Bool[np.ndarray, "member sequence"]
) -> Averages:
    """Each member's mean over the kept sequences: NaN for none, its error NaN for fewer than two."""
    counts = keep.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(keep, samples, 0.0).sum(axis=1) / counts
        squares = np.where(keep, samples - means[:, None], 0.0) ** 2
        errors = np.sqrt(squares.sum(axis=1) / (counts - 1.0) / counts)
    errors[counts < 2] = np.nan
    return Averages(means, errors, counts)


def estimate_members(values: Float[np.ndarray, "member"]) -> Estimate:
    """Mean and standard error over members without those that are NaN; NaN where none is left.

    A number that is the same for all of several members, such as a prediction, has exactly no error.
    """
    kept = values[np.isfinite(values)]
    if kept.size > 1 and (kept == kept[0]).all():
        return Estimate(float(kept[0]), 0.0, kept.size)
    return Estimate.of_mean(kept) if kept.size else Estimate(math.nan, math.nan, 1)


def sign(estimate: Estimate) -> int:
    """−1 or 1 where a number is told from zero at 95 % (Student's t), else 0."""
    low, high = estimate.interval
    return int(low > ZERO) - int(high < -ZERO)
