"""Designs: distance to a target against the size of the cache, and how far back they reach."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posbias.reports.plots.style import (
    ACCENT,
    DASHES,
    INK,
    MUTED,
    SMALL,
    THIN,
    colour_bar,
    dress,
    key,
    level_line,
    plain_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 22.0
"""Area of a dot, in square points."""


def draw_designs(ax: "Axes", front: Sequence[Any], baseline: Any, within: float) -> "Axes":
    """Draw a Pareto front: `cache` across, `distance` up, `reach` as colour; the dashed line is `within`.

    `front` and `baseline` are candidates of `posbias.design`.
    """
    from matplotlib.ticker import LogLocator

    dress(ax, "keys in the cache", "distance to the target")
    caches, distances, reaches = (
        [getattr(one, name) for one in front] for name in ("cache", "distance", "reach")
    )
    dots = ax.scatter(caches, distances, SIZE, reaches, cmap="viridis", label="on the front")
    ax.plot(baseline.cache, baseline.distance, "x", color=ACCENT, markersize=6, label="baseline")
    level_line(ax, within)
    ax.plot([], [], color=MUTED, linewidth=THIN, linestyle=DASHES, label=f"near enough ({within:g})")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_numbers(ax.xaxis)
    colour_bar(ax, dots).set_label("reach (tokens)", fontsize=SMALL, color=INK)
    key(ax)
    return ax
