"""Figures: each `draw_…` takes an axes and data, draws on it and returns it; it computes, saves and shows nothing.

    figure = new_figure()
    draw_profile(figure.subplots(), profile)
    save_figure(figure, "profile.svg")

One style for all: colour-blind safe colours (Okabe and Ito), positions from 0, influence in units of an
even spread. matplotlib is loaded with the first figure, never its pyplot; the same data give the same bytes.
"""

from posbias.plots.closed_forms import draw_deviation, draw_reading_key
from posbias.plots.influence import draw_cumulative, draw_influence, draw_profile, scale_influence
from posbias.plots.layers import draw_kernels, draw_mixing, draw_norms, draw_sinks
from posbias.plots.limits import draw_collapse, draw_critical_distance
from posbias.plots.masks import draw_graph, draw_mask, mask_figure
from posbias.plots.recency import draw_key_factors, draw_scores, scores_figure
from posbias.plots.style import (
    COLOURS,
    FILE_KINDS,
    THEMED,
    check_kind,
    new_figure,
    picture_bytes,
    save_figure,
)
from posbias.plots.variants import draw_variants
from posbias.plots.variation import draw_growth, draw_variation, variation_figure

__all__ = [
    "COLOURS",
    "FILE_KINDS",
    "THEMED",
    "check_kind",
    "draw_collapse",
    "draw_critical_distance",
    "draw_cumulative",
    "draw_deviation",
    "draw_graph",
    "draw_growth",
    "draw_influence",
    "draw_kernels",
    "draw_key_factors",
    "draw_mask",
    "draw_mixing",
    "draw_norms",
    "draw_profile",
    "draw_reading_key",
    "draw_scores",
    "draw_sinks",
    "draw_variants",
    "draw_variation",
    "mask_figure",
    "new_figure",
    "picture_bytes",
    "save_figure",
    "scale_influence",
    "scores_figure",
    "variation_figure",
]
