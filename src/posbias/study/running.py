"""Running a study and judging its claims on the cells that are finished.

    OUT/study.json                                        the study as it was last run here
    OUT/cells/simulate-dimension16-seed0-1f0c….json       a cell

What is there is taken, the rest is given to an engine, and every result written as it comes. Whatever stops a run,
finished cells stay: the same call resumes it, and loses at most what was being computed. A cell that fails stops
no other; it is named when all the others are finished.

With two seeds or more, a number is the mean over seeds, and its error says how much it varies between them (but is
no less than what their own errors leave of it): seeds are independent, whatever cells with the same seed share. A
difference is taken seed by seed, for that reason. With one seed it has the error that the cell itself gives it; an
exact number holds or fails. A claim holds where every number is surely beyond its bound (Student's t at 5 %),
fails where one is surely on the other side, and is undecided otherwise: what a study calls too little to count is
in its bound.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from posbias.core.errors import InvalidValueError, PosbiasError
from posbias.core.files import clear_leftovers, need_writable
from posbias.core.formats import save_json
from posbias.core.progress import OnEvent
from posbias.core.running import Engine
from posbias.core.store import Store, Stored, compute
from posbias.core.sweeps import words_of
from posbias.profiles.claims import Evidence, Judged, deciding, judged, shares
from posbias.profiles.estimate import Estimate
from posbias.study.quantities import estimate_at
from posbias.study.value import Cell, StatedClaim, Study, as_dict, read_study

MANIFEST, CELLS = "study.json", "cells"
_NAMED = 3


class StudyError(PosbiasError):
    """Cells of a study failed; the others are finished and kept."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A study with the records of its cells in their order, None for a cell that has none.

    A record's `result` has "quantities" and "about"; `computed` is how many of them this run made.
    """

    study: Study
    folder: Path
    records: tuple[Stored | None, ...]
    computed: int = 0

    @property
    def finished(self) -> int:
        """How many cells have a record."""
        return sum(record is not None for record in self.records)

    @property
    def missing(self) -> tuple[Cell, ...]:
        """The cells without."""
        return tuple(
            cell for cell, one in zip(self.study.all_cells, self.records, strict=True) if one is None
        )

    @property
    def cost(self) -> dict[str, float]:
        """Seconds of all finished cells, of their cores, and the most bytes that any took."""
        costs = [record.header.cost for record in self.records if record is not None]
        return {
            "seconds": sum(one["seconds"] for one in costs),
            "cpu_seconds": sum(one["cpu_seconds"] for one in costs),
            "peak_memory": max((one["peak_memory"] for one in costs), default=0),
        }

    def seeds(self, combination: int) -> tuple[Stored | None, ...]:
        """The records of a combination, seed by seed."""
        count = len(self.study.seeds)
        return self.records[combination * count : (combination + 1) * count]


def run_study(
    study: Study | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    again: bool = False,
    on_event: OnEvent | None = None,
) -> Outcome:
    """Compute the cells of a study, or of its file, that `folder` does not have, and return all of them.

    `engine` does the work (default: here, one cell after another); it does not change the results. `again`
    computes every cell anew in new files. `on_event` counts cells, in fractions. Damaged files are logged.

    Raises `StudyError` when all others are finished, naming the cells that failed; `SchemaError` for a cell's file
    of another schema version, `OutputFileError` when a result cannot be written, `MissingPackageError` before any
    cell, KeyboardInterrupt on Ctrl-C, saying what is kept; and what the engine raises.
    """
    study, folder = study if isinstance(study, Study) else read_study(study), Path(folder)
    need_writable(folder)
    clear_leftovers(folder)
    cells = study.all_cells
    done = compute(cells, Store(folder / CELLS), engine=engine, again=again, on_event=on_event)
    save_json(as_dict(study), folder / MANIFEST)
    if done.failed:
        words = [f"{cell.label}: {failed.message}" for cell, failed in done.failed.items()]
        more = f"; and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
        raise StudyError(
            f"{len(words)} of {len(cells)} cells failed, the other {len(done.stored)} are kept in {folder}; "
            f"{'; '.join(words[:_NAMED])}{more}"
        )
    return Outcome(study, folder, tuple(done.stored[cell] for cell in cells), len(done.new))


def status(study: Study, folder: str | os.PathLike[str]) -> Outcome:
    """The cells of a study that are finished in a folder; changes nothing. Damaged files are logged.

    Raises `SchemaError` for a cell's file of another schema version.
    """
    store = Store(Path(folder) / CELLS)
    return Outcome(study, Path(folder), tuple(store.find(cell) for cell in study.all_cells))


def judge(outcome: Outcome) -> list[Judged]:
    """The study's claims on the cells that are finished; a claim about one that is not is undecided.

    It says what it is about (`Judged.quantity`) and its bound.
    """
    return [_judged(claim, outcome) for claim in outcome.study.claims]


def _judged(stated: StatedClaim, outcome: Outcome) -> Judged:
    evidence = [
        Evidence(_where(outcome, one, other), number, flaw)
        for one, other in stated.pairs(outcome.study.combinations)
        for number, flaw in _numbers(stated.quantity, outcome, one, other)
    ]
    verdict = judged(stated.claim, stated.test, evidence)
    return replace(verdict, why=_why(stated, verdict), quantity=stated.quantity, bound=stated.bound)


def _why(stated: StatedClaim, claim: Judged) -> str:
    """'0.6312 ± 0.0004 where model.dimension = 16, above 0.5 claimed'."""
    piece = deciding(claim.evidence)
    if piece.flaw:
        return f"{piece.where}: {piece.flaw}"
    kind, bound = stated.bound
    claimed = f"{bound:g} within {stated.tolerance:g}" if stated.tolerance else f"{bound:g}"
    return f"{shares(claim.evidence)}{claim.estimate} where {piece.where}, {kind} {claimed} claimed"


def combined(values: Sequence[Estimate]) -> Estimate:
    """One number from those of all seeds: their mean with its error; of one seed, that seed's own.

    The error is that between seeds, but no less than their own errors make it: a few seeds may agree by chance.
    An exact number that is the same for all is exact.
    """
    numbers = np.array([one.value for one in values])
    if len(values) == 1 or (all(one.exact for one in values) and (numbers == numbers[0]).all()):
        return values[0]
    estimate = Estimate.of_mean(numbers)
    own = math.sqrt(sum(one.se**2 for one in values if math.isfinite(one.se))) / len(values)
    return Estimate(estimate.value, max(estimate.se, own), estimate.n)


def _numbers(quantity: str, outcome: Outcome, one: int, other: int | None) -> list[tuple[Estimate, str]]:
    """The number of a combination, or the difference of two, and why it decides nothing.

    Exact numbers that differ from seed to seed are one each: a single counterexample refutes.
    """
    records = [outcome.seeds(place) for place in (one, other) if place is not None]
    if any(record is None for seeds in records for record in seeds):
        return [(Estimate(math.nan), "not finished")]
    try:
        mine, *theirs = [
            [estimate_at(record.result["quantities"], quantity) for record in seeds if record is not None]
            for seeds in records
        ]
    except InvalidValueError as error:
        return [(Estimate(math.nan), str(error))]
    if theirs:
        mine = [a - b for a, b in zip(mine, *theirs, strict=True)]
    apart = len({number.value for number in mine}) > 1 and all(number.exact for number in mine)
    return [(number, _flaw(number)) for number in (mine if apart else [combined(mine)])]


def _flaw(number: Estimate) -> str:
    if not math.isfinite(number.value):
        return "not defined there"
    return "" if number.known else "its error is not known with one seed, two needed"


def _where(outcome: Outcome, one: int, other: int | None) -> str:
    combinations: Sequence[tuple[Mapping[str, object], object]] = outcome.study.combinations
    chosen = combinations[one][0]
    words = words_of(chosen) or outcome.study.name
    if other is None:
        return words
    differs = {path: given for path, given in combinations[other][0].items() if chosen.get(path) != given}
    return f"{words} minus {words_of(differs)}"
