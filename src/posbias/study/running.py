"""Running a study: what is there is taken, the rest is given to an engine, and every result written as it comes.

Whatever stops a run, finished cells stay: the same call goes on from there, and loses at most what was being
computed. A cell that fails stops no other; it is named when all the others are finished.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from posbias.errors import PosbiasError
from posbias.files import need_writable
from posbias.study.records import (
    Record,
    check_folder,
    clear_leftovers,
    find_record,
    index_of,
    save_manifest,
    save_record,
)
from posbias.study.value import Cell, Study
from posbias.study.verbs import gpus_of
from posbias.workers import Engine, InProcess, News, Task

Progress = Callable[[float, float], None]
Say = Callable[[str], None]
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
    progress: Progress | None = None,
    say: Say | None = None,
) -> Outcome:
    """Compute the cells of a study that `folder` does not have, and return all of them.

    `engine` does the work (default: here, one cell after another); what it does not decide is the results. `again`
    computes every cell anew and writes beside what is there. `progress` is called with (cells done, cells to do),
    in fractions of cells; `say` with what is worth a line, such as a damaged file.

    Raises `StudyError` when all others are finished, naming the cells that failed; `InputFileError` for a folder
    of another schema version, `OutputFileError` when a result cannot be written, KeyboardInterrupt on Ctrl-C,
    saying what is kept; and what the engine raises.
    """
    folder, say = Path(folder), say or (lambda line: None)
    engine = engine or InProcess()
    need_writable(folder)
    check_folder(folder)
    clear_leftovers(folder)
    found, places = _found(study, folder, say, aside=True)
    save_manifest(study, folder)
    cells = study.cells()
    wanted = [number for number, one in enumerate(found) if again or one is None]
    run = _Run(study, folder, wanted, found, places, type(engine).__name__, progress, say)
    try:
        if wanted:
            engine.run([_task(study, cells[number]) for number in wanted], run.hear)
    except KeyboardInterrupt:
        kept = sum(one is not None for one in found)
        raise KeyboardInterrupt(
            f"{kept} of {len(cells)} cells are kept in {folder}, the same command goes on from there"
        ) from None
    if run.failed:
        raise StudyError(_failures(run.failed, len(cells), folder))
    return Outcome(study, folder, tuple(found), len(wanted))


def status(study: Study, folder: str | os.PathLike[str], say: Say | None = None) -> Outcome:
    """What there is of a study in a folder; changes nothing. Damaged records are named to `say`.

    Raises `InputFileError` for a folder of another schema version.
    """
    folder = Path(folder)
    found, _ = _found(study, folder, say or (lambda line: None), aside=False)
    return Outcome(study, folder, tuple(found))


def _found(
    study: Study, folder: Path, say: Say, *, aside: bool
) -> tuple[list[Record | None], Mapping[str, list[Path]]]:
    """The record of every cell, and the files that each cell has."""
    check_folder(folder)
    index = index_of(folder)
    found = [
        find_record(index.get(cell.fingerprint[:12], []), cell, say, aside=aside) for cell in study.cells()
    ]
    return found, index_of(folder) if aside else index


def _task(study: Study, cell: Cell) -> Task:
    arguments = {"spec": cell.mapping, "seed": cell.seed, "cores": study.cores}
    gpus = gpus_of(cell.spec) if study.gpus is None else study.gpus
    return Task("posbias.study.verbs:perform", arguments, cell.label, study.cores, gpus)


@dataclass
class _Run:
    """What the cells tell of themselves: results become records, the rest one progress over all."""

    study: Study
    folder: Path
    wanted: list[int]
    found: list[Record | None]
    places: Mapping[str, list[Path]]
    engine: str
    progress: Progress | None
    say: Say
    shares: dict[int, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def hear(self, number: int, news: News) -> None:
        """News of task `number`, as `posbias.workers` has them."""
        cell = self.study.cells()[self.wanted[number]]
        if "say" in news:
            self.say(f"{cell.label}: {news['say']}")
            return
        if "failed" in news:
            self.failed[cell.label] = news["failed"]
            self.say(f"{cell.label}: failed: {news['failed']}")
        if "result" in news:
            made = news["result"]
            cost = made["cost"] | {"engine": self.engine, "attempts": news.get("attempts", 1)}
            taken = self.places.get(cell.fingerprint[:12], [])
            self.found[self.wanted[number]] = save_record(cell, made | {"cost": cost}, self.folder, taken)
        self.shares[number] = _share(news)
        if self.progress is not None:
            self.progress(round(sum(self.shares.values()), 2), len(self.wanted))


def _share(news: News) -> float:
    if "done" not in news:
        return 1.0
    # a cell is not done before its result is written
    return min(0.99, news["done"] / news["total"]) if news["total"] else 0.0


def _failures(failed: Mapping[str, str], count: int, folder: Path) -> str:
    named = [f"{label}: {message}" for label, message in list(failed.items())[:_NAMED]]
    more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    rest = (
        f"the other {count - len(failed)} are kept in {folder}" if count > len(failed) else "none is finished"
    )
    return f"{len(failed)} of {count} cells failed, {rest}; {'; '.join(named)}{more}"
