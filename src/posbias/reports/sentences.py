"""What a report says: four answers in words that need no paper, and what the scores say of the predictors.

Each sentence is made here once; the terminal, the JSON and the page show it. `Findings` are what a report
rests on: a measurement, its predictions and their scores.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from posbias.comparison.agreement import ROWS, Agreement
from posbias.comparison.predictors import PREDICTORS, USED, chain
from posbias.comparison.scores import Comparison, HeldOut
from posbias.core.machine import stream
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.reports import profile_sentences as of_profile

if TYPE_CHECKING:
    import xarray as xr

RESAMPLES = 1000
LEAST_RESAMPLED = 8
"""Fewer prompts are not resampled for a range: its ends would be those of single prompts drawn again and again."""
LABELS = {predictor.key: predictor.label for predictor in PREDICTORS}
"""What predictors are called."""


@dataclass(frozen=True)
class Findings:
    """Everything that a report is made from; `seed` drew the resamples of the prompts."""

    measurement: "xr.Dataset"
    measured: Profile
    predictions: Mapping[str, Profile]
    comparison: Comparison
    seed: int = 0

    @property
    def model(self) -> str:
        """The name of what was measured."""
        return str(self.measurement.attrs.get("model", "the model"))

    @property
    def judged(self) -> Comparison | HeldOut:
        """The scores that verdicts speak of: on prompts that the predictors did not use, where there are any."""
        return self.comparison.held_out or self.comparison

    @property
    def ceiling(self) -> Agreement | None:
        """A noiseless predictor's scores against the same prompts; None with fewer than four."""
        noise = self.comparison.reliability
        return noise and (noise.noiseless_half if self.comparison.held_out else noise.noiseless)

    @cached_property
    def parts(self) -> Mapping[str, Profile]:
        """The measured curve by parts; empty where a predictor of the chain is missing."""
        return chain(self.measurement, self.predictions) if self.predictions.keys() >= USED else {}

    @cached_property
    def trough_range(self) -> tuple[int, int] | None:
        """Holds the trough in 95 % of resamples of the prompts; None with fewer than `LEAST_RESAMPLED`."""
        if self.measured.samples is None or len(self.measured.samples) < LEAST_RESAMPLED:
            return None
        samples = np.asarray(self.measured.samples)
        drawn = stream(self.seed, "report.trough").integers(len(samples), size=(RESAMPLES, len(samples)))
        troughs = [Profile.from_weights(samples[rows].sum(axis=0))._shape.trough for rows in drawn]
        low, high = np.quantile(troughs, [0.025, 0.975], method="nearest")
        return int(low), int(high)

    def difference(self, more: str, less: str, field: str) -> Estimate | None:
        """A score of `more` minus that of `less`, with its paired interval; None where it was not computed."""
        for one in self.judged.differences:
            score: Estimate = getattr(one.scores, field)
            if (one.more, one.less) == (more, less):
                return score
            if (one.more, one.less) == (less, more):
                return -score
        return None


@dataclass(frozen=True)
class Measure:
    """A column of the comparison: the field of `Agreement`, its name, whether more is better, usual digits."""

    field: str
    name: str
    more_is_better: bool
    digits: int

    def of(self, agreement: Agreement) -> Estimate:
        """This measure's score in an agreement."""
        return getattr(agreement, self.field)

    def best(self, agreements: Mapping[str, Agreement]) -> list[str]:
        """The keys with the best defined score (several when they tie, none when nothing is defined)."""
        values = {key: self.of(one).value for key, one in agreements.items()}
        defined = [value for value in values.values() if not math.isnan(value)]
        top = (max if self.more_is_better else min)(defined, default=None)
        return [key for key, value in values.items() if value == top]

    def digits_in(self, comparison: Comparison) -> int:
        """Digits after the point: two significant ones of the widest half interval in the comparison."""
        noise = comparison.reliability
        every = [*comparison.agreements.values(), *comparison.baselines.values()]
        every += [] if noise is None else [getattr(noise, name) for name in ROWS]
        widest = max((self.of(one).half_width for one in every if self.of(one).bounds), default=0.0)
        return digits_of(widest) if widest > 0 else self.digits

    def text(self, agreement: Agreement, comparison: Comparison) -> str:
        """'Spearman 0.93 [0.91, 0.95]', with the digits of a comparison."""
        score, digits = self.of(agreement), self.digits_in(comparison)
        return f"{self.name} {number(score.value, digits)} {interval(score, digits)}".rstrip()


RANKED = SPEARMAN, WASSERSTEIN = (
    Measure("spearman", "Spearman", True, 2),
    Measure("wasserstein", "Wasserstein", False, 3),
)
WITHOUT_FIRST = [
    replace(one, field=f"{one.field}_without_first", name=f"{one.name} without token 0") for one in RANKED
]
MEASURES = (*RANKED, *WITHOUT_FIRST)


def digits_of(reach: float) -> int:
    """Digits after the point that show two significant ones of half an interval."""
    return min(5, max(1, 1 - math.floor(math.log10(reach))))


def number(value: float, digits: int) -> str:
    """A number with this many digits after the point and a proper minus sign; a dash where it is undefined."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def interval(score: Estimate, digits: int) -> str:
    """The interval in brackets, or nothing."""
    return "" if score.bounds is None else f"[{', '.join(number(end, digits) for end in score.bounds)}]"


WHERE, SURE = "Where does this model look?", "How sure is that?"
SHOWS = "What does this curve show?"
EXPECTED, PROMPT = "What would one expect from its architecture?", "What does it mean for a prompt?"
ARCHITECTURE, ATTENDED = "positional", "measured_kernels"
"""The predictor that knows mask, encoding and residual connection alone, and the rollout of measured attention."""
BASELINES = {"uniform": "a uniform profile", "recency_only": "plain recency, 1/(distance + 1)"}
_SINK = 5.0, 3.0
"""Token 0 counts as a sink from the first of these times an even share of attention on, and spoils a prediction
that gives it the second times its measured influence."""


def answers(found: Findings) -> dict[str, str]:
    """By question: where the model looks, how sure that is, what its architecture implies, what follows."""
    answered = {WHERE: _looks(found), SURE: _sure(found), EXPECTED: _expected(found), PROMPT: _prompt(found)}
    return {question: text for question, text in answered.items() if text}


def _looks(found: Findings) -> str:
    measured, s = found.measured, found.measured.summary
    return of_profile.paragraph(
        f"of the influence of {s.tokens} tokens on the next one, {of_profile.ends_line(measured)}",
        *(f"verdict {said}" for said in s.ends_alone),
        of_profile.trough_line(measured, found.trough_range),
        *of_profile.out_of_reach(measured),
    )


def _sure(found: Findings) -> str:
    opening = "that is what the mean of these prompts shows: " if found.measured.doubts else ""
    text, tokens = found.measurement.attrs.get("text", "an unnamed text"), found.measured.tokens
    return of_profile.paragraph(
        f"{opening}{'; '.join(of_profile.surety(found.measured))}",
        f"they are pieces of {tokens} tokens from the text ‘{text}’; other texts and lengths may differ",
    )


def _expected(found: Findings) -> str:
    """The profile of mask, encoding and residual alone, compared with the measured one and two plain curves."""
    expected = found.predictions.get(ARCHITECTURE)
    if expected is None:
        return ""
    s, comparison = expected.summary, found.comparison
    sides = {one.less: one.scores.wasserstein for one in comparison.leads if one.more == ARCHITECTURE}
    others = ", and ".join(
        f"{_side(sides.get(name))} {words} ({_moved(found, comparison.baselines[name].wasserstein)})"
        for name, words in BASELINES.items()
    )
    kind = "the same" if s.verdict == found.measured.summary.verdict else "another"
    favours = of_profile.VERDICTS[s.verdict or "flat"]["favours"]
    about = {"favours": favours, "ends": of_profile.ends_line(expected), "kind": kind}
    moved = _moved(found, comparison.agreements[ARCHITECTURE].wasserstein)
    return of_profile.SENTENCES["expected"].format(moved=moved, others=others, **about)


def _moved(found: Findings, score: Estimate) -> str:
    """A Wasserstein distance in percent of the context, with as many digits as the intervals allow."""
    return f"{number(100 * score.value, max(0, WASSERSTEIN.digits_in(found.comparison) - 2))} %"


def _side(lead: Estimate | None) -> str:
    if lead is None or not lead.tells():
        return "not significantly nearer or farther than"
    return "nearer than" if lead.value < 0 else "farther than"


def _prompt(found: Findings) -> str:
    """What the verdict says of text in a prompt, as far as it goes, and what it does not say."""
    s, (first, last) = found.measured.summary, of_profile.ends_of(found.measured)
    assert s.verdict is not None
    least = (1.0 - found.measured.trough_depth.value) * s.ends / s.tokens
    name, end = max(("first", first), ("last", last), key=lambda one: one[1].value)
    times = ""
    if s.verdict in ("recency", "primacy", "U") and least > 0:
        times = f"{end.value / least:.2g} times as much as one where influence is least"
        times = f": a token of the {name} {s.ends} weighs {times}"
    opening = "If the verdict holds, in" if found.measured.doubts else "In"
    weighs, not_use = of_profile.VERDICTS[s.verdict]["weighs"], of_profile.SENTENCES["not_use"]
    return f"{opening} prompts like these {weighs}{times}. {not_use}"


def verdicts(found: Findings) -> list[str]:
    """What the scores say: the best predictors, what noise allows, and what a sink does."""
    return [sentence for sentence in (_best(found), _noise(found), _sink(found)) if sentence]


def _best(found: Findings) -> str:
    agreements, comparison = found.judged.agreements, found.comparison
    best = {measure: keys[0] for measure in RANKED if (keys := measure.best(agreements))}
    if len(best) < 2:
        return ""
    how = of_profile.SENTENCES["held_out" if comparison.held_out else "not_held_out"]
    said = ", ".join(
        f"by {measure.name} ‘{LABELS.get(key, key)}’ ({measure.text(agreements[key], comparison)})"
        for measure, key in best.items()
    )
    uniform = WASSERSTEIN.text(found.judged.baselines["uniform"], comparison)
    chosen = [one.chosen for one in PREDICTORS if one.key in best.values() and one.chosen]
    opening = f"Of {len(agreements)} predictors, {how}, the best is {said}"
    return " ".join([f"{opening}; a uniform profile: {uniform}.", *_rivals(found, best), *chosen])


def _rivals(found: Findings, best: Mapping[Measure, str]) -> Iterator[str]:
    """Which predictors the best is not significantly better than, by each measure."""
    for measure, key in best.items():
        others = [one for one in found.judged.agreements if one != key]
        paired = {one: found.difference(key, one, measure.field) for one in others}
        open_ = [
            f"‘{LABELS.get(one, one)}’" for one, by in paired.items() if by and by.bounds and not by.tells()
        ]
        opening = f"By {measure.name}, ‘{LABELS.get(key, key)}’ is"
        if open_:
            yield f"{opening} not significantly better than {', '.join(open_)}."
        elif any(by and by.bounds for by in paired.values()):
            yield f"{opening} better than every other predictor (each at 95 %)."


def _noise(found: Findings) -> str:
    if found.ceiling is None:
        return "With fewer than four prompts it is not known how much noise they leave in the measured influence."
    scored = " and ".join(measure.text(found.ceiling, found.comparison) for measure in RANKED)
    prompts = "half the prompts" if found.comparison.held_out else "these prompts"
    return f"Noise ceiling: against {prompts} a noiseless predictor would score about {scored}."


def _sink(found: Findings) -> str:
    """What a sink does to a rollout of attention; only where token 0 is one and is given far more than it has."""
    attention = found.measurement["sink_share"].values
    even = float((1.0 / (2 + found.measurement["position"].values[:-1])).mean())
    rollout = found.predictions.get(ATTENDED)
    measured = float(found.measured.mass[0])
    if rollout is None or attention.mean() < _SINK[0] * even or rollout.mass[0] < _SINK[1] * measured:
        return ""
    shares = {"drawn": attention.mean(), "even": even, "given": rollout.mass[0], "measured": measured}
    percents = {name: 100 * share for name, share in shares.items()}
    return of_profile.SENTENCES["sink"].format(predictor=LABELS[ATTENDED], **percents)
