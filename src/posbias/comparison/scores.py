"""How well two profiles agree, never without the scale to read it on.

With the scores of `agreement` always stand what two ignorant profiles reach (uniform; 1/(distance + 1))
and what noise in the reference allows (`reliability`). A score's own error is that of a bootstrap over the
reference's prompts. Which of two predictions is better is decided by the difference of their scores as prompts
are left out one at a time: noise in the reference, which both share, drops out. Predictions made from statistics
of the reference's own prompts are also judged held out: fitted on one half, scored on the other, both ways.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations, product
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from posbias.comparison.agreement import (
    SCORES,
    Agreement,
    Reliability,
    means,
    paired_ceiling,
    reliability,
    same_prompts,
    scores,
)
from posbias.comparison.predictors import Fold
from posbias.core.errors import whole, wrong
from posbias.core.machine import stream
from posbias.core.plotting import Plottable
from posbias.imports import read
from posbias.profiles.estimate import Estimate, counted
from posbias.profiles.place_differences import CurveDifference, profile_difference
from posbias.profiles.profile import Profile, harmonic, uniform
from posbias.profiles.summary import LEAST_PROMPTS

if TYPE_CHECKING:
    import pandas as pd

    from posbias.imports import AnyProfile

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
        """How `more` compares with `less` by each score, "better", "worse" or "open"; without those that are NaN.

        By the interval or, where there is none (`Estimate.bounds`), by the value alone.
        """
        found = {}
        for name in SCORES:
            one: Estimate = getattr(self.scores, name)
            if not math.isnan(one.value):
                more = one if name.startswith("spearman") else -one
                low, high = more.bounds or (more.value, more.value)
                found[name] = "better" if low > 0 else "worse" if high < 0 else "open"
        return found

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of each difference; None where it is decided or its error is not known."""
        return {name: getattr(self.scores, name).draws_to_tell() for name in SCORES}


@dataclass(frozen=True)
class HeldOut:
    """Scores of predictions fitted on one half of the prompts and judged on the other, mean of both ways.

    A half is a noisier judge than the whole: the noise ceiling of these scores is `Reliability.noiseless_half`.
    Intervals resample the prompts that judge, with each fitted prediction held fixed.
    """

    agreements: dict[str, Agreement]
    baselines: dict[str, Agreement]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, repr=False)
class Comparison(Plottable):
    """Agreement of one or more profiles with a reference, with its baselines and what its noise allows.

    `baselines` holds "uniform" (its Spearman is undefined: every rank is tied) and "recency_only" (mass as
    1/(distance + 1)). `reliability` is None with fewer than four prompts; `differences` are those of every
    pair of profiles, `leads` those of every profile minus every baseline; `held_out` is None where no
    predictions from halves of the prompts were given. `reference` and `profiles` are the curves as they were
    compared: over positions up to the query or, where lengths differed and it was asked for, over `shares`
    parts of the context. `between`: what two curves of rates with trials (retrieval by place) differ in, of which
    ranks say little. `same_prompts`: the noise ceiling of two measurements of the same prompts (`paired_ceiling`).
    """

    _drawn_by: ClassVar[str] = "draw_comparison"

    agreements: dict[str, Agreement]
    baselines: dict[str, Agreement]
    reliability: Reliability | None
    differences: tuple[Difference, ...] = ()
    held_out: HeldOut | None = None
    shares: int | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict, compare=False)
    reference: Profile = field(default_factory=lambda: uniform(1), compare=False)
    leads: tuple[Difference, ...] = ()
    between: CurveDifference | None = None
    same_prompts: Agreement | None = None

    @property
    def prompts(self) -> int | None:
        """How many prompts the intervals are over; None where the reference has none."""
        return None if self.reference.samples is None else len(self.reference.samples)

    def sentences(self) -> dict[str, str]:
        """For each profile whether it is better than uniform and than 1/(distance + 1), and by which score.

        Where its Spearman's interval holds 0 it says so. Of two curves of rates with trials, what they differ in
        instead.
        """
        if self.between is not None:
            return {name: "; ".join(self.between.sentences()) for name in self.agreements}
        others = {"uniform": "a uniform profile", "recency_only": "1/(distance + 1)"}
        words = {"better": "better than", "worse": "worse than", "open": "not significantly different from"}
        parts: dict[str, list[str]] = {name: [] for name in self.agreements}
        for lead, side in product(self.leads, words):
            by = [name.capitalize() for name in SCORES[:2] if lead.sides.get(name) == side]
            if by:
                parts[lead.more].append(f"{words[side]} {others[lead.less]} by {' and '.join(by)}")
        for name, one in self.agreements.items():
            low, high = one.spearman.bounds or (math.nan, math.nan)
            parts[name] += ["not shown to be related to the reference by rank"] * (low <= 0 <= high)
        return {name: "; ".join(said) for name, said in parts.items() if said}

    def to_dataframe(self) -> "pd.DataFrame":
        """A row for each profile, baseline and bound of noise; columns `role` and each score with its interval.

        An interval's ends are named SCORE_low and SCORE_high.
        """
        import pandas as pd

        rows = []
        for role, name, agreement in self._rows():
            row: dict[str, Any] = {"name": name, "role": role}
            for score in SCORES:
                found: Estimate = getattr(agreement, score)
                low, high = found.bounds or (math.nan, math.nan)
                row |= {score: found.value, f"{score}_low": low, f"{score}_high": high}
            rows.append(row)
        return pd.DataFrame(rows).set_index("name")

    def _words(self) -> str:
        head, *_ = repr(self).splitlines()
        return "; ".join([head, *(f"{name}: {said}" for name, said in self.sentences().items())])

    def __repr__(self) -> str:
        """A line for what was compared, one for each profile and baseline, and in words what one profile is."""
        where = f"{self.reference.tokens} positions"
        if self.shares is not None:
            where = f"{self.shares} shares of contexts of unlike length"
        of = f" of {self.prompts} prompts" if self.prompts else ""
        lines = [f"Comparison with a reference{of} at {where}"]
        lines += [
            f"{name}: Spearman {_said(one.spearman, 2)}, Wasserstein {_said(one.wasserstein, 3)}"
            for role, name, one in self._rows()
            if role in ("profile", "baseline")
        ]
        if len(self.agreements) == 1:
            lines += [f"{name}: {words}" for name, words in self.sentences().items()]
        return "\n".join(lines)

    def _rows(self) -> Iterator[tuple[str, str, Agreement]]:
        """Role, name and scores of everything compared."""
        for name, one in self.agreements.items():
            yield "profile", name, one
        for name, one in self.baselines.items():
            yield "baseline", name, one
        if self.reliability is not None:
            for name in self.reliability.__dataclass_fields__:
                yield "noise", name, getattr(self.reliability, name)
        if self.held_out is not None:
            for name, one in self.held_out.agreements.items():
                yield "held out", name, one


def _said(score: Estimate, digits: int) -> str:
    """A score in digits; a dash where it is undefined."""
    return "–" if math.isnan(score.value) else f"{score.value:.{digits}f}"


def compare(p: "AnyProfile", q: "AnyProfile", *, by_share: bool = False, seed: int = 0) -> Comparison:
    """Compare `p` with the reference `q`; the result's only agreement is called "p".

    - `p`: the profile that is judged, one number a position, or what `posbias.read` reads as a profile.
    - `q`: the reference, of the same length and query. Where it has prompts, they are resampled with `p` held
      fixed, and parted in groups to see how noisy they are; where `p` measured the same prompts, both are
      resampled together, and the noise ceiling is that of their differences (`Comparison.same_prompts`).
    - `by_share`: compare profiles of unlike length by share of the context: each is brought to as many equal
      shares as the shortest has positions (`Profile.by_share`), and the result says so (`shares`).
    - `seed`: of the 1,000 resamples, an integer ≥ 0.

    Profiles that are no mass (`Profile.kind`) are compared by rank; Wasserstein is NaN then. Two rates with trials
    (retrieval by place) have the differences between their curves too (`Comparison.between`). Positions after the
    query are left out. Raises `InvalidValueError` if the profiles differ in length or query without `by_share`, or
    have fewer than three positions (masses; others two).
    """
    p, q = read(p), read(q)
    found = compare_all({"p": p}, q, by_share=by_share, seed=seed)
    pair = found.profiles["p"], found.reference
    ceiling = paired_ceiling(*pair, seed) if found.reliability and same_prompts(*pair) else None
    return replace(found, between=profile_difference(p, q), same_prompts=ceiling)


def compare_all(
    predictions: "Mapping[str, AnyProfile]",
    measured: "AnyProfile",
    *,
    held_out: Sequence[Fold] = (),
    by_share: bool = False,
    seed: int = 0,
) -> Comparison:
    """Compare each prediction with the reference `measured`, as `compare` does, and with each other.

    `held_out` are predictions from a part of the prompts, to be judged on the rest (`folds`).
    """
    given, measured = {name: read(one) for name, one in predictions.items()}, read(measured)
    if not by_share:
        _check(given, measured)
    predictions = {name: up_to_query(one, name) for name, one in given.items()}
    measured = up_to_query(measured, "q")
    lengths = {one.tokens for one in (*predictions.values(), measured)}
    shares = min(lengths) if len(lengths) > 1 else None
    if shares is not None:
        if held_out:
            raise wrong("by_share", "profiles of one length with held_out predictions", got="several lengths")
        predictions = {name: one.by_share(shares) for name, one in predictions.items()}
        measured = measured.by_share(shares)
    least = 3 if measured.kind == "mass" else 2
    if measured.tokens < least:
        raise wrong("q", f"at least {least} positions to compare", measured.tokens)
    whole("seed", seed, 0)
    judge = Scorer.of(measured, seed)
    found = {name: [judge.score(one, name)] for name, one in predictions.items()}
    baselines = {name: [judge.score(one, name)] for name, one in _baselines(measured.tokens).items()}
    return Comparison(
        {name: mean_agreement(one) for name, one in found.items()},
        {name: mean_agreement(one) for name, one in baselines.items()},
        reliability(measured, seed),
        differences_of(found, combinations(found, 2)),
        _held_out(held_out, measured, seed) if held_out else None,
        shares,
        predictions,
        measured,
        differences_of(found, product(found, baselines), baselines),
    )


def _baselines(tokens: int) -> dict[str, Profile]:
    return {"uniform": uniform(tokens), "recency_only": harmonic(tokens)}


def _check(predictions: Mapping[str, Profile], measured: Profile) -> None:
    for name, profile in predictions.items():
        if profile.tokens != measured.tokens:
            got = f"{profile.tokens}; by_share=True (--by-share) compares by share of the context"
            raise wrong(name, f"{measured.tokens} positions as in the reference", got=got)
        if profile.query != measured.query:
            what = f"influence on position {measured.query} as in the reference"
            raise wrong(name, what, got=f"on {profile.query}")


def _held_out(folds: Sequence[Fold], measured: Profile, seed: int) -> HeldOut:
    """Each fold's predictions against the mean of the prompts it may be judged on; the mean over folds."""
    if measured.samples is None:
        raise wrong("q", "prompts to judge held-out predictions on", got="none")
    samples = np.asarray(measured.samples)
    found: dict[str, list[Scored]] = {}
    for number, fold in enumerate(folds):
        judge = Scorer.of(Profile.from_samples(samples[fold.judged]), seed, f"compare.held_out.{number}")
        _check(fold.predictions, judge.profile)
        for name, one in (dict(fold.predictions) | _baselines(measured.tokens)).items():
            found.setdefault(name, []).append(judge.score(one, name))
    baselines = {name: mean_agreement(found.pop(name)) for name in _baselines(measured.tokens)}
    agreements = {name: mean_agreement(one) for name, one in found.items()}
    return HeldOut(agreements, baselines, differences_of(found, combinations(found, 2)))


# --- how sure a score is -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scorer:
    """The reference, and its means over all prompts but one, each in turn, and over resamples of them.

    `counts` say how often each prompt counts in these; nothing where there are no prompts.
    """

    profile: Profile
    counts: tuple[Float[np.ndarray, "_ prompt"], ...] = ()
    means: tuple[Float[np.ndarray, "_ position"], ...] = ()

    @classmethod
    def of(cls, measured: Profile, seed: int, name: str = "compare.bootstrap") -> "Scorer":
        if measured.samples is None or len(measured.samples) < 2:
            return cls(measured)
        prompts = len(measured.samples)
        drawn = stream(seed, name).integers(prompts, size=(RESAMPLES, prompts))
        counts = 1 - np.eye(prompts), counted(drawn, prompts)
        return cls(measured, counts, tuple(means(measured, one) for one in counts))

    def score(self, prediction: Profile, name: str) -> "Scored":
        """The scores of a prediction; `name` is for errors.

        A measurement of the same prompts is resampled with them; any other prediction is held fixed.
        """
        given = up_to_query(prediction, name)
        masses = prediction.kind == self.profile.kind == "mass"
        value = scores(given.mass, self.profile.mass, masses)
        if not self.counts:
            return Scored(value, np.full(value.size, math.nan), np.empty((value.size, 0)))
        prompts, same = len(self.counts[0]), same_prompts(given, self.profile)
        ours = [means(given, one) if same else given.mass for one in self.counts]
        without, drawn = (scores(p, q, masses) for p, q in zip(ours, self.means, strict=True))
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
    return Agreement.estimated([one.clipped(least, 1.0) for one, least in zip(mean, _LEAST, strict=True)])


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
        raise wrong(name, "no influence after the query", got=f"some after position {profile.query}")
    samples = None if profile.samples is None else profile.samples[:, :last]
    return replace(profile, mass=profile.mass[:last], samples=samples, se=None, query=-1)
