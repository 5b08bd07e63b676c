"""What closed forms are off by, against the dimension: which of them become right as it grows, and how fast."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.estimate import NORMAL_95
from posbias.reports.plots.style import (
    ACCENT,
    COLOURS,
    INK,
    LEGEND,
    LINE,
    MUTED,
    SERIES,
    SMALL,
    THIN,
    dress,
    key,
    plain_numbers,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posbias.simulation import Averages
    from posbias_papers.closed_forms.collapse_bounds import Collapse
    from posbias_papers.closed_forms.deviation import DeviationCurve
    from posbias_papers.closed_forms.layernorm import ReadingName

READINGS: "Mapping[ReadingName, tuple[str, str, object]]" = {
    "published": ("as printed", COLOURS["measured_kernels"], "-"),
    "means": ("constants corrected, κ = 1", COLOURS["attention_only"], (0, (4, 2))),
    "corrected": ("corrected, with κ", ACCENT, "-"),
}
"""Name, colour and line of each reading of the closed forms."""
DOTTED = (0, (1, 2))


def draw_deviation(
    ax: "Axes",
    exact: "Mapping[ReadingName, DeviationCurve]",
    sampled: "Mapping[ReadingName, DeviationCurve]",
    *,
    slope: float | None = None,
) -> "Axes":
    """Draw |closed/found − 1| against d by reading, both logarithmic.

    Lines: found without sampling, as far as the deviation is beyond its error. Points: found by
    sampling, with the 95 % interval; where that holds zero, a mark pointing down at its upper end, below which
    the deviation is. Dotted, with `slope`: that power of d.
    """
    dress(ax, "dimension d", "|closed form / true value − 1|")
    ax.set_xscale("log", base=4)
    ax.set_yscale("log")
    plain_numbers(ax.xaxis)
    for reading, curve in exact.items():
        name, colour, line = READINGS[reading]
        size = np.where(curve.known, abs(curve.deviation), np.nan)
        ax.plot(curve.dimension, size, color=colour, linestyle=line, linewidth=LINE, label=name)
    for reading, curve in sampled.items():
        _, colour, _ = READINGS[reading]
        size, error, known = abs(curve.deviation), NORMAL_95 * curve.se, curve.known
        look = {"fmt": "o", "markersize": 3, "linewidth": THIN, "capsize": 0}
        ax.errorbar(curve.dimension[known], size[known], error[known], color=colour, **look)
        look = {"marker": "v", "linestyle": "none", "fillstyle": "none", "markersize": 4}
        ax.plot(curve.dimension[~known], (size + error)[~known], color=colour, **look)
    if slope is not None and "corrected" in exact:
        _guide(ax, exact["corrected"], slope)
    return ax


def draw_reading_key(ax: "Axes") -> "Axes":
    """Say above an axes what colours, lines and marks of `draw_deviation` mean."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=colour, linestyle=line, linewidth=LINE, label=name)  # type: ignore[arg-type]
        for name, colour, line in READINGS.values()
    ]
    marks += [
        Line2D([], [], color=INK, linewidth=LINE, label="3 tokens, integrated"),
        Line2D([], [], color=INK, marker="o", markersize=3, linewidth=0, label="10 tokens, simulated"),
        Line2D([], [], color=INK, marker="v", markersize=4, fillstyle="none", linewidth=0, label="less than"),
    ]
    ax.figure.legend(handles=marks, loc="outside upper center", ncols=6, **LEGEND)  # type: ignore[union-attr]
    return ax


def _guide(ax: "Axes", curve: "DeviationCurve", slope: float) -> None:
    """A dotted line of the given power of d next to the end of a curve, and the power in words."""
    dimension, size = curve.dimension[curve.known], abs(curve.deviation[curve.known])
    if not size.size:
        return
    last, end = dimension[-1], 2.0 * size[-1]
    first = max(dimension[0], last / 16)
    start = end * (first / last) ** slope
    ax.plot([first, last], [start, end], color=MUTED, linewidth=THIN, linestyle=(0, (1, 2)))
    words = {-0.5: "∝ 1/√d", -1.0: "∝ 1/d", -1.5: "∝ 1/d√d"}.get(slope, f"∝ d^{slope:g}")
    ax.annotate(words, (first, start), (0, 2), textcoords="offset points", fontsize=SMALL, color=MUTED)


def draw_collapse(ax: "Axes", curves: Mapping[str, "Collapse"], faintest: float = 1e-12) -> "Axes":
    """Draw what a query draws from a position against depth, by name, on a logarithmic scale.

    Solid: the position and all later ones together; dotted: the position alone; dashed: the bound, which
    neither exceeds (Wu et al. 2025, Theorem 4.1; with λ < 1 the residual-aware one). Nothing below `faintest`.
    """
    dress(ax, "layers", "share of the query's mass")
    least, deepest = 1.0, 1
    for place, (name, curve) in enumerate(curves.items()):
        layers, colour = np.arange(curve.mass.size), SERIES[place % len(SERIES)]
        bound = np.exp(curve.log_bound)
        ax.plot(layers, _positive(curve.later), color=colour, linewidth=LINE, label=name)
        ax.plot(layers, _positive(curve.mass), color=colour, linewidth=LINE, linestyle=DOTTED)
        ax.plot(layers, _positive(bound), color=colour, linewidth=THIN, linestyle=(0, (4, 2)))
        shown = np.concatenate([curve.later, bound])
        least = min(least, float(shown[shown > 0].min(initial=1.0)))
        deepest = max(deepest, curve.mass.size - 1)
    positions = sorted({curve.position for curve in curves.values()})
    named = positions[0] if len(positions) == 1 else "j"
    ax.plot([], [], color=INK, linewidth=LINE, label=f"positions ≥ {named}")
    ax.plot([], [], color=INK, linewidth=LINE, linestyle=DOTTED, label=f"position {named} alone")
    ax.plot([], [], color=INK, linewidth=THIN, linestyle=(0, (4, 2)), label=f"bound on ≥ {named}")
    ax.set_yscale("log")
    ax.set_ylim(max(faintest, least / 2), 1.5)
    ax.set_xlim(0, deepest)
    key(ax, columns=2)
    return ax


def _positive(values: Float[np.ndarray, "step"]) -> Float[np.ndarray, "step"]:
    """Zeros, which a logarithmic scale has no place for, as gaps."""
    return np.where(values > 0, values, np.nan)


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
    from matplotlib import colormaps

    dress(ax, "key j", label)
    levels = sorted(curves)
    places = np.linspace(0.0, 0.82, len(levels)) if len(levels) > 1 else [0.4]
    colours = {level: colormaps["viridis"](place) for level, place in zip(levels, places, strict=True)}
    dashed: dict[str, Any] = {"linewidth": THIN * 1.5, "linestyle": (0, (4, 2))}
    dots: dict[str, Any] = {"fmt": "o", "markersize": 3.2, "elinewidth": THIN * 1.5, "capsize": 1.5}
    ax.plot([], [], color=MUTED, linewidth=LINE, label=names[0])
    for level, curve in curves.items():
        ax.plot(np.arange(len(curve)), curve, color=colours[level], linewidth=LINE)
    if others:
        ax.plot([], [], color=MUTED, label=names[1], **dashed)
    for level, curve in (others or {}).items():
        ax.plot(np.arange(len(curve)), curve, color=colours[level], zorder=1.5, alpha=0.55, **dashed)
    if simulated:
        ax.plot([], [], "o", color=MUTED, markersize=3.2, label="simulated, 95 %")
    for level, points in (simulated or {}).items():
        j = np.flatnonzero(np.isfinite(points.value))[1:]  # the first point is 1 by definition
        error = NORMAL_95 * points.se[j]
        ax.errorbar(j, points.value[j], error, color=colours[level], markeredgewidth=0, zorder=3, **dots)
    bottom, top = ax.get_ylim()
    gap, last = 0.055 * (top - bottom), -math.inf
    for level, curve in sorted(curves.items(), key=lambda item: item[1][-1]):
        last = max(float(curve[-1]), last + gap)  # names are pushed upwards where they would overlap
        look = {"va": "center", "fontsize": SMALL, "color": colours[level], "annotation_clip": False}
        ax.annotate(f"α = {level:g}", (len(curve) - 1, last), (5, 0), textcoords="offset points", **look)
    whole_numbers(ax.xaxis)
    ax.legend(loc="best", handlelength=2.2, **LEGEND)
    return ax
