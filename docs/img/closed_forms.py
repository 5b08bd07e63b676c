"""The closed forms of Kim et al. 2026 against the truth: which reading becomes right as d grows, how fast.

Lines: three tokens, integrated. Points: ten tokens, simulated; from d = 2,048 on their rise is lost to rounding.
"""

import numpy as np

from posbias.profiles.estimate import NORMAL_95, Estimate
from posbias.reports.plots import new_figure, save_figure
from posbias.reports.plots.style import ACCENT, COLOURS, MUTED, dress
from posbias.simulation import RecencyModel, simulate_recency
from posbias_papers.closed_forms.layernorm import READINGS, closed_form, deviation
from posbias_papers.closed_forms.recency import exact_scores

LOOKS = {
    "published": ("as printed", COLOURS["measured_kernels"], "-"),
    "means": ("constants corrected, κ = 1", COLOURS["attention_only"], "--"),
    "corrected": ("corrected, with κ", ACCENT, "-"),
}
SAMPLES = 2**18
NOISIEST = 0.2
"""A value whose standard error is a larger share of it is left out."""
INTEGRATED, SIMULATED = [2**k for k in range(3, 13)], [2**k for k in range(3, 11)]
ISOTROPIC, RESIDUAL = {"anisotropy": 0.0}, {"anisotropy": 0.5, "residual": True}
PANELS = {
    "rise at α = 0: Eq. 42": ("rise", ISOTROPIC, None),
    "rise at α = 0.5: Eq. 42": ("rise", {"anisotropy": 0.5}, -0.5),
    "rise at α = 0.5, residual: Eq. 42": ("rise", RESIDUAL, -0.5),
    "level at α = 0: Eq. 5": ("level", ISOTROPIC, None),
    "level at α = 0.5, residual: Eqs. 33, 41": ("level", RESIDUAL, -1.0),
    "level at α = 0 without LayerNorm: Eq. 19": ("level", {"anisotropy": 0.0, "norm": "none"}, -1.5),
}


def integrated(model):
    """Relative rise and level of three tokens at each dimension, with what is not sure of them."""
    found = {"rise": {}, "level": {}}
    for d in INTEGRATED:
        exact = exact_scores(RecencyModel(3, d, depth=2, **model), nodes=8)
        (rise, rise_error), (level, error) = (
            (exact.rises.value[1], exact.rises.error[1]),
            (exact.scores.value[1, 2, 0], exact.scores.error[1, 2, 0]),
        )
        found["level"][d] = Estimate(level, error)
        found["rise"][d] = Estimate(rise / level, rise_error / abs(level) + error * abs(rise) / level**2)
    return found


def simulated(model):
    """Relative rise and level of ten tokens at each dimension, with standard errors."""
    found = {"rise": {}, "level": {}}
    for d in SIMULATED:
        result = simulate_recency(RecencyModel(dimension=d, depth=2, **model), SAMPLES)
        level, error = (part[1, 9, 0] for part in (result.mean_scores.value, result.mean_scores.se))
        rise, rise_error = (part[1, 9, 8] for part in (result.rises.value, result.rises.se))
        found["level"][d] = Estimate(level, error)
        error = ((rise_error / level) ** 2 + (rise * error / level**2) ** 2) ** 0.5
        found["rise"][d] = Estimate(rise / level, error)
    return found


def curves(quantity, found, tokens, model):
    """Dimensions, and of each reading the deviations there with their errors and whether they are significant."""
    sure = {d: one for d, one in found[quantity].items() if one.se <= NOISIEST * abs(one.value)}
    dimensions, curves = np.array([*sure]), {}
    for name in reversed(READINGS):
        forms = (closed_form(quantity, RecencyModel(tokens, d, **model), name) for d in sure)
        off = [deviation(form, one) for form, one in zip(forms, sure.values(), strict=True)]
        size, error = (
            np.array(part) for part in zip(*((abs(one.value), one.se) for one in off), strict=True)
        )
        curves[name] = size, error, size > 2.0 * error
    return dimensions, curves


def draw(ax, exact, sampled, slope):
    """|closed form/true value − 1| by dimension; triangles: less than; dotted: a power of d."""
    dress(ax, "dimension d", "|closed form / true value − 1|")
    ax.set(xscale="log", yscale="log")
    (of_lines, lines), (of_points, points) = exact, sampled
    for reading, (size, _, known) in lines.items():
        name, colour, line = LOOKS[reading]
        ax.plot(of_lines, np.where(known, size, np.nan), color=colour, linestyle=line, label=name)
    for reading, (size, error, known) in points.items():
        error = NORMAL_95 * error
        look = {"color": LOOKS[reading][1], "markersize": 3, "linestyle": "none"}
        ax.errorbar(of_points[known], size[known], error[known], marker="o", elinewidth=0.6, **look)
        ax.plot(of_points[~known], (size + error)[~known], "v", fillstyle="none", **look)
    if slope is not None:
        size, _, known = lines["corrected"]
        d = of_lines[known][[-5, -1]]
        ends = 2 * size[known][-1] * (d / d[-1]) ** slope
        ax.plot(d, ends, ":", color=MUTED, label=f"∝ d^{slope:g}")


models = {str(model): model for _, model, _ in PANELS.values()}
truth = {name: (integrated(model), simulated(model)) for name, model in models.items()}
figure = new_figure(9.6, 5.4)
axes = figure.subplots(2, 3, sharex=True)
for ax, (name, (quantity, model, slope)) in zip(axes.flat, PANELS.items(), strict=True):
    exact, sampled = truth[str(model)]
    lines, points = curves(quantity, exact, 3, model), curves(quantity, sampled, 10, model)
    draw(ax, lines, points, slope)
    ax.set_title(name, fontsize=8, loc="left", pad=4)
for ax in axes[:, 1:].flat:
    ax.set_ylabel("")
for ax in axes[0]:
    ax.set_xlabel("")
axes[0, 0].legend(fontsize=7, frameon=False)
save_figure(figure, "closed_forms.png")
