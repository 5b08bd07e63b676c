"""Depth at work: the distance that is favoured most."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from posbias.reports.plots.style import ACCENT, COLOURS, INK, LINE, THIN, dress, key

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posbias.theory.critical_distances import DistanceCurve

PALETTE = (COLOURS["attention_only"], ACCENT, COLOURS["fitted"], COLOURS["measured_kernels"])
"""Colours of the curves in the order given; a fifth begins again."""
DASHED = (0, (4, 2))


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
