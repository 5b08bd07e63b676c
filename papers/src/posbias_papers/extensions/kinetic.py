"""The retrieval profile of causal averages that favour late keys: when is it a U? After Duerinckx et al. 2026.

Attention with ALiBi of slope c/N and small residual steps that add up to the strength s gives a position the
influence of `posbias_papers.closed_forms.causal_averaging.kinetic_density` on the last token. The paper, whose
text was not at hand, is said to prove a U with one interior minimum for s = t·a_n(β) up to min(3 − √3,
2(1 − e^{−c})). Here the rollout of 400 such layers is held against the closed form and its turning points.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.profiles.evidence import Below, Near
from posbias.reports.pages import Table
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import DecayBias
from posbias_papers.claims import Quantity
from posbias_papers.closed_forms import causal_averaging as averages
from posbias_papers.extensions.cells import Found, OwnCell, claims_after, each, own_study
from posbias_papers.study import Results

LAYERS = 400
FIRST = 0.01
"""Positions before this are left out: few tokens stand for a density that has no bound there."""
CLOSE = 0.01
"""How far, relatively, a rollout may be from the closed form and be said to agree."""


@dataclass(frozen=True)
class KineticCell(OwnCell):
    """The decay c, and the strength s in multiples of the smallness condition."""

    decay: float
    multiple: float

    kind = "kinetic_cell"

    @property
    def strength(self) -> float:
        """s."""
        return self.multiple * averages.smallness_bound(self.decay)

    def run(self, effort: int) -> Found:
        """Roll 400 layers out over so many tokens: where the profile turns, and how far it is from the theory."""
        from posbias.theory.rollout.dispatch import influence

        step = self.strength / LAYERS
        mixing = ConstantMixing(step / (1.0 + step))
        layer = Layer(positional=DecayBias(self.decay / effort))
        mass = influence(Architecture(LAYERS, (layer,), mixing), effort).mass
        hops = averages.hops_of(mixing.values(LAYERS))
        off = np.abs(mass / averages.profile_of_averages(effort, hops, self.decay) - 1.0)
        # the last token keeps its own
        turns = np.flatnonzero(np.diff(np.sign(np.diff(mass[:-1])))) + 1
        return {
            "off": float(off[int(FIRST * effort) : -1].max()),
            "turns": [float(turn / effort) for turn in turns],
            "expected": list(averages.turning_points(hops, self.decay)),
            "ends_rising": averages.ends_rising(hops, self.decay),
        }


DECAYS = (0.5, 1.0, 2.0, 3.0, 5.0)
MULTIPLES = (0.5, 0.9, 1.0, 1.25, 1.5, 2.0)
CELLS = tuple(KineticCell(decay, multiple) for decay in DECAYS for multiple in MULTIPLES)


def _count(found: Found) -> int:
    return len(found["turns"])


def _misplaced(found: Found) -> float:
    """The farthest that a turning point is from where the theory of so many layers has it."""
    same = len(found["turns"]) == len(found["expected"])
    return max(np.abs(np.subtract(found["turns"], found["expected"])), default=0.0) if same else 1.0


ONE, SMALL = Near(1.0, 0.5), Below(0.002, 0.0)


def _turn(among: Callable[[Any, Found], bool]) -> Quantity:
    return each(CELLS, _count, among)


CLAIMS = claims_after(
    "kinetic",
    "2605.09213",
    f"ALiBi of slope c/N without content, c from 0.5 to 5; {LAYERS} layers whose mixing adds up to s",
    f"rollouts of {len(CELLS)} architectures, exact for their number of tokens",
    {
        1: (
            f"The closed form is within {CLOSE:.0%} of the rollout at each position beyond {FIRST:.0%}",
            each(CELLS, lambda found: found["off"]),
            Below(CLOSE, 0.0),
        ),
        2: (
            "Below the condition s = min(3 − √3, 2(1 − e^{−c})) the profile turns once",
            _turn(lambda cell, found: cell.multiple < 1.0),
            ONE,
        ),
        3: (
            "Beyond it the profile still turns once while P(2)/P(1) < 1 − e^{−c} (s < 2(1 − e^{−c}) in many "
            "layers): the condition is sufficient, not necessary",
            _turn(lambda cell, found: cell.multiple > 1.0 and found["ends_rising"]),
            ONE,
        ),
        4: (
            "Where P(2)/P(1) > 1 − e^{−c} the profile ends in a fall: it turns not at all, or twice",
            each(CELLS, lambda found: abs(_count(found) - 1), lambda cell, found: not found["ends_rising"]),
            ONE,
        ),
        5: ("It turns where the closed form does, within .002 of the text", each(CELLS, _misplaced), SMALL),
    },
)


def _tables(results: Results) -> Iterator[Table]:
    head = ("c", "the condition", "2(1 − e^{−c})", *(f"{multiple:g} ×" for multiple in MULTIPLES))
    rows = []
    for decay in DECAYS:
        turns = [results[KineticCell(decay, multiple)]["turns"] for multiple in MULTIPLES]
        words = [", ".join(f"{turn:.3f}" for turn in each) or "–" for each in turns]
        limits = (averages.smallness_bound(decay), -2.0 * np.expm1(-decay))
        rows.append([f"{decay:g}", *(f"{limit:.3f}" for limit in limits), *words])
    yield Table(
        "Where the rollout turns (a minimum, then a maximum), by multiples of the condition", head, rows
    )


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import direct_label, new_figure
    from posbias_papers.plots.position_curves import draw_position_curves

    places, figure = np.linspace(0.005, 1.0, 400), new_figure(7.2, 2.6)
    for ax, decay in zip(figure.subplots(1, 3, sharey=True), (0.5, 2.0, 5.0), strict=True):
        curves, dots = {}, []
        for multiple in (0.5, 0.9, 1.5, 2.0):
            strength = KineticCell(decay, multiple).strength
            curves[f"{multiple:g} × the condition"] = averages.kinetic_density(places, strength, decay)
            dots.append(averages.turning_points(averages.poisson_hops(strength), decay))
        draw_position_curves(ax, places, curves, dots, key=decay == 5.0)
        direct_label(ax, f"c = {decay:g}", "black")
    return figure


STUDY = own_study(
    "kinetic",
    "when a preference for late keys makes a U",
    "Up to which depth does a slope of ALiBi that spans the text give a U with one minimum?",
    CELLS,
    "2605.09213",
    claims=CLAIMS,
    effort={"quick": 4000, "full": 100_000},
    unit="tokens",
    minutes={"quick": 0.1, "full": 1.0},
    tables=_tables,
    draw=_draw,
    uses=(("duerinckx2026", "the question, and its smallness condition as told"), ("press2022", "ALiBi")),
)
