"""Figure 4: λ by layer on further texts, and whether it is that of the first."""

from posbias.claims import Claim
from posbias.papers.herasimchyk2026 import schedules
from posbias.papers.herasimchyk2026.cells import names
from posbias.papers.herasimchyk2026.measurements import Measurements
from posbias.papers.herasimchyk2026.schedules import FALLS, Mixings


def _shown(results: Measurements) -> Mixings:
    return results.mixings(key for key in results.cells if key.corpus != results.first(key.model))


def _all(results: Measurements) -> Mixings:
    return results.mixings(results.cells)


STUDY = schedules.schedule_study(
    "fig4",
    "λ by layer on further texts",
    "Is the schedule of λ the same on every text?",
    [
        Claim("herasimchyk2026/fig4/1", "Figure 4", FALLS, lambda results: schedules.falls(_all(results))),
        Claim(
            "herasimchyk2026/fig4/2",
            "Figure 4",
            "λ is that of {first} on every other corpus, layer by layer",
            lambda results: schedules.unchanged(_all(results)),
            provenance="ours",
        ),
    ],
    _shown,
    words=lambda results: {"first": names(results.cells, "corpus")[0]},
    minutes={"quick": 0.5, "full": 10},
    counts={"quick": 4, "full": 4},
    options="--shuffle-tokens",
    missing=lambda results: "" if _shown(results) else "one corpus only",
)
