"""Figures 1 to 7 of Kim et al. 2026 drawn: mean scores as heat maps, closed forms with what simulations give."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.estimate import NORMAL_95, Estimate
from posbias.reports.plots.recency import draw_scores, probability_text
from posbias.reports.plots.style import (
    INK,
    LEGEND,
    LINE,
    MUTED,
    SMALL,
    TEXT,
    THIN,
    dress,
    whole_numbers,
)
from posbias.simulation import RecencyModel
from posbias_papers.kim2026.table import READINGS, setting
from posbias_papers.plots.captions import captioned_figure, settle

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
    rows: Sequence[Fields] | None = None,
    *,
    dimensions: Sequence[int] = (16, 64),
    layers: Sequence[int] = (1, 2),
) -> "Figure":
    """Draw the mean scores of a row's model (None: one for each anisotropy) in two layers at two dimensions."""
    if rows is None:
        residual = bool(frame.index.unique("residual")[0])
        rows = [{"anisotropy": alpha, "residual": residual} for alpha in _alphas(frame)]
    figure, part = captioned_figure(8.0, 0.6 + 1.55 * len(rows), caption)
    grid = part.add_gridspec(len(rows), 5, width_ratios=(1, 1, 0.06, 1, 1))
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


def draw_key_factor_figure(frame: "pd.DataFrame", caption: str, *, residual: bool) -> "Figure":
    """Draw h(j) against j for several anisotropies, and below h(j)/h(0) with what a simulation gives.

    One panel per dimension. The reading of the table's attributes is drawn as a line, the other is dashed.
    """
    figure, part = captioned_figure(8.0, 6.2, caption)
    reading = frame.attrs.get("reading", "corrected")
    readings = (reading, *(one for one in READINGS if one != reading))
    for (top, bottom), d in zip(part.subplots(2, 2).T, (16, 64), strict=True):
        of = {}
        for alpha in _alphas(frame):
            model = RecencyModel(dimension=d, anisotropy=alpha, residual=residual)
            of[alpha] = _rows(frame, model, 2).xs(float(model.tokens - 1), level="query")
        _draw_key_factors(top, of, [f"{one}_factor" for one in readings], "h(j)")
        _draw_key_factors(bottom, of, [f"{one}_ratio" for one in readings], "h(j) / h(0)", simulated="ratio")
        top.set_title(f"d = {d}", fontsize=TEXT, color=INK)
    return settle(figure)


def _draw_key_factors(
    ax: "Axes", of: "Mapping[float, pd.DataFrame]", columns: Sequence[str], label: str, simulated: str = ""
) -> None:
    """Columns of a row of keys against the key, a curve per anisotropy, named at its end: the first as lines, the
    second as dashes, `simulated` as points with 95 % intervals."""
    from matplotlib import colormaps

    dress(ax, "key j", label)
    colours = dict(zip(of, colormaps["viridis"](np.linspace(0.0, 0.82, len(of))), strict=True))
    line, other = (f"closed form, {name.partition('_')[0]}" for name in columns)
    ax.plot([], [], color=MUTED, linewidth=LINE, label=line)
    ax.plot([], [], color=MUTED, label=other, **DASHED)
    if simulated:
        ax.plot([], [], "o", color=MUTED, markersize=3.2, label="simulated, 95 %")
    for alpha, rows in of.items():
        ax.plot(range(len(rows)), rows[columns[0]].to_numpy(), color=colours[alpha], linewidth=LINE)
        ax.plot(range(len(rows)), rows[columns[1]].to_numpy(), color=colours[alpha], **DASHED)
        if simulated:
            values, errors = rows[simulated].to_numpy(), NORMAL_95 * rows[f"{simulated}_se"].to_numpy()
            j = np.flatnonzero(np.isfinite(values))[1:]  # the first point is 1 by definition
            ax.errorbar(j, values[j], errors[j], color=colours[alpha], markeredgewidth=0, zorder=3, **DOTS)
    bottom, top = ax.get_ylim()
    gap, last = 0.055 * (top - bottom), -math.inf
    for alpha, end in sorted(
        ((a, rows[columns[0]].iloc[-1]) for a, rows in of.items()), key=lambda one: one[1]
    ):
        last = max(float(end), last + gap)  # names are pushed upwards where they would overlap
        look = {"va": "center", "fontsize": SMALL, "color": colours[alpha], "annotation_clip": False}
        ax.annotate(f"α = {alpha:g}", (9, last), (5, 0), textcoords="offset points", **look)
    whole_numbers(ax.xaxis)
    ax.legend(loc="best", handlelength=2.2, **LEGEND)


def _rows(frame: "pd.DataFrame", model: RecencyModel, layer: int) -> "pd.DataFrame":
    """The rows of a layer of a model, by query and key."""
    place = (*setting(model).values(), layer)
    return frame.xs(place, level=["norm", "anisotropy", "residual", "dimension", "layer"])


def _alphas(frame: "pd.DataFrame") -> list[float]:
    return sorted(map(float, frame.index.unique("anisotropy")))
