"""Mean content logits as heat maps: is there a constant, and a diagonal that stands out from it?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.reports.plots.style import INK, SMALL, TEXT, colour_bar, draw_matrix, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    """Draw a row per model (its name, its heads), every panel with colours of its own.

    Layout: Herasimchyk et al. 2026, Figure 5.
    """
    columns = max(len(maps) for _, maps in rows)
    panels = part.subplots(len(rows), columns, squeeze=False)
    for (name, maps), line in zip(rows, panels, strict=True):
        for ax in line[len(maps) :]:
            ax.set_axis_off()
        for one, ax in zip(maps, line, strict=False):
            draw_content(ax, one.matrix, "content logit" if one is maps[-1] else "")
            ax.set_title(one.title, fontsize=SMALL, color=INK, pad=3)
        line[0].set_ylabel(f"{name}\nquery", fontsize=TEXT, color=INK)
    for ax in panels[-1]:
        ax.set_xlabel("key", fontsize=TEXT, color=INK)
    return part


def draw_content(ax: "Axes", matrix: Float[np.ndarray, "query key"], unit: str = "") -> "Axes":
    """Draw mean content logits below and on the diagonal as colours, between the 1 and 99 % percentiles.

    `unit` is written next to the colour bar.
    """
    dress(ax, "", "")
    low, high = np.nanpercentile(matrix, TAILS)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    bar = colour_bar(ax, draw_matrix(ax, matrix, vmin=low, vmax=high), extend="both")
    bar.set_label(unit, fontsize=SMALL, color=INK)
    return ax
