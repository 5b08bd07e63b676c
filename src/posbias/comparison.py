"""How well two profiles agree, never without the scale to read it on.

Two numbers say it: Spearman's rank correlation (is the order of positions right?) and the 1-Wasserstein
distance on positions divided by n − 1 (how far would mass have to move?). Both are also given without the
first token, which alone can decide either. Beside them always stand what two ignorant profiles reach
(uniform; recency only) and the ceiling, how well one half of the prompts agrees with the other.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from posbias.errors import InvalidValueError
from posbias.profile import Profile, harmonic, spearman, uniform, wasserstein
from posbias.seeds import stream

RESAMPLES = 1000
"""Bootstrap resamples, and random splits of the prompts."""


@dataclass(frozen=True)
class Score:
    """A number and its 95 % interval; NaN where it is undefined, None where there are no prompts.

    Of an agreement: value ± 1.96 bootstrap standard errors over prompts, within what the score can be. It is
    about the score against a mean of **as many** prompts. Noise in that mean lowers Spearman and raises
    Wasserstein for every prediction alike; the interval does not reach for the score without noise.
    Of the ceiling: 95 % of the random splits.
    """

    value: float
    interval: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON: NaN becomes null."""
        value = None if math.isnan(self.value) else self.value
        return {"value": value, "interval": None if self.interval is None else list(self.interval)}


@dataclass(frozen=True)
class Agreement:
    """Spearman and 1-Wasserstein of two profiles, with and without the first token."""

    spearman: Score
    wasserstein: Score
    spearman_without_first: Score
    wasserstein_without_first: Score

    def as_dict(self) -> dict[str, Any]:
        """The four scores by name, ready for JSON."""
        return {name: getattr(self, name).as_dict() for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Comparison:
    """Agreement of one or more profiles with a reference, beside its baselines and its ceiling.

    `baselines` holds "uniform" (its Spearman is undefined: every rank is tied) and "recency_only" (mass as
    1/(distance + 1)). `ceiling` is the agreement of two random halves of the reference's prompts: its value
    is the mean over splits, its interval holds 95 % of them; None without prompts. A half is noisier than
    the whole, so a good prediction may score slightly better than the ceiling.
    """

    agreements: dict[str, Agreement]
    baselines: dict[str, Agreement]
    ceiling: Agreement | None

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, ready for JSON."""
        return {
            "agreements": {name: one.as_dict() for name, one in self.agreements.items()},
            "baselines": {name: one.as_dict() for name, one in self.baselines.items()},
            "ceiling": None if self.ceiling is None else self.ceiling.as_dict(),
        }


def compare(p: Profile, q: Profile, *, seed: int = 0) -> Comparison:
    """Compare `p` with the reference `q`; the result's only agreement is called "p".

    Profiles that are no mass (`Profile.kind`) are compared by rank; Wasserstein is NaN then. Where `q` has
    prompts, they are resampled (1,000 times, from `seed`) with `p` held fixed, and split in halves for the
    ceiling. Positions after the query are left out. Raises `InvalidValueError` if the profiles differ in
    length or query, or have fewer than three positions.
    """
    return compare_all({"p": p}, q, seed=seed)


def compare_all(predictions: Mapping[str, Profile], measured: Profile, *, seed: int = 0) -> Comparison:
    """Compare each prediction with the reference `measured`, as `compare` does."""
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
    measured = _seen(measured, "q")
    if measured.tokens < 3:
        raise InvalidValueError(f"q: {measured.tokens} positions given, at least 3 needed to compare")
    resampled = _bootstrap(measured, seed)
    baselines = {"uniform": uniform(measured.tokens), "recency_only": harmonic(measured.tokens)}
    return Comparison(
        {name: _agreement(_seen(one, name), measured, resampled) for name, one in predictions.items()},
        {name: _agreement(profile, measured, resampled) for name, profile in baselines.items()},
        _ceiling(measured, seed),
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


def _bootstrap(measured: Profile, seed: int) -> Float[np.ndarray, "resample position"] | None:
    """Normalised means of the reference over prompts drawn with replacement."""
    if measured.samples is None or len(measured.samples) < 2:
        return None
    prompts = len(measured.samples)
    drawn = stream(seed, "compare.bootstrap").integers(prompts, size=(RESAMPLES, prompts))
    return _means(measured, _counts(drawn, prompts))


def _ceiling(measured: Profile, seed: int) -> Agreement | None:
    """Agreement of random halves of the prompts."""
    if measured.samples is None or len(measured.samples) < 4:
        return None
    prompts = len(measured.samples)
    order = stream(seed, "compare.halves").permuted(np.tile(np.arange(prompts), (RESAMPLES, 1)), axis=1)
    half = prompts // 2
    first = _means(measured, _counts(order[:, :half], prompts))
    second = _means(measured, _counts(order[:, half : 2 * half], prompts))
    scores = []
    for skip in (0, 1):
        a, b = _skip(first, skip, measured), _skip(second, skip, measured)
        scores += [_spread(spearman(a, b)), _spread(_measure(wasserstein, measured)(a, b))]
    return Agreement(*scores)


def _counts(drawn: Int[np.ndarray, "resample draw"], prompts: int) -> Float[np.ndarray, "resample prompt"]:
    """How often each prompt occurs in each resample."""
    rows = np.repeat(np.arange(len(drawn)), drawn.shape[1])
    counts = np.zeros((len(drawn), prompts))
    np.add.at(counts, (rows, drawn.reshape(-1)), 1.0)
    return counts


def _means(
    measured: Profile, counts: Float[np.ndarray, "resample prompt"]
) -> Float[np.ndarray, "resample position"]:
    """Each resample's influence: its prompts' mean, of a mass divided by its sum (Eq. 6)."""
    sums = counts @ np.asarray(measured.samples)
    return sums / (sums if measured.kind == "mass" else counts).sum(axis=1, keepdims=True)


def _measure(measure: Callable[..., np.ndarray], *profiles: Profile) -> Callable[..., np.ndarray]:
    """The score, which is NaN where it asks for masses and a profile is none."""
    if measure is spearman or all(profile.kind == "mass" for profile in profiles):
        return measure
    return lambda p, q: np.full(np.broadcast_shapes(np.shape(p)[:-1], np.shape(q)[:-1]), math.nan)


def _skip(
    mass: Float[np.ndarray, "*batch position"], first: int, profile: Profile
) -> Float[np.ndarray, "*batch rest"]:
    """Leave out the first positions; what is left of a mass is divided by its sum (NaN where nothing is)."""
    rest = mass[..., first:]
    if not first or profile.kind != "mass":
        return rest
    with np.errstate(invalid="ignore"):
        return rest / rest.sum(axis=-1, keepdims=True)


def _agreement(p: Profile, q: Profile, resampled: np.ndarray | None) -> Agreement:
    scores = []
    for skip in (0, 1):
        mine, theirs = _skip(p.mass, skip, p), _skip(q.mass, skip, q)
        others = None if resampled is None else _skip(resampled, skip, q)
        for measure in (spearman, wasserstein):
            score = _measure(measure, p, q)
            value = float(score(mine, theirs))
            around = None if others is None else _around(value, score(mine, others), _RANGE[measure])
            scores.append(Score(value, around))
    return Agreement(*scores)


_RANGE = {spearman: (-1.0, 1.0), wasserstein: (0.0, 1.0)}


def _around(
    value: float, resampled: Float[np.ndarray, "resample"], limits: tuple[float, float]
) -> tuple[float, float] | None:
    """value ± 1.96 standard errors, the part of it that the score can take."""
    if np.isnan(resampled).any() or math.isnan(value):
        return None
    reach = 1.96 * float(resampled.std(ddof=1))
    return max(limits[0], value - reach), min(limits[1], value + reach)


def _spread(values: Float[np.ndarray, "split"]) -> Score:
    """The mean, and what holds 95 % of the values."""
    if np.isnan(values).any():
        return Score(float(values.mean()))
    low, high = np.quantile(values, [0.025, 0.975])
    return Score(float(values.mean()), (float(low), float(high)))
