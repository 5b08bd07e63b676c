"""Influence of causal averages with residual connections by position: with ALiBi, and of uniform attention."""

import numpy as np

from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.influence import scale_influence
from posbias.reports.plots.style import LEGEND, LINE, SERIES, direct_label, dress
from posbias_papers.closed_forms import causal_averaging as averages

positions = np.linspace(0.005, 1.0, 400)
figure = new_figure(7.2, 5.0)
axes = figure.subplots(2, 3)
for ax, decay in zip(axes[0], (0.5, 2.0, 5.0), strict=True):
    for multiple, colour in zip((1.0, 1.8, 3.0, 4.0), SERIES, strict=False):
        hops = averages.poisson_hops(multiple * (1.0 - np.exp(-decay)))
        density = averages.influence_density(positions, hops, decay)
        ax.plot(positions, density, color=colour, linewidth=LINE, label=f"s = {multiple:g} (1 − $e^{{-c}}$)")
        for turn in averages.turning_points(hops, decay):
            ax.plot(turn, np.interp(turn, positions, density), color=colour, marker="o", markersize=3)
    direct_label(ax, f"c = {decay:g}", "black")
for ax, mixing in zip(axes[1], (0.1, 0.2, 0.5), strict=True):
    for depth, colour in zip((6, 12, 24), SERIES, strict=False):
        density = averages.influence_density(positions[:-1], averages.hops_of([mixing] * depth))
        ax.plot(positions[:-1], density, color=colour, linewidth=LINE, label=f"{depth} layers")
    direct_label(ax, f"c = 0, λ = {mixing:g}", "black")
for ax in axes.flat:
    dress(ax, "position (1: the last token)", "influence (uniform = 1)")
    heights = np.concatenate([np.asarray(line.get_ydata()) for line in ax.lines])
    scale_influence(ax, heights.min() / 1.2, heights.max() * 1.2)
for ax in axes[:, -1]:
    ax.legend(**LEGEND)
save_figure(figure, "averages.png")
