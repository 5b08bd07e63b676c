"""Figure 1: λ by layer at several lengths, on each model's first corpus."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posbias.claims import Claim
from posbias.papers.herasimchyk2026 import schedules
from posbias.papers.herasimchyk2026.measurements import Measurements, study_of
from posbias.papers.herasimchyk2026.schedules import Mixings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _shown(results: Measurements) -> Mixings:
    return results.mixings(key for key in results.cells if key.corpus == results.first(key.model))


STUDY = study_of(
    "fig1",
    "λ by layer at several lengths",
    "Does the weight of attention against the residual stream fall with depth?",
    [
        Claim(
            "herasimchyk2026/fig1/1",
            "Figure 1",
            schedules.FALLS,
            lambda results: schedules.falls(_shown(results)),
        )
    ],
    lambda results: schedules.tables(_shown(results)),
    lambda results: schedules.data(_shown(results)),
    schedules.note,
    draws=True,
    minutes={"quick": 7.5, "full": 160},
    counts={"quick": 5, "full": 7},
    missing=lambda results: "" if results.cells else "nothing measured",
)


def draw(results: Measurements, caption: Sequence[tuple[str, str]]) -> "Figure":
    """A column per model, a line per length."""
    return schedules.draw_schedules(_shown(results), caption)
