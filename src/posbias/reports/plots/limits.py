"""Depth at work: mass that collapses on the first token, and the distance that is favoured most."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.reports.plots.style import ACCENT, COLOURS, INK, LINE, THIN, dress, key

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posbias.theory.closed_forms.critical_distances import Collapse, DistanceCurve

PALETTE = (COLOURS["attention_only"], ACCENT, COLOURS["fitted"], COLOURS["measured_kernels"])
"""Colours of the curves in the order given; a fifth begins again."""
DOTTED, DASHED = (0, (1, 2)), (0, (4, 2))


def draw_collapse(ax: "Axes", curves: Mapping[str, "Collapse"], faintest: float = 1e-12) -> "Axes":
    """Draw what a query draws from a position against depth, by name, on a logarithmic scale.

    Solid: the position and all later ones together; dotted: the position alone; dashed: the bound, which
    neither exceeds (Wu et al. 2025, Theorem 4.1; with λ < 1 the residual-aware one). Nothing below `faintest`.
    """
    dress(ax, "layers", "share of the query's mass")
    least, deepest = 1.0, 1
    for place, (name, curve) in enumerate(curves.items()):
        layers, colour = np.arange(curve.mass.size), PALETTE[place % len(PALETTE)]
        bound = np.exp(curve.log_bound)
        ax.plot(layers, _positive(curve.later), color=colour, linewidth=LINE, label=name)
        ax.plot(layers, _positive(curve.mass), color=colour, linewidth=LINE, linestyle=DOTTED)
        ax.plot(layers, _positive(bound), color=colour, linewidth=THIN, linestyle=DASHED)
        shown = np.concatenate([curve.later, bound])
        least = min(least, float(shown[shown > 0].min(initial=1.0)))
        deepest = max(deepest, curve.mass.size - 1)
    positions = sorted({curve.position for curve in curves.values()})
    named = positions[0] if len(positions) == 1 else "j"
    ax.plot([], [], color=INK, linewidth=LINE, label=f"positions ≥ {named}")
    ax.plot([], [], color=INK, linewidth=LINE, linestyle=DOTTED, label=f"position {named} alone")
    ax.plot([], [], color=INK, linewidth=THIN, linestyle=DASHED, label=f"bound on ≥ {named}")
    ax.set_yscale("log")
    ax.set_ylim(max(faintest, least / 2), 1.5)
    ax.set_xlim(0, deepest)
    key(ax, columns=2)
    return ax


def draw_critical_distance(ax: "Axes", curves: Mapping[str, "DistanceCurve"]) -> "Axes":
    """Draw the distance that is favoured most against depth, for each encoding in its colour.

    Line: x* of Theorems 4.5 and 4.7 (Wu et al. 2025); dots: the whole distance where walks × envelope peak;
    crosses: where the rollout itself peaks, its first token left out; dashed: where its drift puts that peak.
    """
    dress(ax, "layers", "distance from the query (tokens)")
    for place, (name, curve) in enumerate(curves.items()):
        colour = PALETTE[place % len(PALETTE)]
        ax.plot(curve.depth, curve.predicted, color=colour, linewidth=LINE, label=name)
        ax.plot(curve.depth, np.maximum(curve.drift, 0.0), color=colour, linewidth=THIN, linestyle=DASHED)
        ax.plot(curve.depth, curve.modal, "o", color=colour, markersize=2.5)
        ax.plot(curve.depth, curve.rollout, "x", color=colour, markersize=5)
    ax.plot([], [], color=INK, linewidth=LINE, label="x*")
    ax.plot([], [], "o", color=INK, markersize=2.5, label="peak of walks × envelope")
    ax.plot([], [], "x", color=INK, markersize=5, label="peak of the rollout")
    ax.plot([], [], color=INK, linewidth=THIN, linestyle=DASHED, label="its drift")
    ax.set_ylim(bottom=0)
    key(ax, columns=2)
    return ax


def _positive(values: Float[np.ndarray, "step"]) -> Float[np.ndarray, "step"]:
    """Zeros, which a logarithmic scale has no place for, as gaps."""
    return np.where(values > 0, values, np.nan)
