"""Choices by place as a picture: what slots add to being chosen, in log-odds with 95 % intervals."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from posbias.profiles.estimate import Estimate
from posbias.reports.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_effects(ax: "Axes", effects: Mapping[str, Estimate]) -> "Axes":
    """Draw effects by their names, one below another; of a bound its finite end, as a triangle."""
    style.dress(ax, "log-odds of being chosen", "")
    ax.axvline(0.0, color=style.MUTED, linewidth=style.THIN, linestyle=style.DASHES, zorder=1)
    for place, one in enumerate(effects.values()):
        ends = [end for end in one.interval if math.isfinite(end)]
        value = one.value if not math.isinf(one.value) else ends[0]
        marker = "o" if math.isfinite(one.value) else ">" if one.value > 0 else "<"
        ax.plot(ends or [value], [place] * max(len(ends), 1), color=style.ACCENT, linewidth=style.LINE)
        ax.plot([value], [place], marker, color=style.ACCENT, markersize=3.5)
    ax.set_yticks(range(len(effects)), [*effects])
    ax.set_ylim(len(effects) - 0.4, -0.6)
    return ax
