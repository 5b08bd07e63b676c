"""Influence of causal averages with residual connections: when is it a U, and where is it lowest?

After Duerinckx et al. 2026 (ALiBi of slope c/N, many small residual steps that add up to the strength s) and
Chowdhury 2026 (even attention of one weight α), whose texts were not at hand: nothing here is a verdict on them.
Rollouts are compared with the closed form of `posbias_papers.closed_forms.causal_averaging`. The first of 100
positions are left out: few tokens stand for a density that has no bound there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import DecayBias
from posbias_papers.closed_forms import causal_averaging as averages
from posbias_papers.extensions.extension import Cell, Extension, Result, Results
from posbias_papers.pages import Table

FIRST = 0.01
LAYERS = 400
DECAYS, MULTIPLES = (0.5, 1.0, 2.0, 3.0, 5.0), (0.5, 0.9, 1.0, 1.25, 1.5, 2.0)
DEPTHS, MIXINGS = (6, 12, 24), (0.1, 0.2, 0.5)


@dataclass(frozen=True)
class AverageCell(Cell):
    """Layers of the decay c (0: even attention) with the weight α each."""

    decay: float
    mixing: float
    depth: int
    tokens: int

    kind = "average_cell"

    def compute(self, on_event: Any = None) -> Result:
        """Roll the layers out: where influence turns and is lowest, and how far it is from the closed form."""
        from posbias.theory.rollout.dispatch import influence

        layer = Layer(positional=DecayBias(self.decay / self.tokens)) if self.decay else Layer()
        mass = influence(Architecture(self.depth, (layer,), ConstantMixing(self.mixing)), self.tokens).mass
        inner = slice(int(FIRST * self.tokens), self.tokens - 1)
        hops = averages.hops_of([self.mixing] * self.depth)
        off = np.abs(mass / averages.profile_of_averages(self.tokens, hops, self.decay) - 1.0)
        # the last token keeps its own
        steps = np.diff(mass[:-1])
        return {
            "off": float(off[inner].max()),
            "turns": ((np.flatnonzero(np.diff(np.sign(steps))) + 1) / self.tokens).tolist(),
            "expected": list(averages.turning_points(hops, self.decay)),
            "lowest_from_end": int(self.tokens - 1 - mass.argmin()),
            "kept": float(mass[-1] - mass[-2]),
        }


def kinetic(decay: float, multiple: float, tokens: int = 4000) -> AverageCell:
    """400 layers of the strength `multiple` · min(3 − √3, 2(1 − e^{−c})) in all."""
    step = multiple * averages.smallness_bound(decay) / LAYERS
    return AverageCell(decay, step / (1.0 + step), LAYERS, tokens)


EVEN = tuple(AverageCell(0.0, mixing, depth, 200_000) for mixing in MIXINGS for depth in DEPTHS)
CELLS = (*(kinetic(decay, multiple) for decay in DECAYS for multiple in MULTIPLES), *EVEN)


def _tables(results: Results) -> Iterator[Table]:
    rows: list[dict[str, Any]] = []
    for decay in DECAYS:
        found = {f"{multiple:g} s₀": results[kinetic(decay, multiple)] for multiple in MULTIPLES}
        row = {"c": decay, "s₀": averages.smallness_bound(decay), "2(1 − e^{−c})": -2.0 * np.expm1(-decay)}
        row |= {name: ", ".join(f"{turn:.3f}" for turn in one["turns"]) for name, one in found.items()}
        rows.append(row | {"expected, off by": max(map(misplaced, found.values()))})
    caption = "Where a rollout of 400 layers turns, by its strength; s₀ = min(3 − √3, 2(1 − e^{−c}))"
    yield Table.of(caption, rows)
    yield Table.of(
        "Even attention",
        (
            {
                "layers": cell.depth,
                "α": cell.mixing,
                "lowest, from the end": results[cell]["lowest_from_end"],
                "kept": results[cell]["kept"],
                "(1 − α)^H": (1.0 - cell.mixing) ** cell.depth,
                "form off by": results[cell]["off"],
            }
            for cell in EVEN
        ),
    )


def misplaced(result: Result) -> float:
    """The farthest that a turning point is from where the closed form has it; 1 if their numbers differ."""
    same = len(result["turns"]) == len(result["expected"])
    return float(max(np.abs(np.subtract(result["turns"], result["expected"])), default=0.0)) if same else 1.0


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import direct_label, new_figure

    places, figure = np.linspace(0.005, 1.0, 400), new_figure(7.2, 5.0)
    above, below = figure.subplots(2, 3)
    for ax, decay in zip(above, (0.5, 2.0, 5.0), strict=True):
        curves, dots = {}, []
        for multiple in (0.5, 0.9, 1.5, 2.0):
            strength = multiple * averages.smallness_bound(decay)
            curves[f"{multiple:g} s₀"] = averages.kinetic_density(places, strength, decay)
            dots.append(averages.turning_points(averages.poisson_hops(strength), decay))
        _draw_curves(ax, places, curves, dots, key=decay == 5.0)
        direct_label(ax, f"c = {decay:g}", "black")
    for ax, mixing in zip(below, MIXINGS, strict=True):
        hops = {f"{depth} layers": averages.hops_of([mixing] * depth) for depth in DEPTHS}
        curves = {name: averages.influence_density(places[:-1], one) for name, one in hops.items()}
        _draw_curves(ax, places[:-1], curves, key=mixing == MIXINGS[-1])
        direct_label(ax, f"c = 0, α = {mixing:g}", "black")
    return figure


def _draw_curves(ax: Any, positions: Any, curves: Mapping[str, Any], turns: Any = (), *, key: bool) -> None:
    """Influence per unit of the text by name, logarithmic, with a dot where each curve turns (`turns`)."""
    from posbias.reports.plots.style import LEGEND, SERIES, draw_lines, dress

    dress(ax, "position (1: the last token)", "influence (even spread = 1)")
    draw_lines(ax, {name: (positions, values) for name, values in curves.items()})
    for colour, values, own in zip(SERIES, curves.values(), turns, strict=False):
        ax.plot(own, np.interp(own, positions, values), "o", color=colour, markersize=3.0)
    ax.set_yscale("log")
    if key:
        ax.legend(**LEGEND)


EXTENSION = Extension(
    "averages",
    "When do causal averages with residual connections make a U, and where is influence lowest?",
    "docs/theory.md",
    CELLS,
    _tables,
    _draw,
    minutes=0.3,
)
