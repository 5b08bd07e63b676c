"""Levels of a prediction side by side, each over what was measured; and mixing by layer at several lengths."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.profiles.profile import Profile
from posbias.reports.plots import style
from posbias.reports.plots.influence import (
    density,
    draw_influence,
    predictor_label,
    scale_influence,
    share_scale,
)
from posbias.reports.plots.layers import LAYER, draw_prompt_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LevelsRow = tuple[str, Mapping[str, Profile], Profile | None]
_BY_LETTER = dict(
    zip("abcde", ("attention_only", "positional", "measured_kernels", "fitted", "energy"), strict=True)
)


def levels_size(rows: Sequence[LevelsRow]) -> tuple[float, float]:
    """Inches that `draw_levels` takes."""
    return 0.7 + 1.85 * (len(_letters(rows)) + 1), 0.35 + 1.75 * len(rows)


def draw_levels(part: "Figure | SubFigure", rows: Sequence[LevelsRow]) -> "Figure | SubFigure":
    """Draw a row per model (name, levels by letter, measured curve or None), a column per level and one measured.

    Every level stands alone in colour over the measured curve; all panels of a row share their scale. Layout:
    Herasimchyk et al. 2026, Figures 2 and 3, whose panel (d) is the measured curve unless a level has that letter.
    """
    letters = _letters(rows)
    panels = part.subplots(len(rows), len(letters) + 1, squeeze=False)
    for place, (name, levels, measured) in enumerate(rows):
        drawn = [
            _level(ax, letter, levels.get(letter), measured)
            for letter, ax in zip(letters, panels[place], strict=False)
        ]
        drawn.append(_measured(panels[place][-1], measured, "" if "d" in letters else "(d) "))
        share_scale([ax for ax in drawn if ax is not None])
        for column, ax in enumerate(panels[place]):
            ax.tick_params(labelleft=column == 0)
            ax.set_ylabel(f"{name}\ninfluence (even = 1)" if column == 0 else "", fontsize=style.TEXT)
            ax.set_xlabel("position" if place == len(rows) - 1 else "", fontsize=style.TEXT)
    return part


def draw_mixing_series(ax: "Axes", series: Mapping[str, Float[np.ndarray, "prompt layer"]]) -> "Axes":
    """Draw λ by layer for each of the named samples: mean over prompts with its 95 % interval.

    Layout: Herasimchyk et al. 2026, Figures 1 and 4.
    """
    style.dress(ax, LAYER, "weight of attention λ")
    for place, (label, mixing) in enumerate(series.items()):
        draw_prompt_mean(ax, mixing, 0.2, label=label, **style.series(place))
    ax.set_ylim(bottom=0)
    style.whole_numbers(ax.xaxis, 8)
    style.key(ax, 2)
    return ax


def _letters(rows: Sequence[LevelsRow]) -> list[str]:
    return sorted({letter for _, levels, _ in rows for letter in levels})


def _level(ax: "Axes", letter: str, profile: Profile | None, measured: Profile | None) -> "Axes | None":
    """A level in its colour; an empty panel that says so where the model has none such."""
    if profile is None:
        return _empty(ax, "not given")
    if measured is not None:
        return draw_influence(ax, measured, {_BY_LETTER[letter]: profile})
    colour = style.COLOURS[_BY_LETTER[letter]]
    height = density(profile)
    style.dress(ax, "", "")
    style.level_line(ax, 1)
    ax.plot(height, color=colour, linewidth=style.LINE)
    ax.plot(0, height[0], "o", color=colour, markersize=3.5, clip_on=False)
    # a broad curve whole, and of one that collapses what is above a hundredth of the uniform
    low = max(0.01, min(0.5, float(height.min()) / 1.6))
    scale_influence(ax, low, max(2.0, float(height.max()) * 1.4))
    style.direct_label(ax, predictor_label(letter, profile), colour)
    return ax


def _measured(ax: "Axes", measured: Profile | None, letter: str) -> "Axes | None":
    if measured is None:
        return _empty(ax, "not measured here")
    draw_influence(ax, measured, {})
    style.direct_label(ax, f"{letter}measured", style.INK)
    return ax


def _empty(ax: "Axes", word: str) -> None:
    ax.set_axis_off()
    look = {"ha": "center", "va": "center", "fontsize": style.SMALL, "color": style.MUTED}
    ax.text(0.5, 0.5, word, transform=ax.transAxes, **look)
