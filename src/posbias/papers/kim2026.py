"""Kim et al. 2026, figure by figure: mean attention scores with their recency probability, and h(j).

Figures 1, 3 and 4 show four models (without LayerNorm; with it; with anisotropic embeddings; with a residual
connection too), Figures 5 and 6 one model under five anisotropies, Figures 2 and 7 the key factor h(j) of the
closed form, here beside what a simulation gives. All draw on the same cells. The paper's text does not give
the anisotropies of Figures 2, 5, 6 and 7: `ALPHAS` are ours. It speaks of a diagonal masked but for the first
row; that is read as the figure's row without LayerNorm, whose diagonal does not outshine the rest.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.errors import InvalidValueError
from posbias.files import need_writable
from posbias.papers import find_figures
from posbias.papers.cells import find_cell, gather
from posbias.papers.kim2026_table import (
    SAMPLES,
    Check,
    Results,
    cell_as_dict,
    check_published,
    describe,
    write_tables,
)
from posbias.plots.recency import LEAST_SPAN, draw_key_factors, draw_scores, probability_text
from posbias.plots.style import INK, MUTED, SMALL, TEXT, new_figure, save_figure
from posbias.seeds import sequence
from posbias.simulate import Averages, RecencyModel, RecencyResult
from posbias.theory.layernorm import ReadingName, log_key_factors
from posbias.theory.rollout import cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_SAMPLES = 3
"""Fewer have no standard error once a slope is fitted."""
ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9)
"""Anisotropies of Figures 2, 5, 6 and 7: ours."""
KINDS = ("svg", "png")
SURE = 5.0
"""A ratio is shown if what it is divided by is so many standard errors from 0."""


@dataclass(frozen=True)
class HeatMaps:
    """A figure of mean scores: one row of panels per model, two layers at each of two dimensions."""

    rows: tuple[Mapping[str, Any], ...]
    dimensions: tuple[int, int] = (16, 64)
    layers: tuple[int, int] = (1, 2)

    @property
    def models(self) -> tuple[RecencyModel, ...]:
        """All models shown, row by row."""
        return tuple(RecencyModel(dimension=d, **row) for row in self.rows for d in self.dimensions)


@dataclass(frozen=True)
class KeyFactors:
    """A figure of h(j) against j for several anisotropies, one panel per dimension."""

    residual: bool
    dimensions: tuple[int, int] = (16, 64)

    def model(self, dimension: int, anisotropy: float) -> RecencyModel:
        """The model whose scores h(j) is about."""
        return RecencyModel(dimension=dimension, anisotropy=anisotropy, residual=self.residual)

    @property
    def models(self) -> tuple[RecencyModel, ...]:
        """All models shown."""
        return tuple(self.model(d, alpha) for d in self.dimensions for alpha in ALPHAS)


_FOUR: tuple[Mapping[str, Any], ...] = (
    {"norm": "none", "anisotropy": 0.0},
    {"anisotropy": 0.0},
    {"anisotropy": 0.5},
    {"anisotropy": 0.5, "residual": True},
)
FIGURES: dict[str, HeatMaps | KeyFactors] = {
    "fig1": HeatMaps(_FOUR),
    "fig2": KeyFactors(residual=False),
    "fig3": HeatMaps(_FOUR, layers=(3, 4)),
    "fig4": HeatMaps(_FOUR, dimensions=(256, 1024)),
    "fig5": HeatMaps(tuple({"anisotropy": alpha} for alpha in ALPHAS)),
    "fig6": HeatMaps(tuple({"anisotropy": alpha, "residual": True} for alpha in ALPHAS)),
    "fig7": KeyFactors(residual=True),
}
"""The figures by name."""


@dataclass(frozen=True)
class Reproduction:
    """What was drawn: paths of the pictures, the simulations behind them, and the printed numbers checked."""

    figures: tuple[Path, ...]
    table: Path
    results: Results
    checks: tuple[Check, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures themselves, for JSON."""
        return {
            "figures": [str(path) for path in self.figures],
            "cells": [cell_as_dict(result) for result in self.results.values()],
            "published": [check.as_dict() for check in self.checks],
        }


def reproduce(
    what: str = "all",
    *,
    out: str | os.PathLike[str],
    samples: int = SAMPLES,
    seed: int = 0,
    threads: int | None = None,
    reading: ReadingName | None = None,
    again: bool = False,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Reproduction:
    """Draw one figure, or all, into the folder `out` as SVG and PNG, with table.csv and table.json.

    The tables hold every cell of `out` with this seed, those of other figures too. `reading` is the closed form
    drawn as a line in Figures 2 and 7 (default: corrected); `again` draws all samples anew. `progress` and
    `say` as in `gather`. Raises `InvalidValueError` for an unknown figure, fewer than 3 samples, a seed that
    is no integer ≥ 0, threads < 1, or a reading that is none or where no closed form is drawn;
    `OutputFileError`, before any work if `out` cannot be written; `MissingPackageError` without matplotlib; and
    as `gather` does.
    """
    folder, names = Path(out), find_figures(what, FIGURES)
    if samples < LEAST_SAMPLES:
        raise InvalidValueError(f"samples: {samples} given, an integer ≥ {LEAST_SAMPLES} needed")
    if reading is not None and not any(isinstance(FIGURES[name], KeyFactors) for name in names):
        raise InvalidValueError(
            f"reading: given with {what}, which shows no closed form; fig2, fig7 or all needed"
        )
    # whatever can be wrong is so before any sample is drawn
    sequence(seed, "check")
    cores(threads)
    log_key_factors(1, 16, reading=reading or "corrected")
    cells = folder / "cells"
    need_writable(cells / "cell.json")
    new_figure()
    models = dict.fromkeys(model for name in names for model in FIGURES[name].models)
    common = {"samples": samples, "seed": seed, "threads": threads, "again": again}
    results = gather(models, cells, progress=progress, say=say, **common)
    if say:
        say(f"drawing {', '.join(names)} …")
    figures = []
    for name in names:
        figure = draw(FIGURES[name], results, reading or "corrected")
        figures += [save_figure(figure, folder / f"{name}.{kind}") for kind in KINDS]
    known = dict.fromkeys(model for figure in FIGURES.values() for model in figure.models)
    found = {model: results.get(model) or find_cell(cells, model, seed, 1, lambda _: None) for model in known}
    table = write_tables([result for result in found.values() if result], folder)
    return Reproduction(tuple(figures), table, results, check_published(results))


# --- figures -----------------------------------------------------------------------------------------------


def draw(shown: HeatMaps | KeyFactors, results: Results, reading: ReadingName = "corrected") -> "Figure":
    """Draw a figure from the simulations of its models; `reading` is the closed form drawn as a line."""
    if isinstance(shown, HeatMaps):
        return _heat_maps(shown, results)
    return _key_factors(shown, results, reading)


def _heat_maps(shown: HeatMaps, results: Results) -> "Figure":
    rows = len(shown.rows)
    figure = new_figure(8.0, 0.75 + 1.55 * rows)
    grid = figure.add_gridspec(rows, 5, width_ratios=(1, 1, 0.06, 1, 1))
    columns = [(d, layer - 1) for d in shown.dimensions for layer in shown.layers]
    words = {"ha": "center", "va": "center", "fontsize": TEXT, "color": INK, "textcoords": "offset points"}
    for row, fields in enumerate(shown.rows):
        for place, (dimension, layer) in zip((0, 1, 3, 4), columns, strict=True):
            model = RecencyModel(dimension=dimension, **fields)
            result, ax = results[model], figure.add_subplot(grid[row, place])
            scores = result.mean_scores
            draw_scores(ax, scores.value[layer], scores.se[layer], diagonal=model.norm == "none")
            probability = probability_text(result.recency_probability[layer])
            ax.set_title(f"RP = {probability}", fontsize=SMALL, color=INK, pad=3)
            ax.tick_params(labelbottom=row == rows - 1, labelleft=place == 0)
            if row == 0:
                ax.annotate(
                    f"d = {dimension}, layer {layer + 1}", (0.5, 1), (0, 20), "axes fraction", **words
                )
            if row == rows - 1:
                ax.set_xlabel("key", fontsize=SMALL, color=INK, labelpad=1)
            if place == 0:
                ax.set_ylabel("query", fontsize=SMALL, color=INK, labelpad=2)
                name = describe(model).replace(", residual", "\nresidual")
                ax.annotate(name, (0, 0.5), (-38, 0), "axes fraction", rotation=90, **words)
    masked = "grey: masked diagonal; " if any(model.norm != "none" for model in shown.models) else ""
    own = f"every panel has colours of its own, over at least {LEAST_SPAN:g} standard errors"
    note = f"mean attention scores, {_samples(shown.models, results)}; {masked}{own}"
    figure.suptitle(note, fontsize=SMALL, color=MUTED)
    return figure


def _key_factors(shown: KeyFactors, results: Results, reading: ReadingName) -> "Figure":
    figure = new_figure(8.0, 3.5)
    other: ReadingName = "published" if reading == "corrected" else "corrected"
    tokens = shown.models[0].tokens
    points = {model: key_factor_ratios(results[model]) for model in shown.models}
    for ax, d in zip(figure.subplots(1, 2), shown.dimensions, strict=True):

        def curves(which: ReadingName, d: int = d) -> dict[float, np.ndarray]:
            form = {"residual": shown.residual, "reading": which}
            return {alpha: np.exp(log_key_factors(tokens, d, alpha, **form)) for alpha in ALPHAS}

        simulated = {alpha: points[shown.model(d, alpha)] for alpha in ALPHAS}
        names = (f"closed form, {reading}", f"closed form, {other}")
        draw_key_factors(ax, curves(reading), others=curves(other), simulated=simulated, names=names)
        ax.set_title(f"d = {d}", fontsize=TEXT, color=INK)
    kind = "with" if shown.residual else "without"
    note = f"{kind} residual connection; simulated: S(9, j)/S(9, 0) of layer 2, {_samples(shown.models, results)}"
    if any(np.isnan(ratios.value).all() for ratios in points.values()):
        note += f", where S(9, 0) is at least {SURE:g} standard errors"
    figure.suptitle(note, fontsize=SMALL, color=MUTED)
    return figure


def key_factor_ratios(result: RecencyResult) -> Averages:
    """Mean S_ij over mean S_i0 of the last query in layer 2, [key]: h(j)/h(0) where S_ij = g(i)·h(j).

    1 and 0 for the first key; NaN for the query itself, and throughout where S_i0 is not surely apart from 0
    (`SURE` standard errors). The standard error is an upper bound: errors of S_ij − S_i0 and S_i0 are added.
    """
    rise, rise_se = result.rises.value[1, -1], result.rises.se[1, -1]
    first, first_se = result.mean_scores.value[1, -1, 0], result.mean_scores.se[1, -1, 0]
    if not abs(first) > SURE * first_se:
        return Averages(np.full_like(rise, math.nan), np.full_like(rise, math.nan))
    return Averages(1.0 + rise / first, np.abs(rise_se / first) + np.abs(rise / first**2) * first_se)


def _samples(models: Sequence[RecencyModel], results: Results) -> str:
    counts = [results[model].samples for model in models]
    least = "" if min(counts) == max(counts) else "at least "
    return f"{least}{min(counts):,} samples"
