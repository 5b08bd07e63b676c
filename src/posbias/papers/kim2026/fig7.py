"""Figure 7: the key factor h(j) by anisotropy, with a residual connection, in both readings of its closed form."""

from typing import TYPE_CHECKING

from posbias.papers.kim2026.closed_forms import draw_key_factor_figure, key_factor_study
from posbias.papers.study import Results
from posbias.theory.closed_forms.layernorm import ReadingName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = key_factor_study(
    "kim2026/fig7",
    "Key factor h(j) by anisotropy, with a residual connection",
    "Does the closed form rise with the key under a residual connection?",
    residual=True,
)


def draw(results: Results, reading: ReadingName = "corrected") -> "Figure":
    """h(j) against j; `reading` is the closed form drawn as a line, the other is dashed."""
    return draw_key_factor_figure(results, residual=True, reading=reading)
