"""Scores as text: which of them is best, and as many digits as their intervals allow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from posbias.comparison.predictors import PREDICTORS
from posbias.comparison.reliability import ROWS
from posbias.comparison.scores import Agreement, Comparison
from posbias.profiles.estimate import Estimate

LABELS = {predictor.key: predictor.label for predictor in PREDICTORS}
"""What predictors are called."""


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
        if not defined:
            return []
        top = max(defined) if self.more_is_better else min(defined)
        return [key for key, value in values.items() if value == top]

    def digits_in(self, comparison: Comparison) -> int:
        """Digits after the point: two significant ones of the widest half interval in the comparison."""
        every = [*comparison.agreements.values(), *comparison.baselines.values()]
        noise = comparison.reliability
        every += [] if noise is None else [getattr(noise, name) for name in ROWS]
        intervals = [self.of(one).bounds for one in every]
        widest = max(((high - low) / 2 for low, high in filter(None, intervals)), default=0.0)
        return digits_of(widest) if widest > 0 else self.digits


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
    """A number with so many digits and a proper minus sign; a dash where it is undefined."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def interval(score: Estimate, digits: int) -> str:
    """The interval in brackets, or nothing."""
    if score.bounds is None:
        return ""
    low, high = score.bounds
    return f"[{number(low, digits)}, {number(high, digits)}]"


def percent(estimate: Estimate) -> str:
    """A share as `28.4 ± 1.4 %`, with the digits its error allows."""
    return f"{Estimate(100 * estimate.value, 100 * estimate.se, estimate.n)} %".replace("-", "−")
