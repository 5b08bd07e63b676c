"""Influence by the position of the key as lines, with the places where they turn, of several laws or models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.reports.plots.style import INK, LEGEND, LINE, SERIES, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOT = 3.0
"""Points across a dot."""


def draw_position_curves(
    ax: "Axes",
    positions: Float[np.ndarray, "position"],
    curves: Mapping[str, Float[np.ndarray, "position"]],
    turns: Sequence[Sequence[float]] = (),
    *,
    measured: Sequence[Float[np.ndarray, "position"]] = (),
    key: bool = True,
) -> "Axes":
    """Draw influence per unit of the text by name, logarithmic, with a dot where each curve turns (`turns`).

    What is `measured`, or rolled out, is drawn as dots in ink beneath the lines. `key` adds the legend.
    """
    dress(ax, "position (1: the last token)", "influence (even spread = 1)")
    for values in measured:
        ax.plot(positions, values, color=INK, marker=".", markersize=DOT, linestyle="none", zorder=1)
    for place, (name, values) in enumerate(curves.items()):
        colour = SERIES[place % len(SERIES)]
        ax.plot(positions, values, color=colour, linewidth=LINE, label=name)
        for turn in turns[place] if turns else ():
            ax.plot(turn, np.interp(turn, positions, values), color=colour, marker="o", markersize=DOT)
    ax.set_yscale("log")
    if key:
        ax.legend(**LEGEND)
    return ax
