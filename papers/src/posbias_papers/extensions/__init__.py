"""Studies of ours that belong to no paper: theory since the three papers, derived and held against computing.

    from posbias_papers.extensions import reproduce

    made = reproduce("kinetic", out="results/ours")
    print(*made.claims["kinetic"], sep="\n")

A study is a module with a STUDY and a name in `STUDIES`: cells that say how they are computed (`cells`), claims,
tables, a drawing. All claims are ours: where a paper gave the question, its text was not at hand, and no verdict
is one on it. `posbias paper run ours/NAME` makes it; cells are kept in OUT/cells. Some of language
models are on record (`records.jsonl`), as they take long: they are used unless `again`.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from posbias.core.arguments import whole
from posbias.core.events import OnEvent
from posbias.core.files import clear_leftovers, need_writable
from posbias.core.running import Task, run
from posbias.core.store import Store, Stored
from posbias_papers.extensions import (
    behaviour,
    birth,
    designed,
    jacobian,
    kinetic,
    ordering,
    parts,
    predictors,
    sink_removal,
    untrained,
    value_variance,
    window,
)
from posbias_papers.extensions.cells import OwnCell
from posbias_papers.records import Records
from posbias_papers.reproduction import Reproduction, write
from posbias_papers.study import Studies, Study

STUDIES = Studies(
    (
        kinetic.STUDY,
        birth.STUDY,
        untrained.STUDY,
        jacobian.STUDY,
        value_variance.STUDY,
        window.STUDY,
        designed.STUDY,
        predictors.STUDY,
        parts.STUDY,
        sink_removal.STUDY,
        behaviour.STUDY,
        ordering.STUDY,
    )
)
"""The studies by their names, in the order of docs/theory-since.md; then those of other pages."""
RECORDS = Records(Path(__file__).with_name("records.jsonl"))
"""Cells of language models that were measured once and come along: used like those of a folder of results."""


def reproduce(
    what: str | Iterable[str] = "all",
    *,
    out: str | os.PathLike[str],
    effort: int | None = None,
    again: bool = False,
    on_event: OnEvent | None = None,
) -> Reproduction:
    """Make some of `STUDIES`, or all, in the folder `out`: pictures, pages, JSON.

    `effort` is in the unit of each study (None: quick); cells that have it are used unless `again`. `on_event`
    counts cells. Raises `InvalidValueError` for an unknown name or an effort < 2, `OutputFileError` before any
    work if `out` cannot be written, `MissingPackageError` without matplotlib, or without torch where models are
    measured; KeyboardInterrupt on Ctrl-C: finished cells are kept.
    """
    from posbias.reports.plots.style import new_figure

    began, folder = time.monotonic(), Path(out)
    studies = [STUDIES[name] for name in STUDIES.find(what)]
    if effort is not None:
        whole("effort", effort, 2)
    need_writable(folder / "cells" / "cell.json")
    new_figure()
    clear_leftovers(folder)
    store = Store(folder / "cells")
    store.clear_leftovers()
    cells: dict[OwnCell, int] = {
        cell: effort or study.effort["quick"] for study in studies for cell in study.cells
    }
    there = {
        cell: None if again else store.find(cell, at_least=amount) or on_record(cell, amount)
        for cell, amount in cells.items()
    }
    results = {cell: stored.result for cell, stored in there.items() if stored is not None}
    new: dict[OwnCell, float] = {}

    def keep(cell: OwnCell, made: tuple[Any, float]) -> None:
        results[cell] = store.save(cell, made[0], amount=cells[cell]).result
        new[cell] = made[1]

    failed = run(
        {
            cell: Task(_found, {"cell": cell, "amount": amount}, cell.where)
            for cell, amount in cells.items()
            if cell not in results
        },
        keep,
        on_event=on_event,
        kept=lambda: f"{len(results)} of {len(cells)} cells are kept in {store.folder}",
    )
    for one in failed.values():
        raise one.error()
    made = {study.name: write(study, results, _words(study, effort), folder) for study in studies}
    return Reproduction(made, results, new, time.monotonic() - began)


def _found(cell: OwnCell, amount: int, on_event: OnEvent) -> tuple[Any, float]:
    """What a cell finds, and in how many seconds."""
    began = time.monotonic()
    return cell.run(amount), time.monotonic() - began


def on_record(cell: OwnCell, at_least: int | None = None) -> Stored | None:
    """The record of a cell that comes along, of an effort of `at_least`; None if there is none."""
    return RECORDS.find(cell, at_least)


def _words(study: Study, effort: int | None) -> str:
    """'quick', 'full', or the number with its unit."""
    amount = effort or study.effort["quick"]
    return next(
        (name for name in ("full", "quick") if amount == study.effort[name]), f"{amount:,} {study.unit}"
    )
