"""What a study found, over one of the things it varied: a line per combination of the others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from posbias.reports.plots.style import LINE, dress, key, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 10.0
"""Positive values of an axis whose ends are further apart than this factor stand on a logarithmic scale."""


class Drawn(Protocol):
    """A line: its label ("" for none), and value and half of its 95 % interval (0: exact) at every x."""

    @property
    def label(self) -> str: ...
    @property
    def x(self) -> Sequence[float]: ...
    @property
    def value(self) -> Sequence[float]: ...
    @property
    def reach(self) -> Sequence[float]: ...


def draw_study(ax: "Axes", lines: Sequence[Drawn], axis: str, quantity: str) -> "Axes":
    """Draw the lines over `axis` with their 95 % intervals."""
    drawn = any(reach > 0 for line in lines for reach in line.reach)
    dress(ax, axis, f"{quantity} ± 95 %" if drawn else quantity)
    for place, line in enumerate(lines):
        look = {"markersize": 3, "linewidth": LINE, "capsize": 2, "label": line.label}
        ax.errorbar(line.x, line.value, line.reach if drawn else None, **look, **series(place))
    values = sorted({x for line in lines for x in line.x})
    if values[0] > 0 and values[-1] > WIDE * values[0]:
        ax.set_xscale("log")
        ax.set_xticks(values, [f"{x:g}" for x in values])
        ax.minorticks_off()
    if any(line.label for line in lines):
        key(ax, 2)
    return ax
