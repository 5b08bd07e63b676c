"""The figures of Kim et al. 2026: which simulations each shows, and how it is laid out.

Figures 1, 3 and 4 show four models (without LayerNorm; with it; with anisotropic embeddings; with a residual
connection too), Figures 5 and 6 one model under five anisotropies, Figures 2 and 7 the key factor h(j) of the
closed form, here beside what a simulation gives. The paper's text does not give the anisotropies of Figures 2, 5,
6 and 7: `ALPHAS` are ours. It speaks of a diagonal masked but for the first row; that is read as the figure's row
without LayerNorm, whose diagonal does not outshine the rest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.papers.kim2026.table import Results, describe
from posbias.plots.recency import LEAST_SPAN, draw_key_factors, draw_scores, probability_text
from posbias.plots.style import INK, MUTED, SMALL, TEXT, new_figure
from posbias.simulate import Averages, RecencyModel, RecencyResult
from posbias.theory.layernorm import ReadingName, log_key_factors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9)
"""Anisotropies of Figures 2, 5, 6 and 7: ours."""
SURE = 5.0
"""A ratio is shown if what it is divided by is so many standard errors from 0."""


@dataclass(frozen=True)
class HeatMaps:
    """A figure of mean scores: one row of panels per model, two layers at each of two dimensions.

    The rows `beside` are not shown, but what the figure says is judged against them.
    """

    title: str
    rows: tuple[Mapping[str, Any], ...]
    dimensions: tuple[int, int] = (16, 64)
    layers: tuple[int, int] = (1, 2)
    beside: tuple[Mapping[str, Any], ...] = ()

    @property
    def models(self) -> tuple[RecencyModel, ...]:
        """All models shown, row by row."""
        return self._of(self.rows)

    @property
    def needed(self) -> tuple[RecencyModel, ...]:
        """All models shown, and those `beside`."""
        return self._of((*self.rows, *self.beside))

    def _of(self, rows: tuple[Mapping[str, Any], ...]) -> tuple[RecencyModel, ...]:
        return tuple(RecencyModel(dimension=d, **row) for row in rows for d in self.dimensions)


@dataclass(frozen=True)
class KeyFactors:
    """A figure of h(j) against j for several anisotropies, one panel per dimension."""

    title: str
    residual: bool
    dimensions: tuple[int, int] = (16, 64)

    def model(self, dimension: int, anisotropy: float) -> RecencyModel:
        """The model whose scores h(j) is about."""
        return RecencyModel(dimension=dimension, anisotropy=anisotropy, residual=self.residual)

    @property
    def models(self) -> tuple[RecencyModel, ...]:
        """All models shown."""
        return tuple(self.model(d, alpha) for d in self.dimensions for alpha in ALPHAS)

    needed = models


_FOUR: tuple[Mapping[str, Any], ...] = (
    {"norm": "none", "anisotropy": 0.0},
    {"anisotropy": 0.0},
    {"anisotropy": 0.5},
    {"anisotropy": 0.5, "residual": True},
)
_BARE, _FULL = (tuple({"anisotropy": alpha, "residual": own} for alpha in ALPHAS) for own in (False, True))
FIGURES: dict[str, HeatMaps | KeyFactors] = {
    "fig1": HeatMaps("Figure 1: mean scores of layers 1 and 2", _FOUR),
    "fig2": KeyFactors("Figure 2: the key factor h(j)", residual=False),
    "fig3": HeatMaps("Figure 3: mean scores of layers 3 and 4", _FOUR, layers=(3, 4)),
    "fig4": HeatMaps("Figure 4: mean scores in many dimensions", _FOUR, dimensions=(256, 1024)),
    "fig5": HeatMaps("Figure 5: mean scores by anisotropy", _BARE),
    "fig6": HeatMaps("Figure 6: mean scores by anisotropy, with a residual connection", _FULL, beside=_BARE),
    "fig7": KeyFactors("Figure 7: the key factor h(j), with a residual connection", residual=True),
}
"""The figures by name."""


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


def key_factor_ratios(result: RecencyResult, query: int = -1) -> Averages:
    """Mean S_ij over mean S_i0 of a query i (the last) in layer 2, [key]: h(j)/h(0) where S_ij = g(i)·h(j).

    1 and 0 for the first key; NaN from the query itself on, and throughout where S_i0 is not surely apart from 0
    (`SURE` standard errors). The standard error is an upper bound: errors of S_ij − S_i0 and S_i0 are added.
    """
    rise, rise_se = result.rises.value[1, query], result.rises.se[1, query]
    first, first_se = result.mean_scores.value[1, query, 0], result.mean_scores.se[1, query, 0]
    if not abs(first) > SURE * first_se:
        return Averages(np.full_like(rise, math.nan), np.full_like(rise, math.nan))
    return Averages(1.0 + rise / first, np.abs(rise_se / first) + np.abs(rise / first**2) * first_se)


def _samples(models: Sequence[RecencyModel], results: Results) -> str:
    counts = [results[model].samples for model in models]
    least = "" if min(counts) == max(counts) else "at least "
    return f"{least}{min(counts):,} samples"
