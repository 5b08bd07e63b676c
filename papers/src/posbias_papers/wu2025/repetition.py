"""A cell that was made again, held against its record: the same to the bit, or how far from it.

Equal weights need the same processor, number of threads and version of torch; elsewhere rounding grows over
training into other networks, which begin alike and see the same data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posbias.profiles.estimate import Estimate
from posbias.reports.answers.numbers import Value
from posbias.training.averages import Averages
from posbias.training.results import Cell
from posbias_papers.wu2025.trained_records import Record, weights_digest


@dataclass(frozen=True)
class Repetition:
    """Whether the weights are those on record, and by how much the numbers differ, made again less recorded.

    `differences` are means over networks: gaps on all sequences by pair, `in_context_accuracy` and `loss` (nats).
    Their standard errors take both sides for independent, which is more than they have where data are the same.
    """

    same_weights: bool
    differences: Mapping[str, Estimate]

    @property
    def deviations(self) -> dict[str, float]:
        """The differences in standard errors: 0 where there is none, NaN where an error is not known."""
        return {name: _in_errors(difference) for name, difference in self.differences.items()}

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON: each difference with its `se` and in `standard_errors`."""
        told = {
            name: Value.of(difference).model_dump() | {"standard_errors": self.deviations[name]}
            for name, difference in self.differences.items()
        }
        return {"same_weights": self.same_weights, "differences": told}

    def lines(self) -> list[str]:
        """The same in words."""
        weights = "equal to the bit" if self.same_weights else "others than those on record"
        told = [
            f"{name} {difference.value:+.4f} ({self.deviations[name]:+.1f} standard errors)"
            for name, difference in self.differences.items()
        ]
        return [f"made again: weights {weights}; less the record: {', '.join(told)}"]


def repetition(cell: Cell, record: Record) -> Repetition:
    """How a cell that was made again differs from its record."""
    pairs = {
        name: (cell.evaluation.gaps[name].over_all, gap.over_all)
        for name, gap in record.cell.evaluation.gaps.items()
    }
    pairs |= {
        name: (getattr(cell.evaluation, name), getattr(record.cell.evaluation, name))
        for name in ("in_context_accuracy", "loss")
    }
    differences = {name: _difference(*both) for name, both in pairs.items()}
    return Repetition(weights_digest(cell.trained) == record.weights, differences)


def _difference(made: Averages, recorded: Averages) -> Estimate:
    return made.estimate - recorded.estimate


def _in_errors(difference: Estimate) -> float:
    if difference.value == 0:
        return 0.0
    return difference.value / difference.se if difference.se > 0 else math.nan
