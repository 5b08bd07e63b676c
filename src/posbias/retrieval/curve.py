"""Retrieval by position as a curve with intervals, from margins of a model that is opened or from its answers.

A curve means something only where the model can do the task. Of a model that is opened two things are asked first:
does it pick the right thing more often than by chance, and is the right thing more likely than when somebody else
is asked for? A model that copies whatever stands last passes the first question at that position, and fails the
second. Answers in words are right or wrong (`scoring`): there the arm without the fact says how often it is
guessed, and in a list whoever does not heed the question is right in one of K of lists in a drawn order, whatever
place they copy from.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.arguments import one_of, positive
from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Verdict
from posbias.profiles.telling import not_told
from posbias.retrieval import statistics
from posbias.retrieval.resampling import resampled
from posbias.retrieval.sentences import of_answers, of_margins
from posbias.retrieval.statistics import GAPS, gaps_of
from posbias.retrieval.trials import ABSENT, ALONE, ARMS, SHUFFLED
from posbias.retrieval.words import TOKENS_A_WORD

if TYPE_CHECKING:
    import xarray as xr

QUANTITIES = ("accuracy", "choice", "margin", "margin_mean", "control_margin", "lift")
"""What margins have by position; `lift` is the margin against the others' mean less that of the control."""
EFFECTS = (f"mean - {ABSENT}", f"{ALONE} - middle", f"{SHUFFLED} - mean")
"""What the control arms are held against: the mean over places, or the middle (the mean of all inner places)."""
MOST_CUT_OFF = 0.1
"""There is no verdict where a larger share of the answers at a place was cut off before it was right."""


@dataclass(frozen=True)
class Answers:
    """Answers in words, right or wrong.

    `found`: whether the moved fact was in the answer, by trial and position; `every`: whether all asked facts were
    (with one fact: `found`); `rule`: how answers are scored; `words`: mean length of the placed prompts. `until`:
    the half-width of the gaps' intervals that was wanted, if one was. `missed`: an answer to the fact alone that
    is not right, and what is. `cut_off`: by position, the share of answers that ended before they were right, for
    want of tokens (`most_out`); they count as not found.
    """

    rule: str
    found: Bool[np.ndarray, "prompt position"]
    every: Bool[np.ndarray, "prompt position"]
    words: float
    until: float | None = None
    missed: tuple[str, str] | None = None
    cut_off: tuple[float, ...] = ()
    most_out: int | None = None

    @property
    def several(self) -> bool:
        """Whether there is more to find than the moved fact, and not all of it was found wherever that was."""
        return bool((self.every != self.found).any())

    @property
    def too_often_cut_off(self) -> bool:
        """Whether at some place a larger share than `MOST_CUT_OFF` of the answers was cut off."""
        return max(self.cut_off, default=0.0) > MOST_CUT_OFF


@dataclass(frozen=True)
class RetrievalCurve:
    """Retrieval by position, over `prompts` trials, each asked at every position.

    `job`: what was asked. `depth`: mean place of the fact, as a share of what else there is. `chance`: the share
    that guessing or copying gets right (0: there is nothing to copy, or nobody knows). `curves`: by quantity and
    position, an `Estimate` (nats, or a share). `gaps`: by quantity, first − middle, last − middle, first − last,
    within trials. `overall`: over all positions. `equivalence`: the difference, of margins in nats or in accuracy,
    that counts as none; without one no two places are said to be alike.

    Of margins: `token`, mean place in tokens; `tokens`, mean length; `candidates`; `overall` has choice and lift.
    Of answers in words: `answers`; `overall` has the mean, the control arms and their effects.
    """

    model: str
    job: Mapping[str, Any]
    prompts: int
    chance: float
    depth: Float[np.ndarray, "position"]
    curves: Mapping[str, list[Estimate]]
    gaps: Mapping[str, Mapping[str, Estimate]]
    overall: Mapping[str, Estimate]
    equivalence: float | None = None
    token: Float[np.ndarray, "position"] | None = None
    tokens: float = math.nan
    candidates: int | None = None
    answers: Answers | None = None

    @property
    def deciding(self) -> Mapping[str, Estimate]:
        """The gaps that the verdict rests on: of margins, where there are any, else of accuracy."""
        return self.gaps["accuracy" if self.answers else "margin"]

    @property
    def able(self) -> bool:
        """Whether the curve means something: whether what was asked goes surely better than by chance.

        Of margins: choice lies above chance and, in a list, lift above 0, each with its 95 % interval (around a
        needle there is nothing else to copy: there a lift of 0 is no failure). Of answers: the fact is found more
        often than without it and, in a drawn order, than by copying; not where too many were cut off.
        """
        return not self._cut_off and statistics.above_chance(self._against_chance)

    @property
    def verdict(self) -> Verdict:
        """The shape, by the intervals of the deciding gaps (`decide`); it says nothing of an end that is open.

        Of answers inconclusive where too many were cut off, and at ceiling what is always right, or surely in more
        than `statistics.CEILING`, where no difference between places is significant.
        """
        if self._cut_off:
            return "inconclusive"
        ceiling = self.answers is not None and statistics.at_ceiling(self.answers.found, self.overall["mean"])
        return statistics.decide(self.deciding, self.equivalence, self._against_chance, ceiling=ceiling)

    @property
    def ends(self) -> dict[str, str]:
        """The first and the last place against the middle; inconclusive unless above chance."""
        return statistics.ends_of(self.deciding, self.equivalence, self.able)

    @property
    def detectable(self) -> dict[str, float | None]:
        """By deciding gap, the least one that so many trials would show; None where no two trials differ."""
        return statistics.detectable_of(self.deciding)

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of the deciding gaps; None where the gap is told already."""
        return {name: gap.draws_to_tell() for name, gap in self.deciding.items()}

    @property
    def doubts(self) -> list[str]:
        """What of the verdict the trials do not tell, as `Profile.doubts` says it; none where all is told."""
        if not self.able:
            whether = f"it does better than chance{statistics.would(self.chance_needs, 'its shares')}"
            return not_told(self.prompts, [whether]) if self.verdict == "inconclusive" else []
        left = [end for end, said in self.ends.items() if said == statistics.END_WORDS[0]]
        needed = {end: self.prompts_to_tell[f"{end} - middle"] for end in left}
        return not_told(
            self.prompts,
            [
                f"the {end} is favoured{statistics.would(one, 'the difference')}"
                for end, one in needed.items()
            ],
        )

    @property
    def chance_needs(self) -> int | None:
        """About how many trials would tell it from chance."""
        needed = [one.draws_to_tell(level) for one, level, _ in self._against_chance]
        return max(filter(None, needed), default=None)

    @property
    def half_width(self) -> float:
        """Half the widest interval of the gaps in accuracy."""
        return max(gap.half_width for gap in self.gaps["accuracy"].values())

    @property
    def reached(self) -> bool | None:
        """Whether the wanted half-width (`Answers.until`) was reached; None where none was wanted."""
        wanted = self.answers and self.answers.until
        return None if wanted is None else bool(self.half_width <= wanted)

    def trials_for(self, half_width: float) -> int:
        """About how many trials make every gap's interval in accuracy ± `half_width`, were the spread as seen."""
        return max(gap.draws_for(half_width) for gap in self.gaps["accuracy"].values())

    def profile(self, quantity: str = "accuracy") -> Profile:
        """A curve as a profile over places, for `posbias.compare` and `posbias.order`; of answers with its trials.

        Raises `InvalidValueError` for a quantity that there is not.
        """
        numbers = self.curves[one_of("quantity", quantity, self.curves)]
        if self.answers is not None and quantity == "accuracy":
            attrs = {"model": self.model, "job": dict(self.job), "rule": self.answers.rule, "able": self.able}
            attrs |= {"depth": self.depth.tolist(), "words": self.answers.words}
            return profile_of_trials(self.answers.found.astype(float), attrs)
        values = np.array([number.value for number in numbers])
        se, kind = np.array([number.se for number in numbers]), "signed"
        if numbers[0].method == "wilson":
            se, kind = np.sqrt(values * (1.0 - values) / self.prompts), "rate"
        return Profile(values, measures=quantity, se=se, attrs={"model": self.model}, kind=kind)

    def sentences(self) -> list[str]:
        """The answer in words: what the model can do, then what position does to it."""
        return of_margins(self) if self.answers is None else of_answers(self, self.answers)

    @property
    def _cut_off(self) -> bool:
        return self.answers is not None and self.answers.too_often_cut_off

    @property
    def _against_chance(self) -> statistics.Against:
        """Each number with what it must exceed, and what it surely does not at chance.

        A lift of ln 2 doubles the odds of the right thing.
        """
        if self.answers is not None:
            numbers = [(self.overall[EFFECTS[0]], 0.0)]
            numbers += [(self.overall[SHUFFLED], self.chance)] if self.chance else []
        else:
            numbers = [(self.overall["choice"], self.chance)]
        against = [(one, level, level + statistics.CLEAR * (1.0 - level)) for one, level in numbers]
        copies = self.answers is None and self.job["task"] != "needle"
        return [*against, *([(self.overall["lift"], 0.0, math.log(2))] if copies else [])]


def retrieval_curve(retrieval: "xr.Dataset", equivalence: float | None = None) -> RetrievalCurve:
    """The curve of a dataset that `retrieve` made: means over prompts, which are independent.

    `equivalence`: nats up to which a difference of margins counts as none. Raises `InvalidValueError` for a
    dataset that is no retrieval, and for an equivalence that is not above 0.
    """
    if equivalence is not None:
        positive("equivalence", equivalence)
    if retrieval.attrs.get("posbias_kind") != "retrieval":
        raise InvalidValueError(
            f"retrieval: a dataset of kind {retrieval.attrs.get('posbias_kind')!r} given, 'retrieval' needed"
        )
    held = {name: np.asarray(retrieval[name].values) for name in QUANTITIES if name in retrieval}
    held["lift"] = (retrieval["margin_mean"] - retrieval["control_margin_mean"]).values
    curves: dict[str, list[Estimate]] = {
        name: [
            Estimate.of_counts(int(column.sum()), column.size)
            if name in ("accuracy", "choice")
            else Estimate.of_mean(column)
            for column in held[name].T
        ]
        for name in QUANTITIES
    }
    gaps = {
        name: {gap: _difference(column) for gap, column in gaps_of(held[name]).items()} for name in QUANTITIES
    }
    return RetrievalCurve(
        model=str(retrieval.attrs["model"]),
        job=json.loads(retrieval.attrs["job"]),
        prompts=retrieval.sizes["prompt"],
        chance=1.0 / retrieval.sizes["candidate"],
        depth=retrieval["depth"].values.mean(axis=0),
        curves=curves,
        gaps=gaps,
        overall={
            "choice": _share(Estimate.of_mean(held["choice"].mean(axis=1))),
            "lift": Estimate.of_mean(held["lift"].mean(axis=1)),
        },
        equivalence=equivalence,
        token=retrieval["token"].values.mean(axis=0),
        tokens=float(retrieval["tokens"].values.mean()),
        candidates=retrieval.sizes["candidate"],
    )


def answer_curve(
    model: str,
    job: Mapping[str, Any],
    rule: str,
    found: Bool[np.ndarray, "prompt position"],
    every: Bool[np.ndarray, "prompt position"],
    arms: Mapping[str, Bool[np.ndarray, "prompt"]],
    depth: Float[np.ndarray, "position"],
    words: float,
    *,
    chance: float = 0.0,
    equivalence: float = statistics.EQUIVALENCE,
    **more: Any,
) -> RetrievalCurve:
    """The curve of answers in words, every number from one set of resamples of its trials.

    `arms`: whether the fact was in the answer, by control arm and trial. Others as of `Answers` and
    `RetrievalCurve`. Raises `InvalidValueError` for fewer than two trials.
    """
    if len(found) < 2:
        raise InvalidValueError(f"prompts: {len(found)} given, at least 2 trials needed")
    share, places = found.astype(float), range(found.shape[1])
    own = {name: arms[name].astype(float) for name in ARMS}
    mean, middle = share.mean(axis=1), share[:, 1:-1].mean(axis=1)
    shares = {"mean": mean} | {f"at {k}": share[:, k] for k in places}
    shares |= {f"every {k}": every[:, k].astype(float) for k in places} | own
    effects = (mean - own[ABSENT], own[ALONE] - middle, own[SHUFFLED] - mean)
    columns = shares | gaps_of(share) | dict(zip(EFFECTS, effects, strict=True))
    limits = [(0.0, 1.0) if name in shares else (-1.0, 1.0) for name in columns]
    table = resampled(np.stack(list(columns.values()), axis=1), limits, int(job.get("seed", 0)))
    numbers = dict(zip(columns, table, strict=True))
    return RetrievalCurve(
        model=model,
        job=job,
        prompts=len(found),
        chance=chance,
        depth=depth,
        curves={
            "accuracy": [numbers[f"at {k}"] for k in places],
            "all_found": [numbers[f"every {k}"] for k in places],
        },
        gaps={"accuracy": {name: numbers[name] for name in GAPS}},
        overall={name: numbers[name] for name in ("mean", *ARMS, *EFFECTS)},
        equivalence=equivalence,
        answers=Answers(rule, found, every, words, **more),
    )


def profile_of_trials(found: Float[np.ndarray, "prompt position"], about: Mapping[str, Any]) -> Profile:
    """Trials as a profile of rates with its standard error; `about` has model, job, rule, able, words and depth.

    Tokens of a prompt are estimated from its words, for who asks what the profile was measured at.
    """
    attrs = dict(about) | {"tokens": TOKENS_A_WORD * about["words"]}
    se = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    return Profile(found.mean(axis=0), kind="rate", measures="accuracy", samples=found, se=se, attrs=attrs)


def _share(choice: Estimate) -> Estimate:
    """A mean share, its interval within 0 to 1; where all trials are alike, as their number has it."""
    if choice.se == 0:
        return Estimate.alike(choice.value, choice.n or 1)
    low, high = choice.interval
    return replace(choice, ends=(max(0.0, low), min(1.0, high)))


def _difference(within: Float[np.ndarray, "prompt"]) -> Estimate:
    """The mean of paired differences; where all are the same, prompts do not say how sure that is."""
    found = Estimate.of_mean(within)
    return found if found.se else Estimate(found.value, math.nan, found.n)
