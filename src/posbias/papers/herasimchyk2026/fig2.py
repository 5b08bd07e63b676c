"""Figure 2: levels and measured influence of models that add a line by distance to their logits (ALiBi)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posbias.papers.herasimchyk2026.measurements import Measurements
from posbias.papers.herasimchyk2026.profiles import profile_study

if TYPE_CHECKING:
    from posbias.papers.herasimchyk2026.levels import Curves


def _shown(results: Measurements) -> "Sequence[Curves]":
    """Measured models, and those of the authors' files, each on its first corpus."""
    measured = [curves for key in results.leading if (curves := results.curves(key)).additive]
    from_files = {curves.model: curves for curves in reversed(results.from_files)}
    return [*measured, *(curves for curves in results.from_files if curves is from_files[curves.model])]


STUDY = profile_study(
    "fig2",
    "Levels (a) to (c) and measured influence of models with linear biases",
    "Does attention-only rollout collapse on the first token, and does the residual connection make it a U?",
    _shown,
    "no model that adds a line by distance to its logits, and no rollout files",
)
