"""Recency and depth as pictures: mean attention scores, the critical distance.

Mean scores are estimates, so no picture of them may show noise as structure: a panel's colours span at least
`LEAST_SPAN` standard errors. Where the scores of a row are equal, as in a first layer, it is of one colour.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.estimate import Estimate
from posbias.reports.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posbias.simulation import RecencyResult
    from posbias.theory.critical_distances import DistanceCurve

LEAST_SPAN = 40.0
"""Width of a colour scale in standard errors of the scores, at least."""
COLUMNS = 4
"""Layers side by side."""


def scores_figure(result: "RecencyResult") -> "Figure":
    """Mean scores of every layer of a simulation, each panel under its recency probability."""
    depth = result.model.depth
    columns, scores = min(COLUMNS, depth), result.mean_scores
    figure, axes = style.new_panels(depth, columns, 2.1, 1.9)
    for layer in range(depth):
        ax, title = axes[layer], f"layer {layer + 1}"
        draw_scores(ax, scores.value[layer], scores.se[layer], diagonal=result.model.norm == "none")
        if result.model.tokens > 2:
            title += f"\nRP = {probability_text(result.recency_probability[layer])}"
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
    from matplotlib.ticker import MaxNLocator

    tokens = len(scores)
    seen = np.tri(tokens, k=0 if diagonal else -1, dtype=bool) & np.isfinite(scores)
    low, high = colour_span(scores[seen], se[seen])
    style.dress(ax, "", "")
    if not diagonal:
        own = np.zeros((tokens, tokens, 4))
        own[np.eye(tokens, dtype=bool)] = to_rgba(style.RULE, 0.6)
        ax.imshow(own, interpolation="nearest")
    image = style.draw_matrix(ax, np.where(seen, scores, np.nan), vmin=low, vmax=high)
    places = np.arange(0, tokens, max(1, -(-tokens // 4)))
    ax.set(xlim=(-0.5, tokens - 0.5), ylim=(tokens - 0.5, -0.5), xticks=places, yticks=places)
    bar = style.colour_bar(ax, image)
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 2.5, 5, 10], min_n_ticks=2))
    bar.ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    return ax


def colour_span(scores: Float[np.ndarray, "entry"], se: Float[np.ndarray, "entry"]) -> tuple[float, float]:
    """The ends of a colour scale: the extremes of `scores`, apart by `LEAST_SPAN` standard errors at least."""
    if not scores.size:
        return 0.0, 1.0
    low, high = float(scores.min()), float(scores.max())
    short = max(0.0, LEAST_SPAN * float(np.nan_to_num(se).max()) - (high - low)) / 2.0
    if low - short == high + short:  # without an error, or one too small to change the score
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


def draw_critical_distance(ax: "Axes", curves: Mapping[str, "DistanceCurve"]) -> "Axes":
    """Draw the distance that is favoured most against depth, for each encoding in its colour.

    Line: x* of Theorems 4.5 and 4.7 (Wu et al. 2025); dots: the whole distance where walks × envelope peak;
    crosses: where the rollout itself peaks, its first token left out; dashed: where its drift puts that peak.
    """
    style.dress(ax, "layers", "distance from the query (tokens)")
    dashed = {"linestyle": (0, (4, 2)), "linewidth": style.THIN}
    dots = {"linestyle": "", "marker": "o", "markersize": 2.5}
    parts: dict[str, tuple[str, dict[str, Any]]] = {"x*": ("predicted", {}), "its drift": ("drift", dashed)}
    parts["peak of walks × envelope"] = "modal", dots
    parts["peak of the rollout"] = "rollout", dots | {"marker": "x", "markersize": 5}
    for place, (name, curve) in enumerate(curves.items()):
        for kind, look in parts.values():
            label = name if kind == "predicted" else None
            colour = style.SERIES[place % len(style.SERIES)]
            usual = {"linewidth": style.LINE, "color": colour, "label": label}
            ax.plot(curve.depth, np.maximum(getattr(curve, kind), 0.0), **usual | look)
    for name, (_, look) in parts.items():
        ax.plot([], [], **{"linewidth": style.LINE, "color": style.INK, "label": name} | look)
    ax.set_ylim(bottom=0)
    style.key(ax, columns=2)
    return ax
