"""Figure 3: levels and measured influence of models with any other encoding of positions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posbias.papers.herasimchyk2026.measurements import Measurements
from posbias.papers.herasimchyk2026.profiles import profile_study

if TYPE_CHECKING:
    from posbias.papers.herasimchyk2026.levels import Curves


def _shown(results: Measurements) -> "Sequence[Curves]":
    return [curves for key in results.leading if not (curves := results.curves(key)).additive]


STUDY = profile_study(
    "fig3",
    "The same for further models",
    "Is the measured influence U-shaped, and its minimum where the rollout has it?",
    _shown,
    "every model adds a line by distance to its logits (see fig2)",
)
