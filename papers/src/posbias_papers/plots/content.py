"""Mean content logits as heat maps: is there a constant, and a diagonal that stands out from it?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.reports.plots.style import INK, SMALL, colour_bar, draw_matrix, dress

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

TAILS = (1.0, 99.0)
"""Percentiles of the visible entries at which a colour scale ends: a single sink would use all of it."""


@dataclass(frozen=True)
class ContentMap:
    """One head's mean content logits [query, key], NaN where masked, and the title of its panel."""

    title: str
    matrix: Float[np.ndarray, "query key"]


ContentRow = tuple[str, Sequence[ContentMap]]


def content_size(rows: Sequence[ContentRow]) -> tuple[float, float]:
    """Inches that `draw_content_rows` takes."""
    return 0.6 + 1.95 * max(len(maps) for _, maps in rows), 0.35 + 1.8 * len(rows)


def draw_content_rows(part: "Figure | SubFigure", rows: Sequence[ContentRow]) -> "Figure | SubFigure":
    """Draw a row per model (its name, its heads), every panel with colours of its own, between the 1 and 99 %
    percentiles of what is visible.

    Layout: Herasimchyk et al. 2026, Figure 5.
    """
    panels = part.subplots(len(rows), max(len(maps) for _, maps in rows), squeeze=False)
    for (name, maps), line in zip(rows, panels, strict=True):
        for ax in line[len(maps) :]:
            ax.set_axis_off()
        for one, ax in zip(maps, line, strict=False):
            dress(ax, "key" if line is panels[-1] else "", f"{name}\nquery" if ax is line[0] else "")
            low, high = np.nanpercentile(one.matrix, TAILS)
            colour_bar(ax, draw_matrix(ax, one.matrix, vmin=low, vmax=high), extend="both")
            ax.set_title(one.title, fontsize=SMALL, color=INK, pad=3)
    return part
