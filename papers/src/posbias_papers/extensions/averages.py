"""Influence of causal averages with residual connections: when is it a U, and where is it lowest?

After Duerinckx et al. 2026 (ALiBi of slope c/N, many small residual steps that add up to the strength s) and
Chowdhury 2026 (even attention of one weight α), whose texts were not at hand: nothing here is a verdict on them.
Rollouts are held against the closed form of `posbias_papers.closed_forms.causal_averaging`. The first of 100
positions are left out: few tokens stand for a density that has no bound there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import DecayBias
from posbias_papers.closed_forms import causal_averaging as averages
from posbias_papers.extensions.extension import Cell, Extension, Found, Results
from posbias_papers.pages import Table

FIRST = 0.01
LAYERS = 400
DECAYS, MULTIPLES = (0.5, 1.0, 2.0, 3.0, 5.0), (0.5, 0.9, 1.0, 1.25, 1.5, 2.0)
DEPTHS, MIXINGS = (6, 12, 24), (0.1, 0.2, 0.5)


@dataclass(frozen=True)
class KineticCell(Cell):
    """The decay c, and the strength s in multiples of min(3 − √3, 2(1 − e^{−c}))."""

    decay: float
    multiple: float
    tokens: int = 4000

    kind = "kinetic_cell"

    @property
    def strength(self) -> float:
        """s."""
        return self.multiple * averages.smallness_bound(self.decay)

    def compute(self, on_event: Any = None) -> Found:
        """Roll 400 layers out: where the profile turns, and how far it is from the closed form."""
        from posbias.theory.rollout.dispatch import influence

        step = self.strength / LAYERS
        mixing = ConstantMixing(step / (1.0 + step))
        layer = Layer(positional=DecayBias(self.decay / self.tokens))
        mass = influence(Architecture(LAYERS, (layer,), mixing), self.tokens).mass
        hops = averages.hops_of(mixing.values(LAYERS))
        off = np.abs(mass / averages.profile_of_averages(self.tokens, hops, self.decay) - 1.0)
        # the last token keeps its own
        turns = np.flatnonzero(np.diff(np.sign(np.diff(mass[:-1])))) + 1
        return {
            "off": float(off[int(FIRST * self.tokens) : -1].max()),
            "turns": [float(turn / self.tokens) for turn in turns],
            "expected": list(averages.turning_points(hops, self.decay)),
        }


@dataclass(frozen=True)
class EvenCell(Cell):
    """Even attention: layers and α."""

    depth: int
    mixing: float
    tokens: int = 200_000

    kind = "even_cell"

    def compute(self, on_event: Any = None) -> Found:
        """Roll the layers out: the lowest point, and how far it is from the closed form."""
        from posbias.theory.rollout.dispatch import influence

        mass = influence(Architecture(self.depth, mixing=ConstantMixing(self.mixing)), self.tokens).mass
        inner = slice(int(FIRST * self.tokens), self.tokens - 1)
        places = (np.arange(self.tokens) + 0.5)[inner] / self.tokens
        off = np.abs(mass[inner] * self.tokens / self.density(places) - 1.0)
        return {
            "off": float(off.max()),
            "lowest_from_end": int(self.tokens - 1 - mass.argmin()),
            "steps_up": int((np.diff(mass[:-1]) > 0.0).sum()),
            "kept": float(mass[-1] - mass[-2]),
        }

    def density(self, positions: np.ndarray) -> np.ndarray:
        """The closed form."""
        return averages.influence_density(positions, averages.hops_of([self.mixing] * self.depth))


KINETIC = tuple(KineticCell(decay, multiple) for decay in DECAYS for multiple in MULTIPLES)
EVEN = tuple(EvenCell(depth, mixing) for mixing in MIXINGS for depth in DEPTHS)


def _tables(results: Results) -> Iterator[Table]:
    head = ["c", "s₀", "2(1 − e^{−c})", *(f"{multiple:g} s₀" for multiple in MULTIPLES), "expected, off by"]
    rows = []
    for decay in DECAYS:
        cells = [KineticCell(decay, multiple) for multiple in MULTIPLES]
        turns = [", ".join(f"{turn:.3f}" for turn in results[cell]["turns"]) or "–" for cell in cells]
        limits = (averages.smallness_bound(decay), -2.0 * np.expm1(-decay))
        off = max(_misplaced(results[cell]) for cell in cells)
        rows.append([f"{decay:g}", *(f"{limit:.3f}" for limit in limits), *turns, f"{off:.4f}"])
    yield Table(
        "Where a rollout of 400 layers turns, by its strength; s₀ = min(3 − √3, 2(1 − e^{−c}))", head, rows
    )
    head = ["layers", "α", "lowest, from the end", "steps up before it", "kept", "(1 − α)^H", "form off by"]
    rows = [
        [
            str(cell.depth),
            f"{cell.mixing:g}",
            str(results[cell]["lowest_from_end"]),
            str(results[cell]["steps_up"]),
            f"{results[cell]['kept']:.2e}",
            f"{(1.0 - cell.mixing) ** cell.depth:.2e}",
            f"{results[cell]['off']:.1e}",
        ]
        for cell in EVEN
    ]
    yield Table("Even attention", head, rows)


def _misplaced(found: Found) -> float:
    """The farthest that a turning point is from where the closed form has it; 1 if their numbers differ."""
    same = len(found["turns"]) == len(found["expected"])
    return float(max(np.abs(np.subtract(found["turns"], found["expected"])), default=0.0)) if same else 1.0


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import direct_label, new_figure
    from posbias_papers.plots.position_curves import draw_position_curves

    places, figure = np.linspace(0.005, 1.0, 400), new_figure(7.2, 5.0)
    above, below = figure.subplots(2, 3)
    for ax, decay in zip(above, (0.5, 2.0, 5.0), strict=True):
        curves, dots = {}, []
        for multiple in (0.5, 0.9, 1.5, 2.0):
            strength = KineticCell(decay, multiple).strength
            curves[f"{multiple:g} s₀"] = averages.kinetic_density(places, strength, decay)
            dots.append(averages.turning_points(averages.poisson_hops(strength), decay))
        draw_position_curves(ax, places, curves, dots, key=decay == 5.0)
        direct_label(ax, f"c = {decay:g}", "black")
    for ax, mixing in zip(below, MIXINGS, strict=True):
        cells = [cell for cell in EVEN if cell.mixing == mixing]
        curves = {f"{cell.depth} layers": cell.density(places[:-1]) for cell in cells}
        draw_position_curves(ax, places[:-1], curves, key=mixing == MIXINGS[-1])
        direct_label(ax, f"c = 0, α = {mixing:g}", "black")
    return figure


EXTENSION = Extension(
    "averages",
    "When do causal averages with residual connections make a U, and where is influence lowest?",
    "docs/theory-since.md",
    (*KINETIC, *EVEN),
    _tables,
    _draw,
    minutes=0.3,
)
