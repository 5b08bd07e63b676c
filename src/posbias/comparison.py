"""How well two profiles agree, never without the scale to read it on.

Beside the scores of `posbias.agreement` always stand what two ignorant profiles reach (uniform; recency only) and
what noise in the reference allows (`posbias.reliability`). Which of two predictions is better is decided by the
difference of their scores as prompts are left out one at a time: noise in the reference, which both share, drops
out. Predictions made from statistics of the reference's own prompts are also judged held out: fitted on one half
of the prompts, scored on the other, both ways.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.agreement import NORMAL_95, SCORES, Agreement, Score, counted, means, scores
from posbias.errors import InvalidValueError
from posbias.held_out import Fold
from posbias.profile import Profile, harmonic, uniform
from posbias.reliability import Reliability, reliability
from posbias.seeds import stream

__all__ = ["Agreement", "Comparison", "Difference", "HeldOut", "Score", "compare", "compare_all"]

RESAMPLES = 1000
"""Bootstrap resamples of the prompts."""
_LEAST: Float[np.ndarray, "score"] = np.array(
    [-1.0 if name.startswith("spearman") else 0.0 for name in SCORES]
)
"""The least that a score can be; the most is 1."""


@dataclass(frozen=True)
class Difference:
    """The scores of `more` minus those of `less`, paired: on the same prompts, the same one left out at a time.

    A 95 % interval (jackknife) on one side of zero decides which is better; one that holds zero leaves it open.
    Where few of some 32 prompts outweigh the others, intervals of Wasserstein hold the truth in 80 % only.
    """

    more: str
    less: str
    scores: Agreement

    def as_dict(self) -> dict[str, Any]:
        """The names and the four differences, ready for JSON."""
        return {"more": self.more, "less": self.less, **self.scores.as_dict()}


@dataclass(frozen=True)
class HeldOut:
    """Scores of predictions fitted on one half of the prompts and judged on the other, mean of both ways.

    A half is a noisier judge than the whole: the noise ceiling of these scores is `Reliability.noiseless_half`.
    Intervals resample the prompts that judge, with each fitted prediction held fixed.
    """

    agreements: dict[str, Agreement]
    baselines: dict[str, Agreement]
    differences: tuple[Difference, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, ready for JSON."""
        return {
            "agreements": {name: one.as_dict() for name, one in self.agreements.items()},
            "baselines": {name: one.as_dict() for name, one in self.baselines.items()},
            "differences": [one.as_dict() for one in self.differences],
        }


@dataclass(frozen=True)
class Comparison:
    """Agreement of one or more profiles with a reference, beside its baselines and what its noise allows.

    `baselines` holds "uniform" (its Spearman is undefined: every rank is tied) and "recency_only" (mass as
    1/(distance + 1)). `reliability` is None with fewer than four prompts; `differences` are those of every pair of
    profiles; `held_out` is None where no predictions from halves of the prompts were given.
    """

    agreements: dict[str, Agreement]
    baselines: dict[str, Agreement]
    reliability: Reliability | None
    differences: tuple[Difference, ...] = ()
    held_out: HeldOut | None = None

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, ready for JSON."""
        return {
            "agreements": {name: one.as_dict() for name, one in self.agreements.items()},
            "baselines": {name: one.as_dict() for name, one in self.baselines.items()},
            "reliability": None if self.reliability is None else self.reliability.as_dict(),
            "differences": [one.as_dict() for one in self.differences],
            "held_out": None if self.held_out is None else self.held_out.as_dict(),
        }


def compare(p: Profile, q: Profile, *, seed: int = 0) -> Comparison:
    """Compare `p` with the reference `q`; the result's only agreement is called "p".

    Profiles that are no mass (`Profile.kind`) are compared by rank; Wasserstein is NaN then. Where `q` has
    prompts, they are resampled (1,000 times, from `seed`) with `p` held fixed, and parted in groups to see how
    noisy they are. Positions after the query are left out. Raises `InvalidValueError` if the profiles differ in
    length or query, or have fewer than three positions.
    """
    return compare_all({"p": p}, q, seed=seed)


def compare_all(
    predictions: Mapping[str, Profile], measured: Profile, *, held_out: Sequence[Fold] = (), seed: int = 0
) -> Comparison:
    """Compare each prediction with the reference `measured`, as `compare` does, and with each other.

    `held_out` are predictions from a part of the prompts, to be judged on the rest (`posbias.held_out.folds`).
    """
    _check(predictions, measured)
    measured = _seen(measured, "q")
    if measured.tokens < 3:
        raise InvalidValueError(f"q: {measured.tokens} positions given, at least 3 needed to compare")
    judge = _Judge.of(measured, seed)
    found = {name: judge.score(one, name) for name, one in predictions.items()}
    baselines = _baselines(measured.tokens)
    return Comparison(
        {name: _agreement(one) for name, one in found.items()},
        {name: _agreement(judge.score(one, name)) for name, one in baselines.items()},
        reliability(measured, seed),
        _differences(found),
        _held_out(held_out, measured, seed) if held_out else None,
    )


def _baselines(tokens: int) -> dict[str, Profile]:
    return {"uniform": uniform(tokens), "recency_only": harmonic(tokens)}


def _check(predictions: Mapping[str, Profile], measured: Profile) -> None:
    for name, profile in predictions.items():
        if profile.tokens != measured.tokens:
            raise InvalidValueError(
                f"{name}: {profile.tokens} positions given, {measured.tokens} needed, as in the reference"
            )
        if profile.query != measured.query:
            raise InvalidValueError(
                f"{name}: influence on position {profile.query} given, on {measured.query} needed, as in the "
                "reference"
            )


def _seen(profile: Profile, name: str) -> Profile:
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
    if profile.kind != "mass":
        return Profile(profile.mass[:last], samples=samples, kind=profile.kind)
    return Profile.from_weights(profile.mass[:last], samples=samples)


@dataclass(frozen=True)
class _Judge:
    """The reference, with its mean over resamples of its prompts and over all but one; None without prompts."""

    profile: Profile
    resampled: Float[np.ndarray, "resample position"] | None
    all_but_one: Float[np.ndarray, "prompt position"] | None

    @classmethod
    def of(cls, measured: Profile, seed: int, name: str = "compare.bootstrap") -> "_Judge":
        if measured.samples is None or len(measured.samples) < 2:
            return cls(measured, None, None)
        prompts = len(measured.samples)
        drawn = stream(seed, name).integers(prompts, size=(RESAMPLES, prompts))
        return cls(measured, means(measured, counted(drawn, prompts)), means(measured, 1 - np.eye(prompts)))

    def score(self, prediction: Profile, name: str) -> "_Scored":
        """The scores of a prediction; `name` is for errors."""
        mass = _seen(prediction, name).mass
        masses = prediction.kind == self.profile.kind == "mass"
        value = scores(mass, self.profile.mass, masses)
        if self.resampled is None or self.all_but_one is None:
            return _Scored(value, None, None)
        without = scores(mass, self.all_but_one, masses)
        prompts = without.shape[1]
        shifts = np.sqrt((prompts - 1) / prompts) * (without - without.mean(axis=1, keepdims=True))
        return _Scored(value, scores(mass, self.resampled, masses), shifts)


@dataclass(frozen=True)
class _Scored:
    """The scores of one prediction: `drawn` on each resample, `shifts` by each prompt that is left out.

    The squares of the shifts sum to the jackknife's variance. None without prompts.
    """

    value: Float[np.ndarray, "score"]
    drawn: Float[np.ndarray, "score resample"] | None
    shifts: Float[np.ndarray, "score prompt"] | None


def _agreement(found: _Scored) -> Agreement:
    """value ± 1.96 standard errors of the bootstrap, the part of it that the score can take."""
    if found.drawn is None:
        return Agreement.of(found.value)
    reach = NORMAL_95 * found.drawn.std(axis=1, ddof=1)
    return Agreement.of(
        found.value, np.maximum(_LEAST, found.value - reach), np.minimum(1.0, found.value + reach)
    )


def _differences(found: Mapping[str, _Scored]) -> tuple[Difference, ...]:
    """Those of every pair, the earlier minus the later: value ± 1.96 standard errors of the jackknife."""
    differences = []
    for more, less in combinations(found, 2):
        a, b = found[more], found[less]
        value, low, high = a.value - b.value, None, None
        if a.shifts is not None and b.shifts is not None:
            reach = NORMAL_95 * np.sqrt(((a.shifts - b.shifts) ** 2).sum(axis=1))
            low, high = value - reach, value + reach
        differences.append(Difference(more, less, Agreement.of(value, low, high)))
    return tuple(differences)


def _held_out(folds: Sequence[Fold], measured: Profile, seed: int) -> HeldOut:
    """Each fold's predictions against the mean of the prompts it may be judged on; the mean over folds."""
    if measured.samples is None:
        raise InvalidValueError("q: no prompts given, some to judge held-out predictions on needed")
    samples = np.asarray(measured.samples)
    by_fold = []
    for number, fold in enumerate(folds):
        judge = _Judge.of(Profile.from_samples(samples[fold.judged]), seed, f"compare.held_out.{number}")
        _check(fold.predictions, judge.profile)
        profiles = dict(fold.predictions) | _baselines(measured.tokens)
        by_fold.append({name: judge.score(one, name) for name, one in profiles.items()})
    found = {name: _mean([scored[name] for scored in by_fold]) for name in by_fold[0]}
    baselines = {name: _agreement(found.pop(name)) for name in _baselines(measured.tokens)}
    return HeldOut({name: _agreement(one) for name, one in found.items()}, baselines, _differences(found))


def _mean(found: Sequence[_Scored]) -> _Scored:
    """The mean of scores on different prompts."""
    value = np.mean([one.value for one in found], axis=0)
    drawn = [one.drawn for one in found if one.drawn is not None]
    shifts = [one.shifts / len(found) for one in found if one.shifts is not None]
    if len(drawn) < len(found):
        return _Scored(value, None, None)
    return _Scored(value, np.mean(drawn, axis=0), np.concatenate(shifts, axis=1))
