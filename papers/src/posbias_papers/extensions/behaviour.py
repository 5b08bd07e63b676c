"""Do measured influence and its predictors go with where a model finds things? The second half of the fair test.

The protocol is `docs/predictors.md`, committed before the runs. What each cell found is in `behaviour.jsonl`
(`run_behaviour` made it): here it is corrected for many comparisons, counted and told. A cell decides
something if the model can do the task and there are more than five places.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from posbias.comparison.predictors import PREDICTORS
from posbias.profiles.evidence import LEVEL
from posbias.reports.pages import Table
from posbias_papers.extensions.behaviour_trials import QUANTITIES
from posbias_papers.extensions.predictors import Cell, holm
from posbias_papers.study import Study

FILE = Path(__file__).with_name("behaviour.jsonl")
FEWEST = 6
"""With fewer places no rank correlation below 1 is significant."""
NAMES = {"measured": "measured influence", **{one.key: one.label for one in PREDICTORS}}


@cache
def cells() -> tuple[Cell, ...]:
    """What each cell found, in the order of the runs."""
    return tuple(json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines())


def decides(cell: Cell) -> bool:
    """Whether the model can do the task, and there are places enough to tell."""
    return bool(cell.get("able")) and cell["places"] >= FEWEST


def adjusted(name: str, quantity: str, among: Sequence[Cell]) -> dict[int, float]:
    """p of a correlation in each cell that decides, by the cell's place, after Holm over these."""
    found = {
        place: one["correlations"][name][quantity]
        for place, one in enumerate(among)
        if decides(one) and one["correlations"][name][quantity] is not None
    }
    return dict(zip(found, holm([told[3] for told in found.values()]), strict=True))


def _tables(results: Any) -> Iterator[Table]:
    among = cells()
    rows = []
    for name, label in NAMES.items():
        found = [adjusted(name, quantity, among) for quantity in QUANTITIES]
        rows.append([label, *(f"{sum(p < LEVEL for p in one.values())} of {len(one)}" for one in found)])
    yield Table(
        "Cells in which it goes with retrieval by place, after Holm's correction", ("", *QUANTITIES), rows
    )
    for quantity in QUANTITIES:
        corrected = {name: adjusted(name, quantity, among) for name in NAMES}
        yield Table(
            f"{quantity.capitalize()} by place: Spearman (95 %), p after Holm's correction",
            ("model", "wording", "places", "tokens", "can do the task", *NAMES.values()),
            [
                [
                    *_where(one),
                    *(
                        _told(one["correlations"][name][quantity], corrected[name].get(place))
                        for name in NAMES
                    ),
                ]
                for place, one in enumerate(among)
                if "correlations" in one
            ],
        )


def _where(one: Cell) -> list[str]:
    able = "yes" if one["able"] else "no"
    return [one["model"], one["wording"], str(one["places"]), str(one["length"]), able]


def _told(found: Sequence[float] | None, p: float | None) -> str:
    if found is None:
        return "–"
    value, low, high, _ = found
    text = f"{value:.2f} ({low:.2f} to {high:.2f})".replace("-", "−")
    return text if p is None else f"{text}, p = {p:.3f}"


def basis() -> str:
    """'6 cells, of which 2 decide something'."""
    return f"{len(cells())} cells, of which {sum(map(decides, cells()))} decide something"


def _data(results: Any) -> Mapping[str, Any]:
    return {"cells": [*cells()]}


STUDY = Study(
    "ours/behaviour",
    "influence and behaviour",
    "Do measured influence and its predictors go with where a model finds things?",
    (),
    (),
    {"quick": 2, "full": 2},
    "runs",
    {"quick": 0.05, "full": 0.05},
    _tables,
    _data,
    lambda results: f"{basis()}; the protocol was written before the runs, in docs/predictors.md",
)
"""The test as a study without cells of its own: nothing is measured for it anew."""
