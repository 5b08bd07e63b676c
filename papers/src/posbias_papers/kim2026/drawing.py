"""Figures 1 to 7 of Kim et al. 2026 drawn: mean scores as heat maps, closed forms with what simulations give."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.estimate import NORMAL_95, Estimate
from posbias.reports.plots.recency import draw_scores, probability_text
from posbias.reports.plots.style import INK, LEGEND, LINE, MUTED, SMALL, TEXT, THIN, dress, whole_numbers
from posbias.simulation import RecencyModel
from posbias_papers.kim2026.table import setting
from posbias_papers.plots import captioned_figure, settle

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Fields = Mapping[str, Any]
"""What a row of heat maps is of, but for the dimension."""
DASHED: dict[str, Any] = {"linewidth": THIN * 1.5, "linestyle": (0, (4, 2)), "zorder": 1.5, "alpha": 0.55}
DOTS: dict[str, Any] = {"fmt": "o", "markersize": 3.2, "elinewidth": THIN * 1.5, "capsize": 1.5}


def describe(model: RecencyModel) -> str:
    """'LayerNorm, α = 0.5, residual'."""
    norm = {"none": "no LayerNorm", "layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[model.norm]
    return f"{norm}, α = {model.anisotropy:g}" + (", residual" if model.residual else "")


def draw_heat_maps(
    frame: "pd.DataFrame",
    caption: str,
    *,
    rows: Sequence[Fields],
    dimensions: Sequence[int],
    layers: Sequence[int],
) -> "Figure":
    """Draw the mean scores of a row's model in two layers at two dimensions."""
    figure, part = captioned_figure(8.0, 0.6 + 1.55 * len(rows), caption)
    grid = part.add_gridspec(len(rows), 6, width_ratios=(1, 1, 0.06, 1, 1, 0.05))
    columns = [(d, layer) for d in dimensions for layer in layers]
    words = {"ha": "center", "va": "center", "fontsize": TEXT, "color": INK, "textcoords": "offset points"}
    for row, fields in enumerate(rows):
        for place, (dimension, layer) in zip((0, 1, 3, 4), columns, strict=True):
            model = RecencyModel(dimension=dimension, **fields)
            ax, of_layer = part.add_subplot(grid[row, place]), _rows(frame, model, layer)
            scores, se = (of_layer[name].dropna().unstack("key").to_numpy() for name in ("score", "score_se"))
            draw_scores(ax, scores, se, diagonal=model.norm == "none")
            whole = of_layer.dropna(subset=["recency"]).iloc[0]
            recency = Estimate(float(whole["recency"]), float(whole["recency_se"]), int(whole["n"]))
            ax.set_title(f"RP = {probability_text(recency)}", fontsize=SMALL, color=INK, pad=3)
            ax.tick_params(labelbottom=row == len(rows) - 1, labelleft=place == 0)
            if row == 0:
                ax.annotate(f"d = {dimension}, layer {layer}", (0.5, 1), (0, 20), "axes fraction", **words)
            if row == len(rows) - 1:
                ax.set_xlabel("key", fontsize=SMALL, color=INK, labelpad=1)
            if place == 0:
                ax.set_ylabel("query", fontsize=SMALL, color=INK, labelpad=2)
                name = describe(model).replace(", residual", "\nresidual")
                ax.annotate(name, (0, 0.5), (-38, 0), "axes fraction", rotation=90, **words)
    return settle(figure)


def draw_key_factors(frame: "pd.DataFrame", caption: str) -> "Figure":
    """Draw h(j) of layer 2 against j, a curve for each anisotropy, and below h(j)/h(0) with what is simulated.

    One panel per dimension. The corrected closed form is a line, the published one dashed; points are simulated,
    with 95 % intervals.
    """
    figure, part = captioned_figure(8.0, 6.2, caption)
    second = frame.xs(2, level="layer")
    last = second.xs(second.index.get_level_values("query").max(), level="query")
    for axes, d in zip(part.subplots(2, 2).T, (16, 64), strict=True):
        own = last.xs(d, level="dimension")
        alphas = sorted(map(float, own.index.unique("anisotropy")))
        of = {alpha: own.xs(alpha, level="anisotropy") for alpha in alphas}
        for ax, column, label in zip(axes, ("factor", "ratio"), ("h(j)", "h(j) / h(0)"), strict=True):
            _draw_key_factors(ax, of, column, label)
        axes[0].set_title(f"d = {d}", fontsize=TEXT, color=INK)
    return settle(figure)


def _draw_key_factors(ax: "Axes", of: "Mapping[float, pd.DataFrame]", column: str, label: str) -> None:
    """A column of the keys against the key in both readings, a curve per anisotropy, named at its end."""
    from matplotlib import colormaps

    dress(ax, "key j", label)
    simulated = "ratio" if column == "ratio" else ""
    colours = dict(zip(of, colormaps["viridis"](np.linspace(0.0, 0.82, len(of))), strict=True))
    ax.plot([], [], color=MUTED, linewidth=LINE, label="closed form, corrected")
    ax.plot([], [], color=MUTED, label="closed form, published", **DASHED)
    if simulated:
        ax.plot([], [], "o", color=MUTED, markersize=3.2, label="simulated, 95 %")
    for alpha, rows in of.items():
        ax.plot(range(len(rows)), rows[f"corrected_{column}"], color=colours[alpha], linewidth=LINE)
        ax.plot(range(len(rows)), rows[f"published_{column}"], color=colours[alpha], **DASHED)
        if simulated:
            values, errors = rows[simulated].to_numpy(), NORMAL_95 * rows[f"{simulated}_se"].to_numpy()
            j = np.flatnonzero(np.isfinite(values))[1:]  # the first point is 1 by definition
            ax.errorbar(j, values[j], errors[j], color=colours[alpha], markeredgewidth=0, zorder=3, **DOTS)
    bottom, top = ax.get_ylim()
    gap, last = 0.055 * (top - bottom), -math.inf
    for end, alpha in sorted((float(rows[f"corrected_{column}"].iloc[-1]), a) for a, rows in of.items()):
        last = max(end, last + gap)  # names are pushed upwards where they would overlap
        look = {"va": "center", "fontsize": SMALL, "color": colours[alpha], "annotation_clip": False}
        ax.annotate(f"α = {alpha:g}", (9, last), (5, 0), textcoords="offset points", **look)
    whole_numbers(ax.xaxis)
    ax.legend(loc="best", handlelength=2.2, **LEGEND)


def _rows(frame: "pd.DataFrame", model: RecencyModel, layer: int) -> "pd.DataFrame":
    """The rows of a layer of a model, by query and key."""
    place = (*setting(model).values(), layer)
    return frame.xs(place, level=["norm", "anisotropy", "residual", "dimension", "layer"])
