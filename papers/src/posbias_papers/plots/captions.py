"""Figures with a line of words beneath their panels, laid out once and for all."""

import textwrap
from typing import TYPE_CHECKING, Any

from posbias.reports.plots.style import MUTED, SMALL, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LINE_HEIGHT, CHARACTERS = 0.135, 18.5
"""Inches of a line, and its characters per inch of the figure's width."""


def captioned_figure(width: float, height: float, caption: str) -> "tuple[Figure, SubFigure]":
    """A figure of `width` × `height` inches of panels with a caption beneath, and the part for panels.

    The caption is wrapped at the width; call `settle` when the panels are drawn.
    """
    lines = textwrap.wrap(caption, int(CHARACTERS * width))
    room = 0.1 + LINE_HEIGHT * len(lines)
    figure = new_figure(width, height + room)
    grid = figure.add_gridspec(2, 1, height_ratios=(height, room))
    panels, beneath = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    words = {"fontsize": SMALL, "color": MUTED, "va": "top", "linespacing": 1.3}
    beneath.text(0.012, 1 - 0.04 / room, "\n".join(lines), **words)
    return figure, panels


def settle(figure: "Figure") -> "Figure":
    """Lay the figure out and round all places, so that the same data give the same bytes.

    The solver of the layout takes its variables in the order of their addresses; its sums differ in last digits.
    """
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    parts: list[Any] = [*figure.subfigs]
    while parts:
        part = parts.pop()
        part.bbox_relative.set_points(part.bbox_relative.get_points().round(5))
        parts += part.subfigs
    for ax in figure.axes:
        ax.set_position(Bbox(ax.get_position().get_points().round(5)))
    return figure
