"""A figure of mean scores: one row of panels per model, two layers at each of two dimensions.

The paper speaks of a diagonal masked but for the first row; that is read as the figure's row without LayerNorm,
whose diagonal does not outshine the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posbias.reports.answers.experiments import SimulateLayernorm
from posbias.reports.pages import Table
from posbias.reports.plots.recency import LEAST_SPAN, draw_scores, probability_text
from posbias.reports.plots.style import INK, MUTED, SMALL, TEXT, new_figure
from posbias.simulation import RecencyModel
from posbias_papers.kim2026.models import describe, samples_text
from posbias_papers.kim2026.quantities import printed_numbers
from posbias_papers.study import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = {"model", "samples", "seed", "recency_probability"}
"""What a figure's JSON says of a simulation."""


def draw_heat_maps(
    results: Results,
    rows: Sequence[Mapping[str, Any]],
    *,
    dimensions: Sequence[int] = (16, 64),
    layers: Sequence[int] = (1, 2),
) -> "Figure":
    """Draw the mean scores of a row's model in two layers at two dimensions, row by row."""
    figure = new_figure(8.0, 0.75 + 1.55 * len(rows))
    grid = figure.add_gridspec(len(rows), 5, width_ratios=(1, 1, 0.06, 1, 1))
    columns = [(d, layer - 1) for d in dimensions for layer in layers]
    words = {"ha": "center", "va": "center", "fontsize": TEXT, "color": INK, "textcoords": "offset points"}
    shown: dict[RecencyModel, Any] = {}
    for row, fields in enumerate(rows):
        for place, (dimension, layer) in zip((0, 1, 3, 4), columns, strict=True):
            model = RecencyModel(dimension=dimension, **fields)
            result, ax = results[model], figure.add_subplot(grid[row, place])
            shown[model], scores = result, result.mean_scores
            draw_scores(ax, scores.value[layer], scores.se[layer], diagonal=model.norm == "none")
            probability = probability_text(result.recency_probability[layer])
            ax.set_title(f"RP = {probability}", fontsize=SMALL, color=INK, pad=3)
            ax.tick_params(labelbottom=row == len(rows) - 1, labelleft=place == 0)
            if row == 0:
                ax.annotate(
                    f"d = {dimension}, layer {layer + 1}", (0.5, 1), (0, 20), "axes fraction", **words
                )
            if row == len(rows) - 1:
                ax.set_xlabel("key", fontsize=SMALL, color=INK, labelpad=1)
            if place == 0:
                ax.set_ylabel("query", fontsize=SMALL, color=INK, labelpad=2)
                name = describe(model).replace(", residual", "\nresidual")
                ax.annotate(name, (0, 0.5), (-38, 0), "axes fraction", rotation=90, **words)
    masked = "grey: masked diagonal; " if any(model.norm != "none" for model in shown) else ""
    own = f"every panel has colours of its own, over at least {LEAST_SPAN:g} standard errors"
    figure.suptitle(
        f"mean attention scores, {samples_text(shown)}; {masked}{own}", fontsize=SMALL, color=MUTED
    )
    return figure


def data(results: Results, *, printed: bool = True, compared: Iterable[Any] = ()) -> dict[str, Any]:
    """The simulations, for JSON, with the `printed` numbers beside ours, and closed forms `compared` with them."""
    return {
        "samples": min((result.samples for result in results.values()), default=0),
        "cells": [
            SimulateLayernorm.of(result).model_dump(mode="json", include=CELL) for result in results.values()
        ],
        "published": [beside(piece) for piece in printed_numbers(results)] if printed else [],
        "closed_forms": [row.as_dict() for row in compared],
    }


def beside(piece: Any) -> dict[str, Any]:
    """A printed number beside ours, for JSON; `deviation` is in standard errors of the difference."""
    test, ours = piece.test, piece.estimate
    numbers = {"printed": test.number.value, "value": ours.value, "se": ours.se}
    judged = {"deviation": test.deviation(ours), "holds": test.agrees(ours)}
    return {"where": f"Section 3: {piece.where}", **numbers, **judged}


def printed_table(results: Results) -> Table:
    """The printed numbers beside ours, for people."""
    rows = []
    for piece in printed_numbers(results):
        row = beside(piece)
        deviation = f"{row['deviation']:+.2f}".replace("-", "−")
        ours = probability_text(piece.estimate)
        rows.append(
            [piece.where, f"{row['printed']:.4f}", ours, deviation, "holds" if row["holds"] else "fails"]
        )
    head = ["printed in Section 3", "printed", "here", "standard errors of the difference", ""]
    return Table("Beside the printed numbers", head, rows)
