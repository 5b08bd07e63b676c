"""What a report rests on: a measurement, its predictions, their scores; and scores as text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from posbias.comparison.agreement import ROWS, Agreement
from posbias.comparison.predictors import PREDICTORS, USED, chain
from posbias.comparison.scores import Comparison, HeldOut
from posbias.core.machine import stream
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile

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
        return f"{self.name} {score_text(self.of(agreement), self.digits_in(comparison))}"


SPEARMAN = Measure("spearman", "Spearman", True, 2)
WASSERSTEIN = Measure("wasserstein", "Wasserstein", False, 3)
MEASURES = (
    SPEARMAN,
    WASSERSTEIN,
    Measure("spearman_without_first", "Spearman without token 0", True, 2),
    Measure("wasserstein_without_first", "Wasserstein without token 0", False, 3),
)


def digits_of(reach: float) -> int:
    """Digits after the point that show two significant ones of half an interval."""
    return min(5, max(1, 1 - math.floor(math.log10(reach))))


def decided(difference: Estimate) -> bool:
    """Whether a difference is certain: its 95 % interval leaves out zero."""
    return difference.bounds is not None and not difference.bounds[0] <= 0.0 <= difference.bounds[1]


def number(value: float, digits: int) -> str:
    """A number with this many digits after the point and a proper minus sign; a dash where it is undefined."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def interval(score: Estimate, digits: int) -> str:
    """The interval in brackets, or nothing."""
    return "" if score.bounds is None else f"[{', '.join(number(end, digits) for end in score.bounds)}]"


def score_text(score: Estimate, digits: int) -> str:
    """A score and its interval, where it has one: '0.93 [0.91, 0.95]'."""
    return f"{number(score.value, digits)} {interval(score, digits)}".rstrip()
