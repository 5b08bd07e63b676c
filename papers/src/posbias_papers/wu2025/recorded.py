"""Recorded results: cells that were trained at greater effort than a laptop's quarter of an hour, and come along.

They lie in `records.jsonl`, a line each (`posbias_papers.wu2025.trained_records`). An effort that is on record
is a number of iterations, the same at all depths, with networks of the seeds from 0 on. What is on record is
read from the headers, without torch; the cells themselves are read when somebody asks for them.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from posbias_papers.records import Records
from posbias_papers.reproduction import content_of
from posbias_papers.study import Basis, Recorded, Study
from posbias_papers.wu2025.settings import Effort, Setting, effort_of, setting_of

if TYPE_CHECKING:
    from posbias_papers.wu2025.outcomes import Outcome
    from posbias_papers.wu2025.trained_records import Record

log = logging.getLogger("posbias.papers")
RECORDS = Records(Path(__file__).with_name("records.jsonl"))


@dataclass(frozen=True)
class Entry:
    """What a record's header says of a cell: test sequences, and when it was finished."""

    sequences: int
    finished: str


def entries() -> dict[tuple[int, int], dict[Setting, Entry]]:
    """What is on record, by iterations and number of networks. Raises `DamagedError` for no record."""
    found: dict[tuple[int, int], dict[Setting, Entry]] = defaultdict(dict)
    for header in RECORDS.headers():
        about, finished = header.specification, str(header.cost.get("finished", ""))
        # others are on record too, such as the embeddings of the authors' code
        usual = about["task"]["embedding"] == "variance" and about["task"]["middle"] is None
        if usual and about["seeds"] == [*range(len(about["seeds"]))]:
            effort = about["iterations"], len(about["seeds"])
            found[effort][setting_of(about)] = Entry(header.amount or 0, finished)
    return found


def recorded(study: Study) -> Recorded | None:
    """What is on record of a study's cells at the greatest effort that all have, else at that which most have.

    None where nothing is, or torch is not there to read it.
    """
    if find_spec("torch") is None:
        return None
    kept = [
        _at(study, *effort, there) for effort, there in entries().items() if {*study.cells} & there.keys()
    ]
    return max(
        kept, key=lambda one: (one.whole, 0 if one.whole else one.basis.recorded, one.basis), default=None
    )


def _at(study: Study, iterations: int, networks: int, known: dict[Setting, Entry]) -> Recorded:
    """What is on record of a study at one effort."""
    there = [known[setting] for setting in study.cells if setting in known]
    sequences = min(entry.sequences for entry in there)
    effort = effort_of(iterations, networks, sequences)

    def data() -> dict[str, object]:
        results = records(effort, study.cells) | compared_with(effort, study.cells)
        return content_of(study, study.table(results), effort.name)

    basis = Basis(iterations, networks, sequences, len(study.cells), len(there))
    return Recorded(effort, basis, max(entry.finished for entry in there), data)


def find_recorded(effort: Effort, setting: Setting) -> "Record | None":
    """The record of a setting, on at least as many test sequences as an effort asks for; None if there is none.

    Raises `InputFileError` for a damaged one.
    """
    if not RECORDS.headers():
        return None
    from posbias_papers.wu2025.trained_records import find_record

    return find_record(RECORDS, effort.experiment(setting), effort.sequences)


def records(effort: Effort, settings: Iterable[Setting]) -> "dict[Setting, Outcome]":
    """The outcomes of those of some settings that are on record. Raises as `find_recorded`."""
    from posbias_papers.wu2025.outcomes import outcome_of

    found = {setting: find_recorded(effort, setting) for setting in settings}
    return {setting: outcome_of(record.cell) for setting, record in found.items() if record is not None}


def compared_with(effort: Effort, settings: Iterable[Setting]) -> "dict[Setting, Outcome]":
    """What is on record of the settings that claims on some compare with: the same with the Gaussian mixture."""
    own = set(settings)
    return records(effort, {replace(setting, inputs="gaussian_mixture") for setting in own} - own)
