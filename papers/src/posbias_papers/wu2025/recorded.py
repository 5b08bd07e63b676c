"""Recorded results: cells that were trained at greater effort than a laptop's quarter of an hour, and come along.

Their records (`posbias_papers.wu2025.trained_records`) lie in `records.jsonl`, a line each. An effort that is on
record is a number of iterations, the same at all depths, with networks of the seeds from 0 on. Nothing is
read before somebody asks for it.
"""

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.spec import fingerprint
from posbias_papers.records import Records
from posbias_papers.reproduction import content_of
from posbias_papers.results import Basis, Recorded
from posbias_papers.study import Study
from posbias_papers.wu2025.outcomes import Outcome, outcome_of
from posbias_papers.wu2025.settings import Effort, Setting, effort_of

if TYPE_CHECKING:
    from posbias_papers.wu2025.trained_records import Record

log = logging.getLogger("posbias.papers")
RECORDS = Records(Path(__file__).with_name("records.jsonl"))


@dataclass(frozen=True)
class Entry:
    """What a record's header tells: iterations and seeds, test sequences, when the cell was finished."""

    iterations: int
    seeds: tuple[int, ...]
    sequences: int
    finished: str


def find_recorded(effort: Effort, setting: Setting) -> "Record | None":
    """The record of a setting, on at least as many test sequences as an effort asks for; None if there is none.

    Raises `InputFileError` for a damaged one.
    """
    if not entries(RECORDS):
        return None
    from posbias_papers.wu2025.trained_records import find_record

    return find_record(RECORDS, effort.experiment(setting), effort.sequences)


def records(effort: Effort, settings: Iterable[Setting]) -> "dict[Setting, Record]":
    """Those of some settings that are on record. Raises as `find_recorded`."""
    found = {setting: find_recorded(effort, setting) for setting in settings}
    return {setting: record for setting, record in found.items() if record is not None}


def beside(effort: Effort, settings: Iterable[Setting]) -> dict[Setting, Outcome]:
    """What is on record of the settings that claims on some compare with: the same with the Gaussian mixture."""
    own = set(settings)
    others = {replace(setting, inputs="gaussian_mixture") for setting in own} - own
    return {setting: outcome_of(record.cell) for setting, record in records(effort, others).items()}


def recorded(study: Study) -> Recorded | None:
    """What is on record of a study's cells at the greatest effort that all have, else at that which most have.

    None where nothing is, or torch is not there to read it.
    """
    known = entries(RECORDS)
    if known and not _readable():
        return None
    kept = [_at(study, effort, known) for effort in _efforts(known.values())]
    return max(
        (one for one in kept if one.basis.recorded),
        key=lambda one: (one.whole, one.basis.recorded if not one.whole else 0, one.basis),
        default=None,
    )


def entries(records: Records) -> Mapping[str, Entry]:
    """The records by the fingerprint of their experiment. Raises `DamagedError` for no record."""
    read = {}
    for header in records.headers():
        iterations, seeds = (header.specification[name] for name in ("iterations", "seeds"))
        finished = str(header.cost.get("finished", ""))
        read[header.fingerprint] = Entry(iterations, tuple(seeds), header.amount or 0, finished)
    return read


@functools.cache
def _readable() -> bool:
    """Whether records can be read here; said to the log once if not."""
    if find_spec("torch") is None:
        log.warning(
            "recorded results are not read: torch is not installed; run: pip install 'posbias[train]'"
        )
        return False
    return True


def _efforts(known: Iterable[Entry]) -> list[Effort]:
    """The efforts that records are of, each on no test sequences yet."""
    pairs = {
        (entry.iterations, len(entry.seeds))
        for entry in known
        if entry.seeds == tuple(range(len(entry.seeds)))
    }
    return [effort_of(*pair, sequences=0) for pair in sorted(pairs)]


def _at(study: Study, effort: Effort, known: Mapping[str, Entry]) -> Recorded:
    """What is on record of a study at one effort."""
    there = {
        setting: known[key]
        for setting in study.cells
        if (key := fingerprint(effort.experiment(setting))) in known
    }
    sequences = min((entry.sequences for entry in there.values()), default=0)
    iterations, networks, _ = effort.amount(study.cells)
    effort = effort_of(iterations, networks, sequences)
    basis = Basis(iterations, networks, sequences, len(study.cells), len(there))
    when = max((entry.finished for entry in there.values()), default="")
    return Recorded(effort, basis, when, lambda: _data(study, effort))


def _data(study: Study, effort: Effort) -> dict[str, Any]:
    """What the study's JSON would hold."""
    results = {setting: outcome_of(record.cell) for setting, record in records(effort, study.cells).items()}
    return content_of(study, results | beside(effort, study.cells), effort.name)
