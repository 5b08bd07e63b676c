"""What retrieval by position says: a curve with intervals, the ends against the middle, and a verdict.

A curve means something only where the model can do the task. Two things are asked first: does it pick the right
thing more often than by chance, and is the right thing more likely than when somebody else is asked for? A
model that copies whatever stands last passes the first question at that position, and fails the second.
Comparisons between positions are differences within trials, so what makes a trial hard cancels. The middle is the
mean of all inner places. `decide` gives the verdict of every curve, whoever was asked.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.core.arguments import one_of, positive
from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate, about
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Verdict
from posbias.profiles.telling import not_told

if TYPE_CHECKING:
    import xarray as xr

QUANTITIES = ("accuracy", "choice", "margin", "margin_mean", "control_margin", "lift")
"""What a curve has by position; `lift` is the margin against the others' mean less that of the control."""
WIDTHS = (0.1, 0.05, 0.02)
"""Half-widths of a gap's interval in accuracy for which the number of trials is told."""
EQUIVALENCE = 0.05
"""A difference in accuracy up to this counts as none, unless another is wanted."""
CLEAR = 0.25
"""At chance is what surely goes less than so far from chance to always right; less surely, it is inconclusive."""


@dataclass(frozen=True)
class RetrievalCurve:
    """Retrieval by position, over `prompts` trials.

    `depth`, `token`: mean place of the fact, as a share of what else there is and in tokens. `curves`: by
    quantity and position, an `Estimate` (nats, or a share). `gaps`: by quantity, first − middle, last − middle
    and first − last, within trials; without an error where no two trials differ. `overall`: choice and lift over
    all positions. `chance`: the share that guessing among the `candidates` gets right. `able` says whether the
    curve means something, `verdict` its shape. `equivalence`: the difference of margins, in nats, that counts as
    none; without one no two places are said to be alike.
    """

    model: str
    job: dict[str, Any]
    prompts: int
    candidates: int
    depth: Float[np.ndarray, "position"]
    token: Float[np.ndarray, "position"]
    tokens: float
    curves: dict[str, list[Estimate]]
    gaps: dict[str, dict[str, Estimate]]
    overall: dict[str, Estimate]
    equivalence: float | None = None

    @property
    def chance(self) -> float:
        return 1.0 / self.candidates

    @property
    def able(self) -> bool:
        """Whether choice lies above chance and, in a list, lift above 0, each with its 95 % interval.

        Around a needle there is nothing else to copy: there a lift of 0 is no failure.
        """
        return above_chance(self._against_chance)

    @property
    def verdict(self) -> Verdict:
        """The shape, by the margins' gaps (`decide`): intervals are Student's t, paired."""
        return decide(self.gaps["margin"], self.equivalence, self._against_chance)

    @property
    def ends(self) -> dict[str, str]:
        """The first and the last place against the middle (`compared`); inconclusive unless above chance."""
        return ends_of(self.gaps["margin"], self.equivalence, self.able)

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of the margins' gaps; None where the gap is told already."""
        return {name: gap.draws_to_tell() for name, gap in self.gaps["margin"].items()}

    @property
    def doubts(self) -> list[str]:
        """What of the verdict the prompts do not tell, as `Profile.doubts` says it; none where all is told."""
        if not self.able:
            whether = f"it does better than chance{_would(self._chance_needs, 'its shares')}"
            return [] if self.verdict == "at chance" else not_told(self.prompts, [whether])
        left = [name for name, said in self.ends.items() if said == END_WORDS[0]]
        needed = {name: self.prompts_to_tell[f"{name} - middle"] for name in left}
        whether = [f"the {name} is favoured{_would(one, 'the difference')}" for name, one in needed.items()]
        return not_told(self.prompts, whether)

    @property
    def _against_chance(self) -> "Against":
        """Choice and, in a list, lift, each with what it must exceed, and what it surely does not at chance.

        A lift of ln 2 doubles the odds of the right thing.
        """
        lift = [] if self.job["task"] == "needle" else [(self.overall["lift"], 0.0, math.log(2))]
        return [(self.overall["choice"], self.chance, self.chance + CLEAR * (1.0 - self.chance)), *lift]

    @property
    def _chance_needs(self) -> int | None:
        """About how many prompts would tell them from chance."""
        asked = self._against_chance
        needed = [one.draws_to_tell(level) for one, level, _ in asked]
        return max(filter(None, needed), default=None)

    def profile(self, quantity: str = "accuracy") -> Profile:
        """A curve as a profile over places, ready for `posbias.compare`. Raises `InvalidValueError` for none."""
        numbers = self.curves[one_of("quantity", quantity, self.curves)]
        values = np.array([number.value for number in numbers])
        if numbers[0].method == "wilson":
            se = np.sqrt(values * (1.0 - values) / self.prompts)
            return Profile(values, measures=quantity, se=se, attrs={"model": self.model}, kind="rate")
        se = np.array([number.se for number in numbers])
        return Profile(values, measures=quantity, se=se, attrs={"model": self.model}, kind="signed")

    def sentences(self) -> list[str]:
        """The answer in words: what the model can do, then what position does to it."""
        choice, lift = self.overall["choice"], self.overall["lift"]
        greedy = np.mean([share.value for share in self.curves["accuracy"]])
        said = [
            f"{self.model} prefers the right thing among {self.candidates} in {choice.value:.0%} of prompts "
            f"(95 % interval {_percent(choice.interval)}, chance {self.chance:.0%}) and writes it in "
            f"{greedy:.0%}; asking for it rather than for somebody else adds {lift} nats"
        ]
        if not self.able:
            return [*said, self._not_able()]
        for name, gap in self.gaps["margin"].items():
            low, high = gap.interval
            said.append(
                f"{name}: {gap} nats (95 % interval {low:.2f} to {high:.2f}), {self.gaps['accuracy'][name]} in "
                f"accuracy: {gap_words(name, gap, self.equivalence)}{_needed(self.prompts_to_tell[name])}"
            )
        effort = f"{self.prompts} prompts"
        verdict = in_words(self.verdict, self.gaps["margin"], self.equivalence, effort, " nats")
        return [*said, *self._widths(), f"verdict: {verdict}"]

    def _widths(self) -> list[str]:
        """How well the gaps in accuracy are known, and what it takes to know them better."""
        known = [gap for gap in self.gaps["accuracy"].values() if gap.known]
        if not known:
            return []
        half = max(gap.interval[1] - gap.value for gap in known)
        needs = {width: max(gap.draws_for(width) for gap in known) for width in WIDTHS if width < half}
        takes = ", ".join(f"± {width:g} takes {about(draws)} prompts" for width, draws in needs.items())
        return [
            f"in accuracy the intervals of the gaps are ± {half:.3f} at most{f'; {takes}' if takes else ''}"
        ]

    def _not_able(self) -> str:
        """That it is at chance, or that this is open."""
        if self.verdict == "at chance":
            return "at chance: the curve shows where it copies from, not what it can find"
        would = _would(self._chance_needs, "its shares")
        return f"inconclusive: {self.prompts} prompts do not distinguish it from chance{would}: {MAY_COPY}"


ENDS = "first - last"
GAPS = ("first - middle", "last - middle", ENDS)
MAY_COPY = "the curve may show where it copies from, not what it can find"
VERDICTS: dict[Verdict, str] = {
    "U": "a U: both ends are found better than the middle",
    "primacy": "primacy: the first place is found better than the middle",
    "recency": "recency: the last place is found better than the middle",
    "middle": "the middle is found better than an end",
    "flat": "flat: no difference beyond {equivalence} between the ends and the middle",
    "inconclusive": "inconclusive: {misses}",
    "at ceiling": "at ceiling: {right} right, ask something harder",
    "at chance": f"at chance: {MAY_COPY}",
}
"""What a curve can be, in words; the middle is the mean of all inner places."""
END_WORDS = ("inconclusive", "favoured", "no difference", "at a disadvantage")
"""What an end can be against the middle; of one whose difference has the sign 1, the second, of −1, the last."""


Against = Sequence[tuple[Estimate, float, float]]
"""Numbers, the level that each must exceed, and one that it stays below at chance."""


def gaps_of(found: Float[np.ndarray, "prompt position"]) -> dict[str, Float[np.ndarray, "prompt"]]:
    """`GAPS` within each trial, the middle being the mean of all inner places; of two, first − last alone."""
    first, inner, last = found[:, 0], found[:, 1:-1], found[:, -1]
    if not inner.shape[1]:
        return {ENDS: first - last}
    middle = inner.mean(axis=1)
    return dict(zip(GAPS, (first - middle, last - middle, first - last), strict=True))


def above_chance(against: Against) -> bool:
    """Whether each number's 95 % interval lies above its level."""
    return all(one.interval[0] > level for one, level, _ in against)


def decide(
    gaps: Mapping[str, Estimate], equivalence: float | None, against: Against = (), *, ceiling: bool = False
) -> Verdict:
    """The verdict of a curve; every place that prints one asks here.

    Each number of `against` must lie above its level, by its 95 % interval; where one surely does not, the curve
    is at chance, else inconclusive. An end is favoured or not where its gap's 95 % interval leaves out 0 (of two
    places, against the other one). Where neither is, the curve is at `ceiling`, or flat if the 90 %
    interval of every gap lies within ± `equivalence`; else it is inconclusive.
    """
    if not above_chance(against):
        return "at chance" if any(one.interval[1] < most for one, _, most in against) else "inconclusive"
    if GAPS[0] in gaps:
        first, last = (gaps[name].sign for name in GAPS[:2])
    else:
        first, last = max(0, gaps[ENDS].sign), max(0, -gaps[ENDS].sign)
    if first > 0 or last > 0:
        return "U" if first > 0 and last > 0 else "primacy" if first > 0 else "recency"
    if first < 0 or last < 0:
        return "middle"
    if ceiling:
        return "at ceiling"
    alike = equivalence is not None and all(gap.within(equivalence) for gap in gaps.values())
    return "flat" if alike else "inconclusive"


def compared(gap: Estimate, equivalence: float | None) -> str:
    """One of `END_WORDS` for a difference: by its 95 % interval, or its 90 % interval within ± `equivalence`."""
    small = equivalence is not None and gap.within(equivalence)
    return END_WORDS[gap.sign or 2 * small]


def ends_of(gaps: Mapping[str, Estimate], equivalence: float | None, able: bool = True) -> dict[str, str]:
    """The first and the last place against the middle, each one of `END_WORDS`."""
    ends = zip(("first", "last"), GAPS, strict=False)
    return {end: compared(gaps[name], equivalence) if able else END_WORDS[0] for end, name in ends}


def detectable_of(gaps: Mapping[str, Estimate]) -> dict[str, float | None]:
    """By gap, the least one that so many trials would show; None where no two trials differ."""
    return {name: gap.detectable if math.isfinite(gap.detectable) else None for name, gap in gaps.items()}


def gap_words(name: str, gap: Estimate, equivalence: float | None) -> str:
    """A difference of two places in words."""
    said = compared(gap, equivalence)
    if said == "no difference":
        return f"no difference beyond {equivalence:g}"
    if name == ENDS and said != END_WORDS[0]:
        return f"the {'first' if said == END_WORDS[1] else 'last'} favoured"
    return said


def in_words(
    verdict: Verdict,
    gaps: Mapping[str, Estimate],
    equivalence: float | None,
    effort: str,
    unit: str = "",
    found: Any = None,
) -> str:
    """A verdict in words; of one on one end, what is known of the other. `effort` is the number of trials."""
    misses = f"{effort} miss gaps under {{:.2g}}{unit}"
    rests_on = [gap.detectable for name, gap in gaps.items() if name != ENDS or len(gaps) == 1]
    least = max(filter(math.isfinite, rests_on), default=math.nan)
    right = "nearly all" if found is None else f"{found.sum():,.0f} of {found.size:,}"
    said = VERDICTS[verdict].format(equivalence=equivalence, misses=misses.format(least), right=right)
    if verdict not in ("primacy", "recency"):
        return said
    place = "last" if verdict == "primacy" else "first"
    if GAPS[0] not in gaps:
        return said.replace("middle", place)
    other = gaps[f"{place} - middle"]
    words = {
        "at a disadvantage": f", the {place} worse",
        "no difference": f", the {place} not beyond {equivalence}",
        "inconclusive": f"; of the {place}, {misses.format(other.detectable)}",
    }
    return said + words[compared(other, equivalence)]


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
    choice = Estimate.of_mean(held["choice"].mean(axis=1))
    return RetrievalCurve(
        model=str(retrieval.attrs["model"]),
        job=json.loads(retrieval.attrs["job"]),
        prompts=retrieval.sizes["prompt"],
        candidates=retrieval.sizes["candidate"],
        depth=retrieval["depth"].values.mean(axis=0),
        token=retrieval["token"].values.mean(axis=0),
        tokens=float(retrieval["tokens"].values.mean()),
        curves=curves,
        gaps=gaps,
        overall={
            "choice": _share(choice),
            "lift": Estimate.of_mean(held["lift"].mean(axis=1)),
        },
        equivalence=equivalence,
    )


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


def _needed(prompts: int | None) -> str:
    if prompts is None:
        return ""
    return f" ({about(prompts)} prompts would take the interval off 0, were the difference as seen)"


def _would(prompts: int | None, what: str) -> str:
    return "" if prompts is None else f" ({about(prompts)} would, were {what} as seen)"


def _percent(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.0%} to {interval[1]:.0%}"
