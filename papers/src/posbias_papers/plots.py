"""Pictures that papers share: figures with a line of words beneath their panels, laid out once and for all, and
masks as admitted pairs, as a directed graph, and as walks through layers (Wu et al. 2025, Figure 1)."""

import itertools
import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from posbias.reports.plots.style import ACCENT, INK, MUTED, PAPER, RULE, SMALL, THIN, dress, new_figure
from posbias.theory.graph import centre_nodes, walks
from posbias.theory.masks import LooksBack, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    panels, beneath = figure.subfigures(2, 1, squeeze=False, height_ratios=(height, room)).flat
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


# --- masks -------------------------------------------------------------------------------------------------

ARCH = 0.32
"""Height of an arc, as a share of its span."""
RISE = 1.6
"""Distance of two layers, in distances of two tokens."""
WIDTH = 2.3
"""Inches of a mask."""


def mask_figure(masks: Sequence[Mask], tokens: int, layers: int = 0) -> "Figure":
    """Masks of a few tokens next to each other: as a matrix, with the graph below, and the walks through layers
    above.

    Centre nodes, and what leaves them, are in the accent colour.
    """
    above = [WIDTH * (RISE * layers + 1.2) / (tokens + 0.2)] if layers else []
    heights = [*above, WIDTH - 0.4, 0.75 * WIDTH]
    figure = new_figure(WIDTH * len(masks), sum(heights) + 0.75 + 0.25 * bool(layers))
    axes = figure.subplots(len(heights), len(masks), squeeze=False, height_ratios=heights)
    for mask, column in zip(masks, axes.T, strict=True):
        title = mask.title if isinstance(mask, LooksBack) else type(mask).__name__.lower()
        if layers:
            title += f"\n{_draw_walks(column[0], mask, tokens, layers)}"
        _draw_matrix(column[-2], mask, tokens)
        _draw_graph(column[-1], mask, tokens)
        column[0].set_title(title, fontsize=SMALL + 1, color=INK, pad=5)
    for ax in axes[-2, 1:]:
        ax.set_ylabel("")
    return figure


def _draw_matrix(ax: "Axes", mask: Mask, tokens: int) -> None:
    """Which key (column) each query (row) may attend to; columns of centre nodes in the accent colour."""
    from matplotlib.colors import to_rgb

    colours = np.tile(np.array(to_rgb(MUTED)), (tokens, 1))
    colours[centre_nodes(mask, tokens)] = to_rgb(ACCENT)
    paper = np.array(to_rgb(PAPER))
    dress(ax, "key (attended)", "query (attending)")
    ax.grid(False)
    ax.imshow(paper + 0.75 * mask.allowed(tokens)[..., None] * (colours - paper), interpolation="nearest")
    for lines in (ax.vlines, ax.hlines):
        lines(np.arange(tokens + 1) - 0.5, -0.5, tokens - 0.5, color=PAPER, linewidth=THIN)
    ax.spines[:].set_visible(True)


def _draw_graph(ax: "Axes", mask: Mask, tokens: int) -> None:
    """An arc from each key to every query that may attend to it, to later tokens above, to earlier ones below."""
    from matplotlib.patches import FancyArrowPatch

    centres = centre_nodes(mask, tokens).tolist()
    nodes = _draw_nodes(ax, 0, 0.31, tokens, filled=centres, edged=centres)
    shape: dict[str, Any] = {"arrowstyle": "-|>,head_length=0.35,head_width=0.15", "mutation_scale": 7}
    shape |= {"connectionstyle": f"arc3,rad={-2 * ARCH}", "shrinkA": 0, "shrinkB": 0.5}
    for query, key in np.argwhere(mask.allowed(tokens)).tolist():
        if query != key:
            central = key in centres
            look = {"color": ACCENT if central else MUTED, "linewidth": THIN, "zorder": 1 + central}
            ends = {"patchA": nodes[key], "patchB": nodes[query]}
            ax.add_patch(FancyArrowPatch((key, 0), (query, 0), **shape, **ends, **look))
    reach = ARCH * (tokens - 1) + 0.5
    below = reach if np.triu(mask.allowed(tokens), 1).any() else 0.5
    ax.set(xlim=(-0.6, tokens - 0.4), ylim=(-below, reach))
    ax.set_aspect("equal")
    ax.axis("off")
    named, colour = "no centre node", MUTED
    if centres:
        named = f"centre node{'s' * (len(centres) > 1)} {', '.join(map(str, centres))}"
        colour = ACCENT
    ax.set_title(named, fontsize=SMALL, color=colour, pad=3)


def _draw_walks(ax: "Axes", mask: Mask, tokens: int, layers: int) -> str:
    """`layers` copies of the graph above each other, bottom first, each token attending to itself too, and how
    many walks lead from the centre nodes to the last token; what lies on these is in the accent colour."""
    centres, allowed = centre_nodes(mask, tokens).tolist(), mask.allowed(tokens)
    rows = _on_walks(allowed, centres, layers)
    for layer, (below, above) in enumerate(itertools.pairwise(rows)):
        for query, key in np.argwhere(allowed).tolist():
            taken = below[key] and above[query]
            look = {"color": ACCENT if taken else RULE, "linewidth": THIN * (1.6 if taken else 1.0)}
            ax.plot([key, query], [RISE * layer, RISE * (layer + 1)], zorder=1 + taken, **look)
    for layer, row in enumerate(rows):
        edged = np.flatnonzero(row).tolist()
        _draw_nodes(ax, RISE * layer, 0.24, tokens, filled=() if layer else centres, edged=edged, edge=MUTED)
        name = f"layer {layer - 1}" if layer else "input"
        ax.text(-0.5, RISE * layer, name, ha="right", va="center", fontsize=SMALL - 1, color=MUTED)
    ax.set(xlim=(-1.6, tokens - 0.4), ylim=(-0.5, RISE * layers + 0.5), aspect="equal")
    ax.axis("off")
    counted = walks(mask, tokens, layers)[-1]
    return f"walks to {tokens - 1}: {', '.join(f'{counted[centre]} from {centre}' for centre in centres)}"


def _on_walks(
    allowed: Bool[np.ndarray, "query key"], sources: Sequence[int], layers: int
) -> list[Bool[np.ndarray, "token"]]:
    """By layer from the input on, the tokens on a walk from a source to the last token."""
    tokens = len(allowed)
    from_below, to_above = [np.isin(np.arange(tokens), sources)], [np.arange(tokens) == tokens - 1]
    for _ in range(layers):
        from_below.append(np.any(allowed & from_below[-1], axis=1))
        to_above.append(np.any(allowed & to_above[-1][:, None], axis=0))
    return [below & above for below, above in zip(from_below, reversed(to_above), strict=True)]


def _draw_nodes(
    ax: "Axes",
    y: float,
    radius: float,
    tokens: int,
    *,
    filled: Collection[int],
    edged: Collection[int],
    edge: str = INK,
) -> list[Any]:
    """A row of nodes with their positions, some filled or edged in the accent colour."""
    from matplotlib.patches import Circle

    nodes = []
    for position in range(tokens):
        colours = {"facecolor": ACCENT if position in filled else PAPER}
        colours["edgecolor"] = ACCENT if position in edged else edge
        nodes.append(ax.add_patch(Circle((position, y), radius, linewidth=THIN * 1.5, zorder=3, **colours)))
        look = {"color": PAPER if position in filled else INK, "fontsize": SMALL + 4 * radius - 2}
        ax.text(position, y, str(position), ha="center", va="center_baseline", zorder=4, **look)
    return nodes
