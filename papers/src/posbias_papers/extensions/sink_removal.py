"""The sink taken out of the one model that has one: does it take attention and give little?

The protocol is `docs/predictors.md`, "The sink taken out", committed before the runs. What each text gave is in
`sink_removal.jsonl` (`extensions/run_sink_removal.py` made it, `sink_trials` says how); here every
expectation is held against it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEVEL
from posbias.reports.pages import Table
from posbias_papers.extensions.predictor_trials import COLUMN, estimate
from posbias_papers.extensions.predictors import Cell, holm
from posbias_papers.extensions.sink_trials import KEPT_OUT, MASKED, PLAIN, STRONGEST, WAYS
from posbias_papers.study import Study

FILE = Path(__file__).with_name("sink_removal.jsonl")
RANK, PLACE = "spearman_without_first", "wasserstein_without_first"
GIVEN = 0.25
"""At most so much of what attention adds was to come from the sink, median over layers."""
Side = Literal["holds", "fails", "open"]


@dataclass(frozen=True)
class Expected:
    """That a number of a cell is at most `most`, or at least `least`; `path` is where the cell has it."""

    question: str
    path: tuple[str, ...]
    most: float = np.inf
    least: float = -np.inf

    def of(self, cell: Cell) -> Estimate:
        """The number."""
        return _at(cell, self.path)

    def side(self, cell: Cell) -> Side:
        """Whether the 95 % interval lies within the bounds, beyond one of them, or neither."""
        low, high = self.of(cell).interval
        if self.least <= low and high <= self.most:
            return "holds"
        return "fails" if low > self.most or high < self.least else "open"

    def __str__(self) -> str:
        ends = [f"at least {self.least:g}"] if np.isfinite(self.least) else []
        return " and ".join([*ends, *([f"at most {self.most:g}"] if np.isfinite(self.most) else [])])


@dataclass(frozen=True)
class Less:
    """That a difference of a cell is below zero (above, if `more`): decided by Holm over a question and score."""

    question: str
    path: tuple[str, ...]
    more: bool = False

    def of(self, cell: Cell) -> Estimate:
        """The difference."""
        return _at(cell, self.path)

    def p(self, cell: Cell) -> float:
        """The one-sided p-value against the expectation."""
        told = self.of(cell)
        return (told if self.more else -told).p_above()


_OTHERS = (MASKED, STRONGEST)
BOUNDS = (
    Expected("loss", ("loss", KEPT_OUT), most=0.1),
    Expected("influence", ("influence", KEPT_OUT, RANK), least=0.9),
    Expected("influence", ("influence", KEPT_OUT, PLACE), most=0.02),
    *(
        Expected(
            "rollouts",
            ("rollout_differences", f"{key}, {KEPT_OUT} - {key}, {PLAIN}, dropped", "wasserstein"),
            least=-0.02,
            most=0.02,
        )
        for key in COLUMN
    ),
    *(
        Expected(
            "rollouts",
            ("rollout_differences", f"{key}, {KEPT_OUT}, dropped - {key}, {KEPT_OUT}", "wasserstein"),
            least=-0.005,
        )
        for key in COLUMN
    ),
)
"""The bounds of the protocol."""
LESS = (
    *(Less("loss", ("loss_differences", f"{KEPT_OUT} - {way}")) for way in _OTHERS),
    *(
        Less("influence", ("influence_differences", f"{KEPT_OUT} - {way}", score), score == RANK)
        for score in (RANK, PLACE)
        for way in _OTHERS
    ),
    *(
        Less("rollouts", ("rollout_differences", f"{key}, {KEPT_OUT} - {key}, {PLAIN}", "wasserstein"))
        for key in COLUMN
    ),
)
"""The comparisons of the protocol."""


@cache
def records() -> tuple[Cell, ...]:
    """What is on record: texts, and what single layers cost (with `alone` in it)."""
    return tuple(json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines())


def cells() -> tuple[Cell, ...]:
    """What each text gave, in the order of the runs."""
    return tuple(one for one in records() if "alone" not in one)


def decided(among: Sequence[Cell]) -> dict[tuple[Less, int], Side]:
    """What becomes of each comparison in each cell (by its place), after Holm over a question and score."""
    found: dict[tuple[Less, int], Side] = {}
    families: dict[tuple[str, str], list[tuple[Less, int]]] = {}
    for one in LESS:
        for place in range(len(among)):
            families.setdefault((one.question, one.path[-1] if len(one.path) > 2 else ""), []).append(
                (one, place)
            )
    for pairs in families.values():
        sides = [one.p(among[place]) for one, place in pairs]
        adjusted = holm([min(1.0, 2.0 * min(p, 1.0 - p)) for p in sides])
        for pair, side, p in zip(pairs, sides, adjusted, strict=True):
            found[pair] = "open" if p >= LEVEL else "holds" if side < 0.5 else "fails"
    return found


def given(cell: Cell) -> Side:
    """Whether the first expectation holds: a median over layers, which has no error."""
    return "holds" if np.median(cell["given"]) < GIVEN else "fails"


def verdicts(among: Sequence[Cell]) -> dict[str, bool]:
    """Whether all that was expected of each question holds in every cell."""
    told = {"given": all(given(cell) == "holds" for cell in among)}
    sides = [(one.question, side) for (one, _), side in decided(among).items()]
    sides += [(one.question, one.side(cell)) for one in BOUNDS for cell in among]
    for question, side in sides:
        told[question] = told.get(question, True) and side == "holds"
    return told


def _at(cell: Mapping[str, Any], path: Sequence[str]) -> Estimate:
    found: Any = cell
    for name in path:
        found = found[name]
    told = estimate(found)
    return Estimate(float("nan"), float("nan"), 1) if told is None else told


def _tables(results: Any) -> Iterator[Table]:
    among = cells()
    texts = [cell["text"] for cell in among]
    sides = decided(among)
    rows = [
        ["given", "median over layers", f"at most {GIVEN:g}"]
        + [f"{np.median(cell['given']):.2f}: {given(cell)}" for cell in among]
    ]
    for one in BOUNDS:
        told = [f"{one.of(cell)}: {one.side(cell)}" for cell in among]
        rows.append([one.question, ", ".join(one.path[1:]), str(one), *told])
    for one in LESS:
        told = [f"{one.of(cell)}: {sides[one, place]}" for place, cell in enumerate(among)]
        rows.append([one.question, ", ".join(one.path[1:]), "above 0" if one.more else "below 0", *told])
    yield Table("What was expected, and what was found", ("asked", "of", "expected", *texts), rows)
    for cell in among:
        yield _by_way(cell)
        yield _rollouts(cell)
    yield from (_by_layer(cell) for cell in among)
    yield from (_alone(record) for record in records() if "alone" in record)


def _by_way(cell: Cell) -> Table:
    head = ("way", "share taken", "loss, and what is added", "Spearman", "Wasserstein", "share of position 0")
    rows = []
    for way in WAYS:
        scores = [
            str(_at(cell, ("influence", way, score))) if way != PLAIN else "" for score in (RANK, PLACE)
        ]
        share = f"{np.mean(cell['share'][way]):.3f}"
        rows.append([way, share, str(_at(cell, ("loss", way))), *scores, str(_at(cell, ("first", way)))])
    return Table(f"{cell['text']}: loss, and influence of positions ≥ 1 beside the plain one", head, rows)


def _rollouts(cell: Cell) -> Table:
    rows = [
        [name, *(str(_at(cell, ("rollouts", name, score))) for score in ("spearman", "wasserstein"))]
        for name in cell["rollouts"]
    ]
    return Table(
        f"{cell['text']}: rollouts against the influence in the same way, held out",
        ("rollout", "Spearman", "Wasserstein"),
        rows,
    )


def _by_layer(cell: Cell) -> Table:
    head = ("layer", "attention on token 0", "what it gives, of all that is added")
    rows = [
        [str(layer), f"{share:.3f}", f"{size:.3f}"]
        for layer, (share, size) in enumerate(zip(cell["share"][PLAIN], cell["given"], strict=True))
    ]
    return Table(f"{cell['text']}: by layer", head, rows)


def _alone(record: Cell) -> Table:
    costs, together = np.array(record["alone"]), np.array(record["together"])
    rows = [[str(layer), str(Estimate.of_mean(row))] for layer, row in enumerate(costs)]
    rows += [
        ["sum of these", str(Estimate.of_mean(costs.sum(axis=0)))],
        ["all at once", str(Estimate.of_mean(together))],
    ]
    return Table(f"Loss added by keeping it out ({record['prompts']} prompts)", ("in layer", "nats"), rows)


def _draw(results: Any) -> Any:
    from posbias.reports.plots.style import LEGEND, LINE, dress, new_figure, series

    cell = cells()[0]
    figure = new_figure(7.4, 2.8)
    left, right = figure.subplots(1, 2)
    dress(left, "layer", "share")
    dress(right, "position (from 1)", "gradient influence")
    shares = {
        "attention on token 0": cell["share"][PLAIN],
        "what it gives, of all that is added": cell["given"],
    }
    for place, (label, row) in enumerate(shares.items()):
        left.plot(row, label=label, linewidth=LINE, markersize=2.5, **series(place))
    for place, way in enumerate((PLAIN, KEPT_OUT, MASKED)):
        look = series(place) | {"marker": "none"}
        row = np.array(cell["profiles"][way])
        right.plot(np.flatnonzero(row) + 1, row[row > 0], label=way, linewidth=LINE, **look)
    right.set(xscale="log", yscale="log")
    for ax in (left, right):
        ax.legend(**LEGEND)
    return figure


STUDY = Study(
    "ours/sink_removal",
    "the sink taken out",
    "Does a sink take attention and give little, so that it can be kept from giving anything?",
    (),
    (),
    {"quick": 2, "full": 2},
    "runs",
    {"quick": 0.05, "full": 0.05},
    _tables,
    lambda results: {"cells": [*records()], "holds": verdicts(cells())},
    lambda results: (
        f"{len(cells())} texts, {cells()[0]['prompts']} prompts of {cells()[0]['tokens']} tokens each; the "
        "protocol was written before the runs, in docs/predictors.md"
    ),
    _draw,
)
"""The test as a study without cells of its own: nothing is measured for it anew."""
