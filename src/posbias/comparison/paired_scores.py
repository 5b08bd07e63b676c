"""Scores of predictions on the same prompts: how sure each is, and how sure it is which of two is better.

A score's own error is that of a bootstrap over the reference's prompts. Which of two predictions is better is
decided by the difference of their scores as prompts are left out one at a time: noise in the reference, which both
share, drops out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.core.seeds import stream
from posbias.profiles.agreement import (
    LEAST_PROMPTS,
    SCORES,
    Agreement,
    counted,
    means,
    same_prompts,
    scores,
)
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile

RESAMPLES = 1000
"""Bootstrap resamples of the prompts."""
_LEAST = tuple(-1.0 if name.startswith("spearman") else 0.0 for name in SCORES)
"""The least that a score can be; the most is 1."""


@dataclass(frozen=True)
class Difference:
    """The scores of `more` minus those of `less`, paired: on the same prompts, the same one left out at a time.

    A 95 % interval (jackknife, Student's t) on one side of zero decides which is better; one that holds zero
    leaves it open, and `prompts_to_tell` says about how many prompts it would take.
    Where few of some 32 prompts outweigh the others, intervals of Wasserstein hold the truth in 80 % only.
    """

    more: str
    less: str
    scores: Agreement

    @property
    def sides(self) -> dict[str, str]:
        """What `more` is beside `less` by each score: "better", "worse" or "open"; without a score that has none.

        By the interval or, where there is none (`Estimate.bounds`), by the value alone.
        """
        told = {}
        for name in SCORES:
            one: Estimate = getattr(self.scores, name)
            if not math.isnan(one.value):
                low, high = one.bounds or (one.value, one.value)
                better = low > 0 if name.startswith("spearman") else high < 0
                worse = high < 0 if name.startswith("spearman") else low > 0
                told[name] = "better" if better else "worse" if worse else "open"
        return told

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of each difference; None where it is decided or its error is not known."""
        return {name: getattr(self.scores, name).draws_to_tell() for name in SCORES}


@dataclass(frozen=True)
class Judge:
    """The reference, with its mean over resamples of its prompts and over all but one; None without prompts.

    `counts`: how often each prompt counts in each resample.
    """

    profile: Profile
    resampled: Float[np.ndarray, "resample position"] | None
    all_but_one: Float[np.ndarray, "prompt position"] | None
    counts: Float[np.ndarray, "resample prompt"] | None = None

    @classmethod
    def of(cls, measured: Profile, seed: int, name: str = "compare.bootstrap") -> "Judge":
        if measured.samples is None or len(measured.samples) < 2:
            return cls(measured, None, None)
        prompts = len(measured.samples)
        drawn = stream(seed, name).integers(prompts, size=(RESAMPLES, prompts))
        counts = counted(drawn, prompts)
        return cls(measured, means(measured, counts), means(measured, 1 - np.eye(prompts)), counts)

    def score(self, prediction: Profile, name: str) -> "Scored":
        """The scores of a prediction; `name` is for errors.

        A measurement of the same prompts is resampled with them; any other prediction is held fixed.
        """
        given = up_to_query(prediction, name)
        mass = given.mass
        masses = prediction.kind == self.profile.kind == "mass"
        value = scores(mass, self.profile.mass, masses)
        if self.resampled is None or self.all_but_one is None or self.counts is None:
            return Scored(value, np.full(value.size, math.nan), np.empty((value.size, 0)))
        prompts = len(self.all_but_one)
        both = [mass, mass]
        if same_prompts(given, self.profile):
            both = [means(given, counts) for counts in (1 - np.eye(prompts), self.counts)]
        without, drawn = scores(both[0], self.all_but_one, masses), scores(both[1], self.resampled, masses)
        shifts = np.sqrt((prompts - 1) / prompts) * (without - without.mean(axis=1, keepdims=True))
        # resamples of n vary as (n − 1)/n of the prompts' variance does
        return Scored(value, drawn.std(axis=1, ddof=1) * np.sqrt(prompts / (prompts - 1)), shifts)


@dataclass(frozen=True)
class Scored:
    """The scores of one prediction: the bootstrap's standard error, `shifts` by each prompt that is left out.

    The squares of the shifts sum to the jackknife's variance; there are none without prompts, and `se` is NaN.
    """

    value: Float[np.ndarray, "score"]
    se: Float[np.ndarray, "score"]
    shifts: Float[np.ndarray, "score prompt"]

    @property
    def prompts(self) -> int:
        return self.shifts.shape[1]


def mean_agreement(folds: Sequence[Scored]) -> Agreement:
    """The mean of scores over folds (or the only one), with intervals from the bootstrap."""
    mean = _mean([one.value for one in folds], [one.se for one in folds], [one.prompts for one in folds])
    return Agreement.estimated(mean, _LEAST, 1.0)


def differences_of(
    found: Mapping[str, Sequence[Scored]],
    pairs: Iterable[tuple[str, str]],
    others: Mapping[str, Sequence[Scored]] | None = None,
) -> tuple[Difference, ...]:
    """Those of the pairs, the first minus the second (of `others`), with intervals from the jackknife."""
    differences = []
    for more, less in pairs:
        folds = list(zip(found[more], (others or found)[less], strict=True))
        values = [a.value - b.value for a, b in folds]
        errors = [np.sqrt(((a.shifts - b.shifts) ** 2).sum(axis=1)) for a, b in folds]
        mean = _mean(values, errors, [a.prompts for a, _ in folds])
        differences.append(Difference(more, less, Agreement.estimated(mean)))
    return tuple(differences)


def _mean(
    values: Sequence[Float[np.ndarray, "score"]],
    errors: Sequence[Float[np.ndarray, "score"]],
    prompts: Sequence[int],
) -> list[Estimate]:
    """The mean over folds by score, with Welch's degrees of freedom; no error with fewer than `LEAST_PROMPTS`."""
    if sum(prompts) < LEAST_PROMPTS or min(prompts) < 2:
        return [Estimate(float(one), math.nan, 1) for one in np.mean(values, axis=0)]
    found = []
    for value, se in zip(np.transpose(values), np.transpose(errors), strict=True):
        folds = zip(value.tolist(), se.tolist(), prompts, strict=True)
        mean = reduce(add, (Estimate(*fold) for fold in folds)).scaled(1 / len(values))
        found.append(Estimate(mean.value, mean.se, sum(prompts), mean.freedom))
    return found


def up_to_query(profile: Profile, name: str) -> Profile:
    """The profile over positions 0 … query alone: later ones are empty by causality and say nothing."""
    last = profile.query + 1
    if last == profile.tokens:
        return profile
    if profile.mass[last:].any():
        raise InvalidValueError(
            f"{name}: influence of positions after the query {profile.query} given; to compare, a query at the "
            "end of the text needed"
        )
    samples = None if profile.samples is None else profile.samples[:, :last]
    return replace(profile, mass=profile.mass[:last], samples=samples, se=None, query=-1)
