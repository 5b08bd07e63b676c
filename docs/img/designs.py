"""Designs of 24 layers for 4,096 tokens: distance to uniform against keys in the cache."""

from posbias import ALiBi, Architecture, ConstantMixing, Layer, design
from posbias.reports.plots import draw_designs, new_figure, save_figure

base = Architecture(24, (Layer(heads=8, positional=ALiBi()),), ConstantMixing(0.3))
varied = {
    "window": [64, 128, 256, 512, 1024],
    "full_period": [1, 2, 3, 4, 6, 8],
    "slopes": [0.01, 0.03, 0.1, 0.3, 1.0],
    "nope_period": [1, 2, 3, 4, 6, 8, 25],
}
found = design(base, varied, tokens=4096, evaluations=1050)
figure = new_figure(6.4, 3.4)
draw_designs(figure.subplots(), found.front, found.baseline, found.target.within)
save_figure(figure, "designs.png")
