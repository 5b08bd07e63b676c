"""Models that differ in one thing side by side: mixing by layer, influence by position, and what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.profile import Profile
from posbias.reports.plots import style
from posbias.reports.plots.influence import (
    INFLUENCE,
    POSITION,
    density,
    draw_band,
    predictor_label,
    scale_influence,
)
from posbias_papers.plots.levels import draw_mixing_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

SIZE = (7.6, 4.6)
"""Inches that `draw_encodings` takes with five models."""
DRAWN = ("a", "b", "e")
"""Predictions that are drawn, by letter, where a model has them."""
FAINTEST = 1e-3
"""Influence below this, in units of an even spread, lies outside the picture."""
_COLOUR = dict(
    zip(DRAWN, (style.COLOURS[one] for one in ("attention_only", "positional", "energy")), strict=True)
)


@dataclass(frozen=True, eq=False)
class EncodingCurves:
    """One model: λ by prompt and layer, measured influence, and predictions by letter."""

    name: str
    mixing: Float[np.ndarray, "prompt layer"]
    measured: Profile
    predictions: Mapping[str, Profile]


def draw_encodings(part: "Figure | SubFigure", shown: Sequence[EncodingCurves]) -> "Figure | SubFigure":
    """Draw above mixing by layer and influence by position of all models, each with its 95 % band; below, for each
    model, measured influence with its band and the predictions over it. Influence panels share one scale.
    """
    rows: Any = part.subfigures(2, 1, height_ratios=(1.15, 1.0))
    above, below = rows
    left, right = above.subplots(1, 2)
    draw_mixing_series(left, {one.name: one.mixing for one in shown})
    style.key(left, 3)
    draw_measured(right, shown)
    panels = below.subplots(1, len(shown), squeeze=False)[0]
    for place, (one, ax) in enumerate(zip(shown, panels, strict=True)):
        draw_predicted(ax, one, style.SERIES[place % len(style.SERIES)])
        ax.tick_params(labelleft=place == 0)
        if place:
            ax.set_ylabel("")
    heights = np.concatenate([density(one.measured) for one in shown])
    low, high = max(FAINTEST, min(0.5, float(heights.min()) / 2)), 1.5 * float(heights.max())
    for ax in (right, *panels):
        scale_influence(ax, low, high)
    handles, labels = panels[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=4, **style.LEGEND)
    return part


def draw_measured(ax: "Axes", shown: Sequence[EncodingCurves]) -> "Axes":
    """Draw measured influence of several models with 95 % bands, in units of an even spread.

    Colours are those of `draw_mixing_series`, whose legend names the models.
    """
    style.dress(ax, POSITION, INFLUENCE)
    style.level_line(ax, 1)
    for place, one in enumerate(shown):
        colour = style.SERIES[place % len(style.SERIES)]
        draw_band(ax, one.measured, colour, 0.2)
        ax.plot(density(one.measured), color=colour, linewidth=0.8, label=one.name)
    return ax


def draw_predicted(ax: "Axes", one: EncodingCurves, colour: str) -> "Axes":
    """Draw one model's measured influence, its 95 % band, and its predictions (`DRAWN`), named above the axes."""
    style.dress(ax, POSITION, INFLUENCE)
    draw_band(ax, one.measured, style.MUTED, 0.35)
    ax.plot(density(one.measured), color=style.INK, linewidth=0.6, label="measured, 95 % band", zorder=5)
    for letter in DRAWN:
        if letter in one.predictions:
            height, colour_of = density(one.predictions[letter]), _COLOUR[letter]
            label = predictor_label(letter, one.predictions[letter])
            ax.plot(height, color=colour_of, linewidth=style.LINE, label=label)
            ax.plot(0, height[0], "o", color=colour_of, markersize=2.5)
    style.whole_numbers(ax.xaxis, 3)
    ax.set_title(one.name, fontsize=style.SMALL, color=colour, loc="left", pad=3)
    return ax
