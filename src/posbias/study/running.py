"""Running a study: what is there is taken, the rest is given to an engine, and every result written as it comes.

Whatever stops a run, finished cells stay: the same call goes on from there, and loses at most what was being
computed. A cell that fails stops no other; it is named when all the others are finished.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.core.errors import PosbiasError
from posbias.core.events import OnEvent
from posbias.core.files import need_writable
from posbias.core.lazy import need
from posbias.core.running import Engine, InProcess, Task, run
from posbias.core.store import Store
from posbias.study.performing import perform
from posbias.study.records import Record, check_folder, clear, save_manifest, store_of
from posbias.study.value import Cell, Study
from posbias.study.verbs import gpus_of

log = logging.getLogger(__name__)
_NAMED = 3


class StudyError(PosbiasError):
    """Cells of a study failed; the others are finished and kept."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A study with the records of its cells in their order, None for a cell that has none.

    `computed` is how many of them this run made.
    """

    study: Study
    folder: Path
    records: tuple[Record | None, ...]
    computed: int = 0

    @property
    def finished(self) -> int:
        """How many cells have a record."""
        return sum(record is not None for record in self.records)

    @property
    def missing(self) -> tuple[Cell, ...]:
        """The cells without."""
        return tuple(cell for cell, one in zip(self.study.cells(), self.records, strict=True) if one is None)

    @property
    def cost(self) -> dict[str, float]:
        """Seconds of all finished cells, of their cores, and the most bytes that any took."""
        costs = [record.cost for record in self.records if record is not None]
        return {
            "seconds": sum(one["seconds"] for one in costs),
            "cpu_seconds": sum(one["cpu_seconds"] for one in costs),
            "peak_memory": max((one["peak_memory"] for one in costs), default=0),
        }


def run_study(
    study: Study,
    folder: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    again: bool = False,
    on_event: OnEvent | None = None,
) -> Outcome:
    """Compute the cells of a study that `folder` does not have, and return all of them.

    `engine` does the work (default: here, one cell after another); what it does not decide is the results. `again`
    computes every cell anew and writes beside what is there. `on_event` counts cells, in fractions. Damaged
    files are named to the log.

    Raises `StudyError` when all others are finished, naming the cells that failed; `InputFileError` for a folder
    of another schema version, `OutputFileError` when a result cannot be written, `MissingPackageError` before any
    cell, KeyboardInterrupt on Ctrl-C, saying what is kept; and what the engine raises.
    """
    folder = Path(folder)
    engine = engine or InProcess()
    need_writable(folder)
    check_folder(folder)
    clear(folder)
    store = store_of(folder)
    found = _found(study, store)
    cells = study.cells()
    wanted = [number for number, one in enumerate(found) if again or one is None]
    if engine.shares_disk:
        # what is installed is installed for each of its processes
        packages = dict.fromkeys(package for number in wanted for package in cells[number].spec.packages)
        need(*packages, work="a cell of the study")
    save_manifest(study, folder)

    def keep(number: int, made: Mapping[str, Any]) -> None:
        cost = made["cost"] | {"engine": type(engine).__name__}
        stored = store.save(cells[number], made["result"], cost, versions=made["versions"])
        found[number] = Record(**vars(stored))

    failed = run(
        {number: _task(study, cells[number]) for number in wanted},
        keep,
        engine=engine,
        on_event=on_event,
        kept=lambda: f"{sum(one is not None for one in found)} of {len(cells)} cells are kept in {folder}",
    )
    if failed:
        labelled = {cells[number].label: one.message for number, one in failed.items()}
        raise StudyError(_failures(labelled, len(cells), folder))
    return Outcome(study, folder, tuple(found), len(wanted))


def status(study: Study, folder: str | os.PathLike[str]) -> Outcome:
    """What there is of a study in a folder; changes nothing. Damaged files are named to the log.

    Raises `SchemaError` for a folder of another schema version.
    """
    folder = Path(folder)
    check_folder(folder)
    return Outcome(study, folder, tuple(_found(study, store_of(folder))))


def _found(study: Study, store: Store) -> list[Record | None]:
    """The record of every cell."""
    found = [store.find(cell) for cell in study.cells()]
    return [None if stored is None else Record(**vars(stored)) for stored in found]


def _task(study: Study, cell: Cell) -> Task:
    arguments = {"spec": cell.mapping, "seed": cell.seed, "cores": study.cores}
    gpus = gpus_of(cell.spec) if study.gpus is None else study.gpus
    return Task(perform, arguments, cell.label, study.cores, gpus)


def _failures(failed: Mapping[str, str], count: int, folder: Path) -> str:
    named = [f"{label}: {message}" for label, message in list(failed.items())[:_NAMED]]
    more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    rest = (
        f"the other {count - len(failed)} are kept in {folder}" if count > len(failed) else "none is finished"
    )
    return f"{len(failed)} of {count} cells failed, {rest}; {'; '.join(named)}{more}"
