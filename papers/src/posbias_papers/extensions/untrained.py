"""Untrained decoders: is the U there before training, with and without positions? After Chowdhury 2026.

GPT-2 and Qwen2 from their configurations, random weights, at their depth, at a quarter of their width
(`posbias_papers.measurement.untrained`). What is measured is the gradient influence on the last token; it is held
against `posbias_papers.closed_forms.causal_averaging`: evenly spread attention of weight α in every layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.profiles.evidence import Above, Below, Evidence, mean
from posbias.profiles.profile import spearman, wasserstein
from posbias.reports.pages import Table
from posbias_papers.claims import Quantity, quantity
from posbias_papers.closed_forms.causal_averaging import hops_of, nearest_mixing, profile_of_averages
from posbias_papers.extensions.cells import Found, OwnCell, claims_after, each, own_study
from posbias_papers.study import Results

TOKENS, PROMPTS, NARROWER = 128, 2, 4
SEEDS = 2
"""The networks of the seeds below served to set the bounds of the claims."""
FAMILIES = ("gpt2", "qwen2")
NAMES = (
    "alpha",
    "spearman",
    "fitted",
    "others",
    "half",
    "of_lambda",
    "first",
    "middle",
    "before_last",
    "last",
)
"""Numbers of each network: fitted to the others, Wasserstein distances, and influence (even spread = 1)."""


@dataclass(frozen=True)
class UntrainedCell(OwnCell):
    """A family, and whether its encoding of positions is left in."""

    family: str
    positions: bool

    kind = "untrained_cell"

    @property
    def where(self) -> str:
        """'gpt2 without positions'."""
        return f"{self.family} {'with' if self.positions else 'without'} positions"

    def run(self, effort: int) -> Found:
        """Measure so many networks, each with a seed, on two prompts."""
        from posbias.core.plugins import bundled
        from posbias.measurement import measure
        from posbias_papers.measurement.untrained import untrained

        rows, mixing = [], []
        for seed in range(SEEDS, SEEDS + effort):
            network = untrained(self.family, NARROWER, TOKENS, seed, positions=self.positions)
            given: dict[str, Any] = {"tokens": TOKENS, "prompts": PROMPTS, "seed": seed}
            data = measure(network, tokenizer=bundled()["tiny-alibi"], **given)
            influence = data["influence"].values.mean(axis=0)
            rows.append((influence / influence.sum()).tolist())
            mixing.append(data["mixing"].values.mean(axis=0).tolist())
        return {"influence": rows, "mixing": mixing} | _agreement(np.array(rows), np.array(mixing))


def _even(alpha: float, depth: int) -> np.ndarray:
    return profile_of_averages(TOKENS, hops_of([alpha] * depth))


def _agreement(influence: np.ndarray, mixing: np.ndarray) -> dict[str, list[float]]:
    """Each network's scores: α fitted to the others, their mean, α = ½, λ measured; and its influence by part."""
    rows, depth = [], mixing.shape[1]
    for number, own in enumerate(influence):
        others = np.delete(influence, number, axis=0).mean(axis=0)
        alpha = nearest_mixing(others, depth)
        fitted, half = _even(alpha, depth), _even(0.5, depth)
        of_lambda = profile_of_averages(TOKENS, hops_of(mixing[number]))
        scores = [
            alpha,
            spearman(fitted, own),
            *(wasserstein(one, own) for one in (fitted, others, half, of_lambda)),
        ]
        parts = (own[:6], own[58:70], own[-13:-1], own[-1:])
        rows.append([*scores, *(TOKENS * part.mean() for part in parts)])
    return dict(zip(NAMES, np.transpose(rows).tolist(), strict=True))


CELLS = tuple(UntrainedCell(family, positions) for family in FAMILIES for positions in (True, False))


@quantity
def _apart(results: Results) -> Iterator[Evidence]:
    """Wasserstein distance of each network with positions and the same without."""
    for family in FAMILIES:
        pair = [np.array(results[UntrainedCell(family, one)]["influence"]) for one in (True, False)]
        yield mean(family, np.array([*map(wasserstein, *pair)]), draws="networks")


def _less(more: str, less: str) -> Quantity:
    """By how much the influence of one part is above that of another, in units of an even spread."""
    return each(CELLS, lambda found: np.subtract(found[more], found[less]).tolist())


def _score(name: str) -> Quantity:
    return each(CELLS, lambda found: found[name])


CLAIMS = claims_after(
    "untrained",
    "2603.10123",
    f"GPT-2 and Qwen2 of random weights at their depth, a quarter of their width, {TOKENS} tokens",
    f"networks of other seeds, {PROMPTS} prompts each",
    {
        1: ("The first 5 % of tokens have more than the middle tenth", _less("first", "middle"), Above()),
        2: ("The last token has more than a token of the middle tenth", _less("last", "middle"), Above()),
        3: (
            "Tokens just before the last have less than middle ones",
            _less("middle", "before_last"),
            Above(),
        ),
        4: ("Even attention ranks positions alike: Spearman above .9", _score("spearman"), Above(0.9, 0.0)),
        5: ("α fitted to other networks is within .1 (Wasserstein)", _score("fitted"), Below(0.1, 0.0)),
        6: ("α = ½ is off by more than .2 (Wasserstein)", _score("half"), Above(0.2, 0.0)),
        7: ("Positions change less than .02 (Wasserstein, same weights)", _apart(), Below(0.02, 0.0)),
    },
)


def _tables(results: Results) -> Iterator[Table]:
    from posbias.profiles.estimate import Estimate

    head = (
        "network",
        "α fitted",
        "Spearman",
        *(f"W, {one}" for one in ("α fitted", "others", "α = ½", "λ measured")),
    )
    head += ("first 5 %", "middle tenth", "tenth before the last", "last token")
    rows = [[cell.where, *(str(Estimate.of_mean(results[cell][name])) for name in NAMES)] for cell in CELLS]
    yield Table(
        "Agreement with even attention (W: Wasserstein), and influence in units of an even spread", head, rows
    )


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import direct_label, new_figure
    from posbias_papers.plots.position_curves import draw_position_curves

    figure, places = new_figure(7.2, 2.8), (np.arange(TOKENS) + 0.5) / TOKENS
    for ax, family in zip(figure.subplots(1, 2, sharey=True), FAMILIES, strict=True):
        found = {cell: results[cell] for cell in CELLS if cell.family == family}
        depth = len(next(iter(found.values()))["mixing"][0])
        alphas = (float(np.mean([one["alpha"] for one in found.values()])), 0.5)
        curves = {f"even attention, α = {alpha:.2g}": _even(alpha, depth) * TOKENS for alpha in alphas}
        curves |= {cell.where: np.mean(one["influence"], axis=0) * TOKENS for cell, one in found.items()}
        draw_position_curves(ax, places, curves)
        direct_label(ax, family, "black")
        ax.set_ylim(0.05, 30)
    return figure


STUDY = own_study(
    "untrained",
    "decoders before training",
    "Is the U there before training, is it that of even attention, and do positions matter?",
    CELLS,
    "2603.10123",
    claims=CLAIMS,
    effort={"quick": 4, "full": 16},
    unit="networks",
    minutes={"quick": 1.0, "full": 4.0},
    tables=_tables,
    draw=_draw,
    needs="torch",
    uses=(("chowdhury2026", "the question"), ("radford2019", "the architecture of GPT-2")),
)
