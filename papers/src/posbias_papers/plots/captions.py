"""Figures that end in words: panels above, lines of text in their colours beneath, laid out once and for all."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posbias.profiles.claims import Judged
from posbias.reports.plots.style import COLOURS, MUTED, SECOND, SMALL, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LINE_HEIGHT, CHARACTERS = 0.135, 18.5
"""Inches of a line, and its characters per inch of the figure's width."""
_INK_OF = {"holds": COLOURS["fitted"], "fails": SECOND, "undecided": MUTED}


def verdict_lines(note: str, judged: Sequence[Judged]) -> list[tuple[str, str]]:
    """A note and judged claims as lines of text with their colours, for `captioned_figure`."""
    return [(note, MUTED), *((str(claim), _INK_OF[claim.verdict]) for claim in judged)]


def captioned_figure(
    width: float, height: float, lines: Sequence[tuple[str, str]]
) -> "tuple[Figure, SubFigure]":
    """A figure of `width` × `height` inches of panels with (text, colour) lines beneath, and the part for panels.

    Texts are wrapped at the width; call `settle` when the panels are drawn.
    """
    wrapped = [
        (textwrap.fill(text, int(CHARACTERS * width), subsequent_indent="      "), colour)
        for text, colour in lines
    ]
    room = 0.1 + LINE_HEIGHT * sum(text.count("\n") + 1 for text, _ in wrapped)
    figure = new_figure(width, height + room)
    grid = figure.add_gridspec(2, 1, height_ratios=(height, room))
    panels, caption = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    y = 0.04
    for text, colour in wrapped:
        caption.text(0.012, 1 - y / room, text, fontsize=SMALL, color=colour, va="top", linespacing=1.3)
        y += LINE_HEIGHT * (text.count("\n") + 1)
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
