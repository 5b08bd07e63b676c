"""Curves that were compared, over their reference, each with its scores."""

from typing import TYPE_CHECKING

import numpy as np

from posbias.reports.plots import style
from posbias.reports.plots.influence import (
    FAINTEST,
    INFLUENCE,
    POSITION,
    density,
    draw_band,
    scale_influence,
    subject,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posbias.comparison.scores import Comparison


def draw_comparison(ax: "Axes", comparison: "Comparison") -> "Axes":
    """Draw the reference (with its 95 % band) and each profile by position, with Spearman and Wasserstein.

    Masses are in units of an even spread, on a logarithmic scale. Lines differ in colour and marker.
    """
    reference = comparison.reference
    masses = all(one.kind == "mass" for one in (reference, *comparison.profiles.values()))
    place = POSITION if comparison.shares is None else f"share of the context, in {comparison.shares} parts"
    rates = all(one.kind == "rate" for one in (reference, *comparison.profiles.values()))
    place = "place" if rates and comparison.shares is None else place
    style.dress(ax, place, INFLUENCE if masses else reference.measures if rates else reference.kind)
    if masses or reference.kind != "mass":
        draw_band(ax, reference, style.MUTED, 0.3, f"95 % interval over {'trials' if rates else 'prompts'}")
    if masses:
        heights = np.concatenate([density(one) for one in (reference, *comparison.profiles.values())])
        low = max(FAINTEST, float(heights[heights > 0].min()))
        scale_influence(ax, low / 1.3, float(heights.max()) * 1.3)
    lines = [("reference", reference), *comparison.profiles.items()]
    colours = (style.INK, *style.SERIES)
    for number, (name, profile) in enumerate(lines):
        label = f"reference: {subject([profile])}" if profile is reference else name
        if profile is not reference:
            scores = comparison.agreements[name]
            label += f": Spearman {scores.spearman.value:.2f}"
            if masses:
                label += f", Wasserstein {scores.wasserstein.value:.3f}"
            elif rates:
                draw_band(ax, profile, colours[number % len(colours)], 0.15)
        height = density(profile) if masses else profile.mass
        look = {"marker": style.MARKERS[number % len(style.MARKERS)], "markersize": 3.5}
        look |= {"markevery": max(1, height.size // 10), "linewidth": style.LINE if number else 0.9}
        ax.plot(height, color=colours[number % len(colours)], label=label, **look)
    style.key(ax)
    return ax
