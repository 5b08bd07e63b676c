"""Depth against the residual stream: attention alone collapses on the first token, below its bound."""

from posbias import Architecture, AttentionOnly, ConstantMixing, DecayBias, Layer, PowerDecay
from posbias.reports.plots import new_figure, save_figure
from posbias_papers.closed_forms.collapse_bounds import collapse
from posbias_papers.plots.closed_forms import draw_collapse

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
draw_collapse(figure.subplots(), curves)
save_figure(figure, "collapse.png")
