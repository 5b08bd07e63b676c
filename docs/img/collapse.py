"""Depth against the residual stream: attention alone collapses on the first token, below its bound."""

from posbias import Architecture, AttentionOnly, ConstantMixing, DecayBias, Layer, PowerDecay
from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import SERIES, dress, key
from posbias_papers.closed_forms.bounds import collapse

layer = Layer(positional=DecayBias(0.1))
mixings = {
    "attention only": AttentionOnly(),
    "λ = 0.2": ConstantMixing(0.2),
    "λ = 0.5/(t + 1)²": PowerDecay(0.5, 2.0),
}
curves = {
    name: collapse(Architecture(200, (layer,), mixing), tokens=16, position=1)
    for name, mixing in mixings.items()
}
figure = new_figure(6.4, 3.8)
ax = figure.subplots()
dress(ax, "layers", "share of the query's mass")
for colour, (name, curve) in zip(SERIES, curves.items(), strict=False):
    mass, later, bound = curve
    ax.plot(later, color=colour, label=f"{name}: positions ≥ 1")
    ax.plot(mass, ":", color=colour, label="position 1 alone")
    ax.plot(bound, "--", color=colour, linewidth=0.8, label="bound on ≥ 1")
ax.set(yscale="log", ylim=(1e-12, 1.5))
key(ax, columns=3)
save_figure(figure, "collapse.png")
