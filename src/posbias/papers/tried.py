"""The numbered statements of all papers tried, and what that gave kept in one file.

`posbias.verify` tries; here each statement becomes a record (paper, instances, the slack of either reading, the
verdict on the printed one), kept in OUT/statements.json. A record serves whoever wants no more instances than it
has, as long as posbias and the statement's own words are the same.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError, InvalidValueError
from posbias.events import Event, OnEvent
from posbias.execution import Engine, Failed, InProcess, Last, Processes, Result, Task
from posbias.spec import read_mapping
from posbias.store import save_json
from posbias.store.header import VERSION

KIND = "statements"
INSTANCES = 200
"""Instances of a reading, unless told otherwise: about 20 seconds on two cores."""
FEW = 8
"""So many statements are tried sooner than worker processes have started."""
Record = dict[str, Any]


def try_statements(
    folder: Path,
    papers: Sequence[str] = (),
    *,
    instances: int = INSTANCES,
    seed: int = 0,
    engine: Engine | None = None,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Record]:
    """What trying the statements of some papers (none: all) gave, by key, from `folder` where it has that.

    What it has not is tried on `engine` (default: the cores here) and kept. `progress` hears (statements done, to
    do). Raises `InvalidValueError` for instances < 1, `OutputFileError` when the file cannot be written.
    """
    from posbias.verify import STATEMENTS

    if instances < 1:
        raise InvalidValueError(f"instances: {instances} given, an integer ≥ 1 needed")
    path, say = folder / f"{KIND}.json", say or (lambda line: None)
    kept: dict[str, Record] = {}
    if path.exists():
        try:
            kept = read_tried(path)
        except InputFileError as error:
            say(f"{error}; not used")
    wanted = [one for one in STATEMENTS if not papers or one.source in papers]
    found = {one.key: kept.get(one.key) for one in wanted}
    missing = [key for key, record in found.items() if record is None or record["asked"] < instances]
    failed: dict[str, str] = {}

    def hear(number: int, news: Event | Last) -> None:
        if isinstance(news, Result):
            found[missing[number]] = news.value
        elif isinstance(news, Failed):
            failed[missing[number]] = news.message
        if progress and not isinstance(news, Event):
            progress(sum(found[key] is not kept.get(key) for key in missing) + len(failed), len(missing))

    tasks = [
        Task("posbias.papers.tried:try_one", {"key": key, "instances": instances, "seed": seed}, key)
        for key in missing
    ]
    try:
        (engine or _engine(len(tasks))).run(tasks, hear)
    except KeyboardInterrupt:
        done = len(found) - sum(found[key] is kept.get(key) for key in missing)
        raise KeyboardInterrupt(
            f"{done} of {len(found)} statements are kept in {path}, the same command goes on from there"
        ) from None
    finally:
        if missing:
            whole = kept | {key: record for key, record in found.items() if record is not None}
            save_json({"posbias_kind": KIND, "version": VERSION, KIND: list(whole.values())}, path)
    for key, message in failed.items():
        say(f"{key} could not be tried: {message}")
    return {key: record for key, record in found.items() if record is not None}


def were_tried(folder: Path, paper: str, instances: int) -> bool:
    """Whether `folder` has all statements of a paper, tried on at least so many instances."""
    from posbias.verify import STATEMENTS

    path = folder / f"{KIND}.json"
    try:
        kept = read_tried(path) if path.exists() else {}
    except InputFileError:
        return False
    wanted = [one.key for one in STATEMENTS if one.source == paper]
    return all(key in kept and kept[key]["asked"] >= instances for key in wanted)


def try_one(key: str, instances: int, seed: int = 0, on_event: OnEvent | None = None) -> Record:
    """Try one statement; raises as `posbias.verify.verify`. A task of an engine (`posbias.execution`)."""
    from posbias.verify import STATEMENTS, select, verify

    (statement,) = select(STATEMENTS, [key])
    (finding,) = verify([statement], instances=instances, seed=seed)
    readings = {"published": finding.published, "amended": finding.amended}
    tried = {
        name: None
        if trial is None
        else {"instances": trial.instances, "slack": trial.slack, "survived": trial.survived}
        for name, trial in readings.items()
    }
    return {
        "key": key,
        "paper": statement.source,
        "asked": instances,
        "seed": seed,
        "verdict": "holds" if finding.published.survived else "fails",
        "instances": finding.published.instances,
        "words": _words(statement),
        **tried,
    }


def read_tried(path: Path) -> dict[str, Record]:
    """The records of a file by key, those left out whose statement now reads otherwise.

    Raises `InputFileError` when it is missing, damaged or of another version.
    """
    from posbias.verify import STATEMENTS

    data = read_mapping(path)
    if data.get("posbias_kind") != KIND:
        raise InputFileError(f"{path}: holds no statements; `posbias paper claims` writes them")
    if data.get("version") != VERSION:
        raise InputFileError(f"{path}: of posbias {data.get('version')}, this is {VERSION}")
    try:
        records = {one["key"]: one for one in data[KIND]}
        whole = all(_plausible(one) for one in records.values())
    except (KeyError, TypeError):
        records, whole = {}, False
    if not whole:
        raise InputFileError(f"{path}: damaged, its statements are not whole")
    return {one.key: records[one.key] for one in STATEMENTS if _same(one, records.get(one.key))}


def _engine(tasks: int) -> Engine:
    """The cores here, unless a process each costs more than it saves."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Processes(min(cores, tasks)) if cores > 1 and tasks > FEW else InProcess()


def _plausible(record: Record) -> bool:
    tried = record["published"]
    return (
        isinstance(tried["slack"], int | float)
        and isinstance(record["asked"], int)
        and record["verdict"] == ("holds" if tried["survived"] else "fails")
        and (record["amended"] is None or isinstance(record["amended"]["slack"], int | float))
    )


def _same(statement: Any, record: Record | None) -> bool:
    return record is not None and record["words"] == _words(statement)


def _words(statement: Any) -> str:
    """A checksum of what a statement and its amendment say."""
    said = [
        statement.published.claim,
        statement.amended and statement.amended.claim,
        statement.published.tolerance,
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
