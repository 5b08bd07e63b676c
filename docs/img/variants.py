"""LayerNorm's recency with parameters, heads, a feed-forward block, an encoding: sign and strength, by layer.

Run as a script it draws the picture of docs/img (five to ten minutes); imported, a rough one of it.
"""

from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import ACCENT, COLOURS, INK, LEGEND, LINE, MUTED, RULE, THIN, dress
from posbias_papers.simulation import VARIANTS, simulate_variant

LAYERS = {2: COLOURS["positional"], 3: ACCENT, 4: INK}
"""Colours of the layers that are shown, numbered from 1 (in the first, what is not an encoding gives ½)."""
APART = 0.24
"""Distance of a layer's line from the next, in units of the distance of two variants."""


def draw_variants(ax, results):
    """Draw recency probability − ½ of layers 2 to 4, by the variants' names.

    Points are means over networks with their 95 % intervals, light bars the networks' standard deviation to
    both sides (without what the inputs' noise adds; no bar where nothing is left). A variant with an encoding
    has a second row, its content: the score without the encoding.
    """
    dress(ax, "recency probability − ½  (right: later keys score higher, left: earlier ones)", "")
    ax.grid(True, axis="x", color=RULE, linewidth=THIN)
    ax.axvline(0, color=MUTED, linewidth=THIN)
    rows = [part for name, result in results.items() for part in result.parts(name)]
    for place, (_, networks) in enumerate(rows):
        for step, (layer, colour) in enumerate(LAYERS.items()):
            for probability, variance in [*zip(networks.recency_probability, networks.variance, strict=True)][
                layer - 1 : layer
            ]:
                height, value = place + (step - 1) * APART, probability.value - 0.5
                width = 2.0 * max(variance.value, 0.0) ** 0.5
                ax.barh(height, width, APART, left=value - width / 2, color=colour, alpha=0.22, linewidth=0)
                reach = probability.interval[1] - probability.value
                ax.errorbar(value, height, xerr=reach, fmt="o", color=colour, markersize=2.6, linewidth=LINE)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.tick_params(axis="y", length=0)
    for layer, colour in LAYERS.items():
        ax.plot([], [], "o", color=colour, markersize=3.2, label=f"layer {layer}")
    ax.fill_between([], [], color=MUTED, alpha=0.3, linewidth=0, label="standard deviation over networks")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, handlelength=1.4, **LEGEND)
    return ax


networks, inputs = (400, 300) if __name__ == "__main__" else (20, 30)
results = {name: simulate_variant(variant, networks, inputs) for name, variant in VARIANTS.items()}
figure = new_figure(6.8, 7.2)
draw_variants(figure.subplots(), results)
save_figure(figure, "variants.png")
