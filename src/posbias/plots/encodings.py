"""Models that differ in one thing side by side: mixing by layer, influence by position, and what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.plots.influence import INFLUENCE, POSITION, scale_influence
from posbias.plots.levels import SERIES, draw_mixing_series
from posbias.plots.style import COLOURS, INK, LINE, MUTED, SMALL, THIN, dress, key
from posbias.profile import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

SIZE = (7.6, 4.6)
"""Inches that `draw_encodings` takes with five models."""
DRAWN = ("a", "b", "e")
"""Predictions that are drawn, by letter, where a model has them."""
FAINTEST = 1e-3
"""Influence below this, in units of an even spread, lies outside the picture."""
_COLOUR = dict(zip(DRAWN, (COLOURS[one] for one in ("attention_only", "positional", "energy")), strict=True))


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
    key(left, 3)
    draw_measured(right, shown)
    panels = below.subplots(1, len(shown), squeeze=False)[0]
    for place, (one, ax) in enumerate(zip(shown, panels, strict=True)):
        draw_predicted(ax, one, SERIES[place % len(SERIES)])
        ax.tick_params(labelleft=place == 0)
        if place:
            ax.set_ylabel("")
    low = max(FAINTEST, min(0.5, min(float(_height(one.measured).min()) for one in shown) / 2))
    high = 1.5 * max(float(_height(one.measured).max()) for one in shown)
    for ax in (right, *panels):
        scale_influence(ax, low, high)
    handles, labels = panels[0].get_legend_handles_labels()
    below.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=SMALL, labelcolor=INK
    )
    return part


def draw_measured(ax: "Axes", shown: Sequence[EncodingCurves]) -> "Axes":
    """Draw measured influence of several models with 95 % bands, in units of an even spread.

    Colours are those of `draw_mixing_series`, whose legend names the models.
    """
    dress(ax, POSITION, INFLUENCE)
    ax.axhline(1, color=MUTED, linewidth=THIN, linestyle=(0, (2, 2)), zorder=1)
    for place, one in enumerate(shown):
        colour = SERIES[place % len(SERIES)]
        _band(ax, one.measured, colour, 0.2)
        ax.plot(_height(one.measured), color=colour, linewidth=0.8, label=one.name)
    return ax


def draw_predicted(ax: "Axes", one: EncodingCurves, colour: str) -> "Axes":
    """Draw one model's measured influence, its 95 % band, and its predictions (`DRAWN`), named above the axes."""
    from matplotlib.ticker import MaxNLocator

    dress(ax, POSITION, INFLUENCE)
    _band(ax, one.measured, MUTED, 0.35)
    ax.plot(_height(one.measured), color=INK, linewidth=0.6, label="measured, 95 % band", zorder=5)
    for letter in DRAWN:
        if letter in one.predictions:
            prediction = one.predictions[letter]
            label = str(prediction.attrs.get("predictor", letter))
            ax.plot(_height(prediction), color=_COLOUR[letter], linewidth=LINE, label=label)
            ax.plot(0, _height(prediction)[0], "o", color=_COLOUR[letter], markersize=2.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    ax.set_title(one.name, fontsize=SMALL, color=colour, loc="left", pad=3)
    return ax


def _band(ax: "Axes", profile: Profile, colour: str, alpha: float) -> None:
    if profile.se is not None:
        height, spread = _height(profile), 1.96 * np.asarray(profile.se) * profile.tokens
        low = np.maximum(height - spread, FAINTEST / 10)
        ax.fill_between(np.arange(height.size), low, height + spread, color=colour, alpha=alpha, linewidth=0)


def _height(profile: Profile) -> Float[np.ndarray, "position"]:
    """Mass in units of an even spread."""
    return np.asarray(profile.mass) * profile.tokens
