"""BLOOM-176B's influence, as its authors measured it, against rollouts with slopes and content read in their way
and the model's."""

import numpy as np

from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import COLOURS, INK, SMALL, dress, plain_numbers
from posbias_papers.herasimchyk2026.configs import published_curves

PANELS = {
    "as published": {"b": "(b) no content", "c": "(c) content unscaled", "c_scaled": "content scaled"},
    "with the model's slopes": {"b_own": "(b) no content", "c_own": "content scaled"},
}
LOOKS = {"b": COLOURS["attention_only"], "c": COLOURS["measured_kernels"], "c_scaled": COLOURS["energy"]}
curves = {name: 256 * np.array(values) for name, values in published_curves().items()}
figure = new_figure(7.6, 3.0)
for ax, (title, names) in zip(figure.subplots(1, 2, sharey=True), PANELS.items(), strict=True):
    dress(ax, "position", "influence (uniform = 1)" if title == "as published" else "")
    ax.plot(curves["measured"], color=INK, linewidth=1.0, label="measured")
    for name, label in names.items():
        colour = LOOKS[{"b_own": "b", "c_own": "c_scaled"}.get(name, name)]
        ax.plot(curves[name], color=colour, linewidth=1.6, label=label)
    ax.set(yscale="log", ylim=(0.2, 20), title=title)
    plain_numbers(ax.yaxis)
    ax.legend(loc="upper center", fontsize=SMALL, frameon=False)
save_figure(figure, "bloom.png")
