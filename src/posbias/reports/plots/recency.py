"""Recency as pictures: mean attention scores with their recency probability, and the key factor h(j).

Mean scores are estimates, so no picture of them may show noise as structure: a panel's colours span at least
`LEAST_SPAN` standard errors. Where the scores of a row are equal, as in a first layer, it is of one colour.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.profiles.estimate import NORMAL_95, Estimate
from posbias.reports.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posbias.simulation import Averages, RecencyResult

LEAST_SPAN = 40.0
"""Width of a colour scale in standard errors of the scores, at least."""
MOST_GRID = 16
"""Up to so many tokens, entries of a score matrix are set apart by thin lines."""
COLUMNS = 4
"""Layers side by side."""


def scores_figure(result: "RecencyResult") -> "Figure":
    """Mean scores of every layer of a simulation, each panel under its recency probability."""
    depth = result.model.depth
    columns, rows = min(COLUMNS, depth), -(-depth // COLUMNS)
    figure = style.new_figure(0.5 + 1.95 * columns, 0.45 + 1.75 * rows)
    probabilities = result.recency_probability if result.model.tokens > 2 else (None,) * depth
    scores = result.mean_scores
    for layer, ax in enumerate(figure.subplots(rows, columns, squeeze=False).flat):
        if layer >= depth:
            ax.set_visible(False)
            continue
        draw_scores(ax, scores.value[layer], scores.se[layer], diagonal=result.model.norm == "none")
        probability = probabilities[layer]
        title = f"layer {layer + 1}" + (f"\nRP = {probability_text(probability)}" if probability else "")
        ax.set_title(title, fontsize=style.SMALL, color=style.INK, pad=4)
        ax.set_xlabel("key" if layer + columns >= depth else "", fontsize=style.TEXT, color=style.INK)
        ax.set_ylabel("query" if layer % columns == 0 else "", fontsize=style.TEXT, color=style.INK)
    return figure


def draw_scores(
    ax: "Axes",
    scores: Float[np.ndarray, "query key"],
    se: Float[np.ndarray, "query key"],
    *,
    diagonal: bool = False,
) -> "Axes":
    """Draw mean scores below the diagonal as colours, with a colour bar of their own at the right.

    `se` are their standard errors, in the same units. Without `diagonal` the scores of tokens with themselves,
    under a norm far above all others, are grey and leave the colours to the others; what is above the diagonal
    stays blank. Layout: Kim et al. 2026, Figure 1.
    """
    from matplotlib.colors import to_rgba
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    tokens = len(scores)
    seen = np.tri(tokens, k=0 if diagonal else -1, dtype=bool) & np.isfinite(scores)
    low, high = colour_span(scores[seen], se[seen])
    style.dress(ax, "", "")
    if not diagonal:
        own = np.zeros((tokens, tokens, 4))
        own[np.eye(tokens, dtype=bool)] = to_rgba(style.RULE, 0.6)
        ax.imshow(own, interpolation="nearest")
    image = style.draw_matrix(ax, np.where(seen, scores, np.nan), vmin=low, vmax=high)
    if tokens <= MOST_GRID:
        edges, last = np.arange(tokens + 1) - 0.5, tokens - 0.5
        ax.hlines(edges, -0.5, np.minimum(edges + 1, last), color=style.PAPER, linewidth=style.THIN)
        ax.vlines(edges, np.maximum(edges - 1, -0.5), last, color=style.PAPER, linewidth=style.THIN)
    ax.set(xlim=(-0.5, tokens - 0.5), ylim=(tokens - 0.5, -0.5))
    places = np.arange(0, tokens, max(1, -(-tokens // 4)))
    ax.set_xticks(places)
    ax.set_yticks(places)
    bar = style.colour_bar(ax, image)
    plain = ScalarFormatter(useOffset=False)
    plain.set_scientific(False)
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 2.5, 5, 10], min_n_ticks=2))
    bar.ax.yaxis.set_major_formatter(plain)
    return ax


def colour_span(scores: Float[np.ndarray, "entry"], se: Float[np.ndarray, "entry"]) -> tuple[float, float]:
    """The ends of a colour scale: the extremes of `scores`, apart by `LEAST_SPAN` standard errors at least."""
    if not scores.size:
        return 0.0, 1.0
    low, high = float(scores.min()), float(scores.max())
    short = max(0.0, LEAST_SPAN * float(np.nan_to_num(se).max()) - (high - low)) / 2.0
    if low - short == high + short:  # without an error, or one lost beside the score
        short = 0.5e-9 * max(abs(low), abs(high), 1.0)
    return low - short, high + short


def probability_text(probability: Estimate) -> str:
    """'0.6382 ± 0.0001': to the first digit of its standard error; errors below 1e-5 as '3e-7'."""
    value, se = probability.value, probability.se
    if not se > 0.0:
        return f"{value:.4g}"
    rounded = f"{se:.0e}"
    power = int(rounded.partition("e")[2])
    digits = max(0, -power)
    error = f"{float(rounded):.{digits}f}" if power > -6 else f"{rounded[0]}e{power}"
    return f"{value:.{digits}f} ± {error}"


def draw_key_factors(
    ax: "Axes",
    curves: Mapping[float, Float[np.ndarray, "key"]],
    *,
    others: Mapping[float, Float[np.ndarray, "key"]] | None = None,
    simulated: "Mapping[float, Averages] | None" = None,
    names: tuple[str, str] = ("closed form", "other reading"),
    label: str = "h(j) / h(0)",
) -> "Axes":
    """Draw h(j)/h(0), or what `label` names, against the key j, a curve per anisotropy α, named at its end.

    `others` (a second reading) are faint dashes, `simulated` points with 95 % intervals (NaN: left out);
    `names` say in the legend what curves and dashes are. Source: Kim et al. 2026, Eq. 42, Figures 2 and 7.
    """
    from matplotlib.lines import Line2D

    style.dress(ax, "key j", label)
    colours = _ramp(sorted(curves))
    handles = [Line2D([], [], color=style.MUTED, linewidth=style.LINE, label=names[0])]
    for level, curve in curves.items():
        ax.plot(np.arange(len(curve)), curve, color=colours[level], linewidth=style.LINE)
    for level, curve in (others or {}).items():
        look = {"linewidth": style.THIN * 1.5, "linestyle": (0, (4, 2)), "alpha": 0.55}
        ax.plot(np.arange(len(curve)), curve, color=colours[level], zorder=1.5, **look)
    if others:
        look = {"linewidth": style.THIN * 1.5, "linestyle": (0, (4, 2)), "label": names[1]}
        handles.append(Line2D([], [], color=style.MUTED, **look))
    if simulated:
        look = {"fmt": "o", "markersize": 3.2, "elinewidth": style.THIN * 1.5, "capsize": 1.5, "zorder": 3}
        for level, points in simulated.items():
            # the first point is 1 by definition
            j = np.flatnonzero(np.isfinite(points.value))[1:]
            error = NORMAL_95 * points.se[j]
            ax.errorbar(j, points.value[j], error, color=colours[level], markeredgewidth=0, **look)
        look = {"marker": "o", "markersize": 3.2, "linewidth": 0, "label": "simulated, 95 %"}
        handles.append(Line2D([], [], color=style.MUTED, **look))
    _name_ends(ax, {f"α = {level:g}": (curves[level], colours[level]) for level in curves})
    style.whole_numbers(ax.xaxis)
    ax.legend(handles=handles, loc="best", handlelength=2.2, **style.LEGEND)
    return ax


def _ramp(levels: list[float]) -> dict[float, tuple[float, ...]]:
    """A colour for each level, from dark to light in their order, all dark enough for thin lines."""
    from matplotlib import colormaps

    places = np.linspace(0.0, 0.82, len(levels)) if len(levels) > 1 else [0.4]
    return {level: colormaps["viridis"](place) for level, place in zip(levels, places, strict=True)}


def _name_ends(
    ax: "Axes", curves: "Mapping[str, tuple[Float[np.ndarray, 'key'], tuple[float, ...]]]"
) -> None:
    """Names at the right ends of curves, pushed upwards where they would overlap."""
    bottom, top = ax.get_ylim()
    gap, last = 0.055 * (top - bottom), -math.inf
    for name, (curve, colour) in sorted(curves.items(), key=lambda item: item[1][0][-1]):
        last = max(float(curve[-1]), last + gap)
        look = {"va": "center", "fontsize": style.SMALL, "color": colour, "annotation_clip": False}
        ax.annotate(name, (len(curve) - 1, last), (5, 0), textcoords="offset points", **look)
