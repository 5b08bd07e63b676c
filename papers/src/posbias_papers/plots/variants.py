"""What recency becomes with parameters, heads, a feed-forward block or an encoding, as a picture."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from posbias.reports.plots.style import ACCENT, COLOURS, INK, LEGEND, LINE, MUTED, RULE, THIN, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posbias_papers.simulation.over_networks import OverNetworks
    from posbias_papers.simulation.variants import Variant, VariantResult

LAYERS = {2: COLOURS["positional"], 3: ACCENT, 4: INK}
"""Colours of the layers that are shown, numbered from 1 (in the first, what is not an encoding gives ½)."""
APART = 0.24
"""Distance of a layer's line from the next, in units of the distance of two variants."""
GROUPS = ("nothing drawn", "weights drawn", "W_Q and W_K drawn apart", "encoding in the score")


def draw_variants(ax: "Axes", results: "Mapping[str, VariantResult]") -> "Axes":
    """Draw recency probability − ½ of layers 2 to 4, by the variants' names, grouped by what they add.

    Points are means over networks with their 95 % intervals, light bars the networks' standard deviation to
    both sides (without what the inputs' noise adds; no bar where nothing is left). A variant with an encoding
    has a second row, its content: the score without the encoding.
    """
    dress(ax, "recency probability − ½  (right: later keys score higher, left: earlier ones)", "")
    ax.grid(False)
    ax.grid(True, axis="x", color=RULE, linewidth=THIN)
    ax.axvline(0, color=MUTED, linewidth=THIN)
    ax.use_sticky_edges = False
    names, place = {}, 0.0
    for group in range(len(GROUPS)):
        members = {name: result for name, result in results.items() if _group(result.variant) == group}
        if not members:
            continue
        names[place] = GROUPS[group]
        for name, networks in (row for label, result in members.items() for row in result.parts(label)):
            place += 1.0
            names[place] = name
            _draw_row(ax, place, networks)
        place += 1.4
    ax.set_ylim(place - 0.8, -0.5)
    ax.set_yticks(list(names), list(names.values()))
    for label in ax.get_yticklabels():
        if label.get_text() in GROUPS:
            label.set(fontweight="bold", color=MUTED)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for layer, colour in LAYERS.items():
        ax.plot([], [], "o", color=colour, markersize=3.2, label=f"layer {layer}")
    ax.fill_between([], [], color=MUTED, alpha=0.3, linewidth=0, label="standard deviation over networks")
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 4}
    ax.legend(handlelength=1.4, columnspacing=1.4, **place, **LEGEND)
    return ax


def _draw_row(ax: "Axes", place: float, networks: "OverNetworks") -> None:
    estimates = list(zip(networks.recency_probability, networks.variance, strict=True))
    for step, (layer, colour) in enumerate(LAYERS.items()):
        if layer > len(estimates):
            continue
        probability, variance = estimates[layer - 1]
        height, value = place + (step - 1) * APART, probability.value - 0.5
        if variance.value > 0:
            width = 2.0 * variance.value**0.5
            ax.barh(height, width, APART, left=value - width / 2, color=colour, alpha=0.22, linewidth=0)
        reach = probability.interval[1] - probability.value
        ax.errorbar(value, height, xerr=reach, fmt="o", color=colour, markersize=2.6, linewidth=LINE)


def _group(variant: "Variant") -> int:
    """Which of `GROUPS` a variant belongs to: the last that fits."""
    if variant.positional != "none":
        return 3
    if variant.projections == "independent":
        return 2
    return int(bool(variant.shapes))
