"""Recency of random layers of Kim et al. 2026 by the dimension, from the record of ten million draws."""

import numpy as np

from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import ACCENT, COLOURS, MUTED, SMALL, dress, level_line
from posbias_papers.kim2026 import STUDIES

LINES = {
    (0.5, False): ("α = 0.5", ACCENT),
    (0.5, True): ("α = 0.5, residual", MUTED),
    (0.0, False): ("α = 0", COLOURS["measured_kernels"]),
}
figure = new_figure(4.4, 3.0)
ax = figure.subplots()
rows = [
    study.recorded(study)
    .table()
    .query("layer == 2 and norm == 'layernorm'")
    .dropna(subset=["recency"])
    .reset_index()
    for study in (STUDIES["fig1"], STUDIES["fig4"])
]
for (alpha, residual), (label, colour) in LINES.items():
    points = [
        own.query(f"anisotropy == {alpha} and residual == {residual}")[["dimension", "recency"]]
        for own in rows
    ]
    d, recency = np.concatenate([one.drop_duplicates().to_numpy() for one in points]).T
    ax.plot(d, recency, "o-", color=colour, markersize=4, label=label)
dress(ax, "dimension d", "recency probability, layer 2")
level_line(ax, 0.5)
ax.set_xscale("log", base=2)
ax.set_xticks([16, 64, 256, 1024], ["16", "64", "256", "1,024"])
ax.legend(fontsize=SMALL, frameon=False)
save_figure(figure, "recency.png")
