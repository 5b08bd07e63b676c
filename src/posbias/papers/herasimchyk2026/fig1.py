"""Figure 1: λ by layer at several lengths, on each model's first corpus."""

from posbias.claims import Claim
from posbias.papers.herasimchyk2026.measurements import Measurements
from posbias.papers.herasimchyk2026.schedules import FALLS, Mixings, falls, schedule_study


def _shown(results: Measurements) -> Mixings:
    return results.mixings(key for key in results.cells if key.corpus == results.first(key.model))


STUDY = schedule_study(
    "fig1",
    "λ by layer at several lengths",
    "Does the weight of attention against the residual stream fall with depth?",
    [Claim("herasimchyk2026/fig1/1", "Figure 1", FALLS, lambda results: falls(_shown(results)))],
    _shown,
    minutes={"quick": 7.5, "full": 160},
    counts={"quick": 5, "full": 7},
    missing=lambda results: "" if results.cells else "nothing measured",
)
