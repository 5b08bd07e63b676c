"""What retrieval by position says: a curve with intervals, the ends against the middle, and a verdict.

A curve means something only where the model can do the task. Two things are asked first: does it pick the right
thing more often than by chance, and is the right thing more likely than when somebody else is asked for? A
model that copies whatever stands last passes the first question at that position, and fails the second.
Comparisons between positions are differences within trials, so what makes a trial hard cancels.
"""

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.arguments import one_of
from posbias.errors import InvalidValueError
from posbias.estimate import Estimate, about, otherwise_at_most
from posbias.profile import Profile
from posbias.signatures import typed
from posbias.telling import not_told

if TYPE_CHECKING:
    import xarray as xr

QUANTITIES = ("accuracy", "choice", "margin", "margin_mean", "control_margin", "lift")
"""What a curve has by position; `lift` is the margin against the others' mean less that of the control."""
WIDTHS = (0.1, 0.05, 0.02)
"""Half-widths of a gap's interval in accuracy for which the number of trials is told."""


@dataclass(frozen=True)
class Share:
    """A share of `n` trials with its 95 % interval (Wilson's, which stays inside 0 to 1)."""

    value: float
    interval: tuple[float, float]
    n: int

    @classmethod
    def of(cls, hits: Float[np.ndarray, "prompt"]) -> "Share":
        """The share of ones among zeros and ones."""
        from scipy.stats import binomtest

        k, n = int(hits.sum()), int(hits.size)
        low, high = binomtest(k, n).proportion_ci(method="wilson")
        return cls(k / n, (float(low), float(high)), n)

    @classmethod
    def alike(cls, value: float, n: int) -> "Share":
        """The share that each of `n` trials had: their spread is 0 and says nothing, their number does.

        Other trials may be of other shares, but make up at most 1 − .05^(1/n) of all ("rule of three").
        """
        others = otherwise_at_most(n)
        return cls(value, (value * (1.0 - others), value * (1.0 - others) + others), n)


@dataclass(frozen=True)
class RetrievalCurve:
    """Retrieval by position, over `prompts` trials.

    `depth`, `token`: mean place of the fact, as a share of what else there is and in tokens. `curves`: by
    quantity and position, a `Share` or an `Estimate` (nats). `gaps`: by quantity, first − middle, last − middle
    and first − last, within trials; without an error where no two trials differ. `overall`: choice and lift over
    all positions. `chance`: the share that guessing among the `candidates` gets right. `able` says whether the
    curve means something, `verdict` its shape.
    """

    model: str
    job: dict[str, Any]
    prompts: int
    candidates: int
    depth: Float[np.ndarray, "position"]
    token: Float[np.ndarray, "position"]
    tokens: float
    curves: dict[str, list[Share | Estimate]]
    gaps: dict[str, dict[str, Estimate]]
    overall: dict[str, Share | Estimate]

    @property
    def chance(self) -> float:
        return 1.0 / self.candidates

    @property
    def able(self) -> bool:
        """Whether choice lies above chance and, in a list, lift above 0, each with its 95 % interval.

        Around a needle there is nothing else to copy: there a lift of 0 is no failure.
        """
        return all(one.interval[0] > level for one, level in self._against_chance)

    @property
    def verdict(self) -> str:
        """`U`, `primacy`, `recency`, `middle`, `none told`, or `at chance`: by the margins' gaps.

        An end is favoured (or not) when its gap's 95 % interval (Student's t, paired) leaves 0 out.
        """
        if not self.able:
            return "at chance"
        return shape(*self._ends)

    @property
    def ends(self) -> dict[str, str]:
        """What is told of the first and the last place against the middle (`END_WORDS`); not of one at chance."""
        return end_words(*(self._ends if self.able else (0, 0)))

    @property
    def _ends(self) -> tuple[int, int]:
        """Whether first and last place are surely better (1) or worse (−1) than the middle, or neither (0)."""
        first, last = (_sign(self.gaps["margin"][name]) for name in ("first - middle", "last - middle"))
        return first, last

    @property
    def prompts_to_tell(self) -> dict[str, int | None]:
        """`Estimate.draws_to_tell` of the margins' gaps; None where the gap is told already."""
        return {name: gap.draws_to_tell() for name, gap in self.gaps["margin"].items()}

    @property
    def doubts(self) -> list[str]:
        """What of the verdict the prompts do not tell, as `Profile.doubts` says it; none where all is told."""
        if not self.able:
            whether = f"it does better than chance{_would(self._chance_needs, 'its shares')}"
            told = any(one.interval[1] <= level for one, level in self._against_chance)
            return [] if told else not_told(self.prompts, [whether])
        ends = zip(("first", "last"), self._ends, strict=True)
        needed = {name: self.prompts_to_tell[f"{name} - middle"] for name, side in ends if side == 0}
        whether = [f"the {name} is favoured{_would(one, 'the difference')}" for name, one in needed.items()]
        return not_told(self.prompts, whether)

    @property
    def _against_chance(self) -> list[tuple[Share | Estimate, float]]:
        """Choice and, in a list, lift, each with what it must exceed for the curve to mean something."""
        lift = [] if self.job["task"] == "needle" else [(self.overall["lift"], 0.0)]
        return [(self.overall["choice"], self.chance), *lift]

    @property
    def _chance_needs(self) -> int | None:
        """About how many prompts would tell them from chance."""
        asked = self._against_chance
        needed = [one.draws_to_tell(level) for one, level in asked if isinstance(one, Estimate)]
        return max(filter(None, needed), default=None)

    def profile(self, quantity: str = "accuracy") -> Profile:
        """A curve as a profile over places, ready for `posbias.compare`. Raises `InvalidValueError` for none."""
        numbers = self.curves[one_of("quantity", quantity, self.curves)]
        values = np.array([number.value for number in numbers])
        if isinstance(numbers[0], Share):
            se = np.sqrt(values * (1.0 - values) / self.prompts)
            return Profile(values, measures=quantity, se=se, attrs={"model": self.model}, kind="rate")
        se = np.array([number.se for number in numbers if isinstance(number, Estimate)])
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
            words = ("the last favoured", "the first favoured") if name == ENDS else _AGAINST_MIDDLE
            told = {-1: words[0], 0: "no difference told", 1: words[1]}[_sign(gap)]
            low, high = gap.interval
            said.append(
                f"{name}: {gap} nats (95 % interval {low:.2f} to {high:.2f}), "
                f"{self.gaps['accuracy'][name]} in accuracy: {told}{_needed(self.prompts_to_tell[name])}"
            )
        other = other_end(self.verdict, self.ends, f"{self.prompts} prompts")
        return [*said, *self._widths(), f"verdict: {VERDICTS[self.verdict]}{other}"]

    def _widths(self) -> list[str]:
        """How well the gaps in accuracy are known, and what it takes to know them better."""
        known = [gap for gap in self.gaps["accuracy"].values() if gap.known]
        if not known:
            return []
        half = max(gap.interval[1] - gap.value for gap in known)
        needs = {
            width: max(Estimate(0.0, gap.se, gap.n).draws_to_tell(width) or 0 for gap in known)
            for width in WIDTHS
            if width < half
        }
        takes = ", ".join(f"± {width:g} takes {about(draws)} prompts" for width, draws in needs.items())
        return [
            f"in accuracy the intervals of the gaps are ± {half:.3f} at most{f'; {takes}' if takes else ''}"
        ]

    def _not_able(self) -> str:
        """That it is at chance, or with too few prompts to say so of what lies above."""
        if any(one.value <= level for one, level in self._against_chance):
            return "at chance: the curve shows where it copies from, not what it can find"
        return (
            f"not told apart from chance by {self.prompts} prompts{_would(self._chance_needs, 'its shares')}: "
            "the curve may show where it copies from, not what it can find"
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain dictionaries and lists, ready for JSON."""
        places = [
            {"position": k, "depth": float(self.depth[k]), "token": float(self.token[k])}
            | {name: _plain(entries[k]) for name, entries in self.curves.items()}
            for k in range(len(self.depth))
        ]
        return {
            "model": self.model,
            "job": self.job,
            "prompts": self.prompts,
            "candidates": self.candidates,
            "chance": self.chance,
            "tokens": self.tokens,
            "able": self.able,
            "verdict": self.verdict,
            "ends": self.ends,
            "doubts": self.doubts,
            "overall": {
                "choice": _plain(self.overall["choice"], 0.0, 1.0),
                "lift": _plain(self.overall["lift"]),
            },
            "positions": places,
            "differences": {
                quantity: {name: _plain(gap) for name, gap in gaps.items()}
                for quantity, gaps in self.gaps.items()
            },
            "prompts_to_tell": self.prompts_to_tell,
            "answer": self.sentences(),
        }


ENDS = "first - last"
_AGAINST_MIDDLE = ("at a disadvantage", "favoured")
VERDICTS = {
    "U": "a U: both ends are found better than the middle",
    "primacy": "primacy: the first place is found better than the middle",
    "recency": "recency: the last place is found better than the middle",
    "middle": "the middle is found better than an end",
    "none told": "no difference between the ends and the middle can be told",
}
"""The shapes of a curve in words."""


END_WORDS = ("not told", "favoured", "at a disadvantage")
"""What is told of an end whose difference to the middle has the sign 0, 1 or −1."""


def end_words(first: int, last: int) -> dict[str, str]:
    """What is told of each end, by its name."""
    return {"first": END_WORDS[first], "last": END_WORDS[last]}


def other_end(verdict: str, ends: dict[str, str], effort: str) -> str:
    """What is told of the end that a verdict on one end leaves open, to be put behind the verdict."""
    if verdict not in ("primacy", "recency"):
        return ""
    place = "last" if verdict == "primacy" else "first"
    if ends[place] == END_WORDS[-1]:
        return f", the {place} worse"
    return f"; of the {place}, {effort} do not tell"


def shape(first: int, last: int) -> str:
    """The shape of a curve whose ends are told to be better (1) or worse (−1) than the middle, or neither (0)."""
    if first > 0 and last > 0:
        return "U"
    if first > 0 or last > 0:
        return "primacy" if first > 0 else "recency"
    return "middle" if first < 0 or last < 0 else "none told"


@typed
def retrieval_curve(retrieval: "xr.Dataset") -> RetrievalCurve:
    """The curve of a dataset that `retrieve` made: means over prompts, which are independent.

    Raises `InvalidValueError` for a dataset that is no retrieval.
    """
    if retrieval.attrs.get("posbias_kind") != "retrieval":
        raise InvalidValueError(
            f"retrieval: a dataset of kind {retrieval.attrs.get('posbias_kind')!r} given, 'retrieval' needed"
        )
    held = {name: np.asarray(retrieval[name].values) for name in QUANTITIES if name in retrieval}
    held["lift"] = (retrieval["margin_mean"] - retrieval["control_margin_mean"]).values
    first, middle, last = 0, retrieval.sizes["position"] // 2, -1
    curves: dict[str, list[Share | Estimate]] = {
        name: [
            Share.of(column) if name in ("accuracy", "choice") else Estimate.of(column)
            for column in held[name].T
        ]
        for name in QUANTITIES
    }
    gaps = {
        name: {
            "first - middle": _difference(held[name][:, first], held[name][:, middle]),
            "last - middle": _difference(held[name][:, last], held[name][:, middle]),
            ENDS: _difference(held[name][:, first], held[name][:, last]),
        }
        for name in QUANTITIES
    }
    choice = Estimate.of(held["choice"].mean(axis=1))
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
            "choice": Share.alike(choice.value, choice.n or 1) if choice.se == 0 else choice,
            "lift": Estimate.of(held["lift"].mean(axis=1)),
        },
    )


def _difference(here: Float[np.ndarray, "prompt"], there: Float[np.ndarray, "prompt"]) -> Estimate:
    """The mean of paired differences; where all are the same, prompts do not say how sure that is."""
    found = Estimate.of(here - there)
    return found if found.se else Estimate(found.value, math.nan, found.n)


def _sign(gap: Estimate) -> int:
    low, high = gap.interval
    return int(low > 0) - int(high < 0)


def _needed(prompts: int | None) -> str:
    if prompts is None:
        return ""
    return f" ({about(prompts)} prompts would take the interval off 0, were the difference as seen)"


def _would(prompts: int | None, what: str) -> str:
    return "" if prompts is None else f" ({about(prompts)} would, were {what} as seen)"


def _percent(interval: tuple[float, float]) -> str:
    return f"{max(0.0, interval[0]):.0%} to {min(1.0, interval[1]):.0%}"


def _plain(one: Share | Estimate, least: float = -math.inf, most: float = math.inf) -> dict[str, Any]:
    """Ready for JSON, the interval within what the number can be."""
    about = {"se": one.se} if isinstance(one, Estimate) else {}
    low, high = one.interval
    return {"value": one.value, **about, "interval": [max(least, low), min(most, high)], "n": one.n}
