"""Powers of (1 − α)I + αM, M the Cesàro matrix: where is the minimum of influence? After Chowdhury 2026.

M is causal attention that spreads evenly, α the weight of attention. H such layers give the position y the density
Σ_k C(H, k) α^k (1 − α)^{H−k} (−ln y)^{k−1}/(k − 1)! and leave the last token (1 − α)^H of itself
(`posbias_papers.closed_forms.causal_averaging`). Every term falls with y: the valley has no bottom in the middle,
its lowest point is the token before the last. The rollout is held against the closed form.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.profiles.evidence import Below, Near
from posbias.reports.pages import Table
from posbias.theory.architecture import Architecture
from posbias.theory.mixing import ConstantMixing
from posbias_papers.closed_forms.causal_averaging import hops_of, influence_density
from posbias_papers.extensions.cells import Found, OwnCell, claims_after, each, own_study
from posbias_papers.study import Results

FIRST = 0.01
"""Positions before this are left out: few tokens stand for a density that has no bound there."""
CLOSE = 0.001
"""How far, relatively, a rollout of 200,000 tokens may be from the closed form and be said to agree."""
BINS = 200
"""Points of a curve that are kept."""


@dataclass(frozen=True)
class BirthCell(OwnCell):
    """H and α."""

    depth: int
    mixing: float

    kind = "birth_cell"

    def density(self, positions: np.ndarray) -> np.ndarray:
        """The closed form."""
        return influence_density(positions, hops_of([self.mixing] * self.depth))

    def run(self, effort: int) -> Found:
        """Roll the layers out over so many tokens: the lowest point, and how far it is from the closed form."""
        from posbias.theory.rollout.dispatch import influence

        mass = influence(Architecture(self.depth, mixing=ConstantMixing(self.mixing)), effort).mass
        places = (np.arange(effort) + 0.5) / effort
        inner = slice(int(FIRST * effort), effort - 1)
        off = np.abs(mass[inner] * effort / self.density(places[inner]) - 1.0)
        shown = np.linspace(FIRST * effort, effort - 2, BINS).astype(int)
        return {
            "off": float(off.max()),
            "lowest_from_end": int(effort - 1 - mass.argmin()),
            "steps_up": int((np.diff(mass[:-1]) > 0.0).sum()),
            "kept": float(mass[-1] - mass[-2]),
            "middle": float(mass[effort // 2] / mass[-2]),
            "positions": places[shown].tolist(),
            "density": (mass[shown] * effort).tolist(),
        }


DEPTHS = (6, 12, 24)
HALF = tuple(BirthCell(depth, 0.5) for depth in DEPTHS)
CELLS = (*HALF, *(BirthCell(depth, mixing) for depth in DEPTHS for mixing in (0.1, 0.2)))
NONE, NEXT = Near(0.0, 0.5), Near(1.0, 0.5)
CLAIMS = claims_after(
    "birth",
    "2603.10123",
    "evenly spread causal attention, α = .1, .2 and .5, 6, 12 and 24 layers",
    "rollouts, exact for their number of tokens",
    {
        1: (
            f"The closed form is within {CLOSE:.1%} of the rollout at each position beyond {FIRST:.0%}",
            each(CELLS, lambda found: found["off"]),
            Below(CLOSE, 0.0),
        ),
        2: (
            "Influence falls from token to token up to the last but one: it rises nowhere between",
            each(CELLS, lambda found: found["steps_up"]),
            NONE,
        ),
        3: (
            "The lowest influence is that of the token before the last, not of one in the middle",
            each(CELLS, lambda found: found["lowest_from_end"]),
            NEXT,
        ),
    },
)


def _tables(results: Results) -> Iterator[Table]:
    head = (
        "layers",
        "α",
        "largest relative deviation",
        "kept by the last token",
        "(1 − α)^H",
        "middle / last but one",
    )
    rows = []
    for cell in CELLS:
        found = results[cell]
        kept = (found["kept"], (1.0 - cell.mixing) ** cell.depth)
        numbers = [
            f"{cell.mixing:g}",
            f"{found['off']:.1e}",
            *(f"{one:.2e}" for one in kept),
            f"{found['middle']:.2f}",
        ]
        rows.append([str(cell.depth), *numbers])
    yield Table("The rollout and the closed form", head, rows)


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import direct_label, new_figure
    from posbias_papers.plots.position_curves import draw_position_curves

    figure = new_figure(7.2, 2.6)
    for ax, mixing in zip(figure.subplots(1, 3), (0.1, 0.2, 0.5), strict=True):
        cells = [BirthCell(depth, mixing) for depth in DEPTHS]
        places = np.array(results[cells[0]]["positions"])
        curves = {f"{cell.depth} layers": cell.density(places) for cell in cells}
        rolled = [np.array(results[cell]["density"]) for cell in cells]
        draw_position_curves(ax, places, curves, measured=rolled)
        direct_label(ax, f"α = {mixing:g}", "black")
    return figure


STUDY = own_study(
    "birth",
    "even attention with residual connections",
    "Where along the text is influence lowest when attention spreads evenly and layers have residual connections?",
    CELLS,
    "2603.10123",
    claims=CLAIMS,
    effort={"quick": 200_000, "full": 1_000_000},
    unit="tokens",
    minutes={"quick": 0.2, "full": 1.0},
    tables=_tables,
    draw=_draw,
    uses=(("chowdhury2026", "the question, and the density as it is told"),),
)
