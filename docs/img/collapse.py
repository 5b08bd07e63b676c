"""Depth against the residual stream: attention alone collapses on the first token, below its bound."""

import numpy as np

from posbias import Architecture, AttentionOnly, ConstantMixing, DecayBias, Layer, PowerDecay, trajectory
from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import SERIES, dress, key
from posbias.theory.rollout.kernel import layer_kernel
from posbias_papers.closed_forms.bounds import log_collapse_bound

layer = Layer(positional=DecayBias(0.1))
mixings = {
    "attention only": AttentionOnly(),
    "λ = 0.2": ConstantMixing(0.2),
    "λ = 0.5/(t + 1)²": PowerDecay(0.5, 2.0),
}
floor = layer_kernel(layer, 16)[np.tri(16, dtype=bool)].min()
figure = new_figure(6.4, 3.8)
ax = figure.subplots()
dress(ax, "layers", "share of the query's mass")
for colour, (name, mixing) in zip(SERIES, mixings.items(), strict=False):
    architecture = Architecture(200, (layer,), mixing)
    mass = np.stack([profile.mass for profile in trajectory(architecture, 16)])
    bound = np.append(0.0, log_collapse_bound(np.full(200, floor), 1, architecture.coefficients))
    ax.plot(mass[:, 1:].sum(axis=1), color=colour, label=f"{name}: positions ≥ 1")
    ax.plot(mass[:, 1], ":", color=colour, label="position 1 alone")
    ax.plot(np.exp(bound), "--", color=colour, linewidth=0.8, label="bound on ≥ 1")
ax.set(yscale="log", ylim=(1e-12, 1.5))
key(ax, columns=3)
save_figure(figure, "collapse.png")
