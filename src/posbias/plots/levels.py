"""Levels of a prediction side by side, each over what was measured; and mixing by layer at several lengths."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.estimate import Estimate
from posbias.plots.influence import draw_influence, scale_influence
from posbias.plots.layers import LAYER
from posbias.plots.style import (
    COLOURS,
    INK,
    LINE,
    MUTED,
    SMALL,
    TEXT,
    THIN,
    direct_label,
    dress,
    key,
)
from posbias.profile import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

SERIES = (*COLOURS.values(), "#cc79a7", INK)
"""Colours of lines told apart by nothing but their place in a legend (Okabe and Ito)."""
MARKERS = "osv^Dx*"
LevelsRow = tuple[str, Mapping[str, Profile], Profile | None]
_BY_LETTER = dict(zip("abcd", ("attention_only", "positional", "measured_kernels", "fitted"), strict=True))


def levels_size(rows: Sequence[LevelsRow]) -> tuple[float, float]:
    """Inches that `draw_levels` takes."""
    return 0.7 + 1.85 * (len(_letters(rows)) + 1), 0.35 + 1.75 * len(rows)


def draw_levels(part: "Figure | SubFigure", rows: Sequence[LevelsRow]) -> "Figure | SubFigure":
    """Draw a row per model (name, levels by letter, measured curve or None), a column per level and one measured.

    Every level stands alone in colour over the measured curve; all panels of a row share their scale. Layout:
    Herasimchyk et al. 2026, Figures 2 and 3.
    """
    letters = _letters(rows)
    panels = part.subplots(len(rows), len(letters) + 1, squeeze=False)
    for place, (name, levels, measured) in enumerate(rows):
        drawn = [
            _level(ax, letter, levels.get(letter), measured)
            for letter, ax in zip(letters, panels[place], strict=False)
        ]
        drawn.append(_measured(panels[place][-1], measured))
        _one_scale([ax for ax in drawn if ax is not None])
        for column, ax in enumerate(panels[place]):
            ax.tick_params(labelleft=column == 0)
            ax.set_ylabel(f"{name}\ninfluence" if column == 0 else "", fontsize=TEXT)
            ax.set_xlabel("position" if place == len(rows) - 1 else "", fontsize=TEXT)
    return part


def draw_mixing_series(ax: "Axes", series: Mapping[str, Float[np.ndarray, "prompt layer"]]) -> "Axes":
    """Draw λ by layer for each of the named samples: mean over prompts with its 95 % interval.

    Layout: Herasimchyk et al. 2026, Figures 1 and 4.
    """
    from matplotlib.ticker import MaxNLocator

    dress(ax, LAYER, "weight of attention λ")
    for place, (label, mixing) in enumerate(series.items()):
        colour = SERIES[place % len(SERIES)]
        layer = np.arange(mixing.shape[1])
        low, high = zip(*(Estimate.of(column).interval for column in mixing.T), strict=True)
        ax.fill_between(layer, low, high, color=colour, alpha=0.2, linewidth=0)
        look = {"color": colour, "linewidth": LINE, "markersize": 3, "label": label}
        ax.plot(layer, mixing.mean(axis=0), marker=MARKERS[place % len(MARKERS)], **look)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    key(ax, 2)
    return ax


def _letters(rows: Sequence[LevelsRow]) -> list[str]:
    return sorted({letter for _, levels, _ in rows for letter in levels})


def _level(ax: "Axes", letter: str, profile: Profile | None, measured: Profile | None) -> "Axes | None":
    """A level in its colour; an empty panel that says so where the model has none such."""
    if profile is None:
        return _empty(ax, "not given")
    if measured is not None:
        return draw_influence(ax, measured, {_BY_LETTER[letter]: profile})
    colour = COLOURS[_BY_LETTER[letter]]
    height = np.asarray(profile.mass) * profile.tokens
    dress(ax, "", "")
    ax.axhline(1, color=MUTED, linewidth=THIN, linestyle=(0, (2, 2)), zorder=1)
    ax.plot(height, color=colour, linewidth=LINE)
    ax.plot(0, height[0], "o", color=colour, markersize=3.5, clip_on=False)
    scale_influence(ax, *_limits(height))
    direct_label(ax, str(profile.attrs.get("predictor", letter)), colour)
    return ax


def _limits(height: Float[np.ndarray, "position"]) -> tuple[float, float]:
    """A scale that shows a broad curve whole, and of one that collapses what is above a hundredth of the even."""
    return max(0.01, min(0.5, float(height.min()) / 1.6)), max(2.0, float(height.max()) * 1.4)


def _measured(ax: "Axes", measured: Profile | None) -> "Axes | None":
    if measured is None:
        return _empty(ax, "not measured here")
    draw_influence(ax, measured, {})
    direct_label(ax, "measured", INK)
    return ax


def _empty(ax: "Axes", word: str) -> None:
    ax.set_axis_off()
    ax.text(0.5, 0.5, word, transform=ax.transAxes, ha="center", va="center", fontsize=SMALL, color=MUTED)


def _one_scale(drawn: "Sequence[Axes]") -> None:
    ends = [ax.get_ylim() for ax in drawn]
    for ax in drawn:
        scale_influence(ax, min(low for low, _ in ends), max(high for _, high in ends))
