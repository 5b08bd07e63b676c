"""How the time of each engine grows with the text: 8 layers of 8 heads on one core, best of three."""

import time

from posbias import ALiBi, Architecture, ConstantMixing, KerpleLog, Layer, SlidingWindow, influence
from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import draw_lines, dress, key

alibi, window = (
    Layer(heads=8, positional=ALiBi()),
    Layer(heads=8, positional=ALiBi(), mask=SlidingWindow(1024)),
)
kerple = Layer(heads=8, positional=KerpleLog([0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]))
cases = {
    "sweep, causal": (alibi, "sweep", [2**k for k in range(9, 19)]),
    "sweep, window 1,024": (window, "sweep", [2**k for k in range(11, 19)]),
    "fft": (kerple, "fft", [2**k for k in range(9, 16)]),
    "stream": (kerple, "stream", [2**k for k in range(9, 14)]),
}


def seconds(layer: Layer, method: str, tokens: int) -> float:
    begin = time.perf_counter()
    influence(Architecture(8, (layer,), ConstantMixing(0.2), "growth"), tokens, method=method, threads=1)
    return time.perf_counter() - begin


measured = {}
for name, (layer, method, lengths) in cases.items():
    seconds(layer, method, 600)  # compiles
    measured[name] = (lengths, [min(seconds(layer, method, tokens) for _ in range(3)) for tokens in lengths])
figure = new_figure(5.6, 3.6)
ax = figure.subplots()
dress(ax, "tokens", "seconds")
draw_lines(ax, measured)
ax.set_xscale("log", base=2)
ax.set_yscale("log")
key(ax, columns=2)
save_figure(figure, "growth.png")
