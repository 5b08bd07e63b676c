"""Gemma 3 270M's influence by distance to the query, at lengths within its windows and beyond them."""

import numpy as np

from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import DASHES, MUTED, draw_lines, dress, key
from posbias_papers.extensions.cells import on_record
from posbias_papers.extensions.second_model import CELLS, STEP, WINDOW, LengthCell

figure = new_figure(6.4, 3.6)
ax = figure.subplots()
dress(
    ax, "distance to the query, tokens (dashed: as far as a window sees)", f"influence, mean of {STEP} tokens"
)
curves = {}
for cell, result in on_record(CELLS).items():
    if isinstance(cell, LengthCell) and cell.tokens >= 4 * STEP:
        blocks = np.reshape(result["influence"][::-1], (-1, STEP)).mean(axis=1)
        curves[f"{cell.tokens:,} tokens"] = (STEP * np.arange(0.5, blocks.size), blocks)
draw_lines(ax, curves, markersize=3)
ax.axvline(WINDOW, color=MUTED, linestyle=DASHES, linewidth=0.8)
ax.set_yscale("log")
key(ax, columns=3)
save_figure(figure, "gemma.png")
