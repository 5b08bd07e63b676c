"""A cell's record: one JSON file, written whole or not at all, that says everything that made it.

    OUT/study.json                                     the study as it was last run here
    OUT/cells/simulate-dimension16-seed0-1f0c….json       a cell: words, and twelve digits of its fingerprint

A record carries a checksum over all of it. One that is damaged is set aside under another name and computed again;
nothing is deleted. Several runs may share a folder: a file is written in OUT/.writing and appears by renaming, so
that the last writer wins, and what two write of one cell differs in cost alone.
"""

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError, OutputFileError
from posbias.store import dump_json, save_json
from posbias.study.quantities import Quantities
from posbias.study.value import Cell, Study, as_dict

VERSION = version("posbias")
SCHEMA = 1
"""The version of records and manifests that this posbias reads and writes."""
KIND, MANIFEST_KIND = "study_cell", "study"
MANIFEST, CELLS, WRITING = "study.json", "cells", ".writing"
_VERSION = importlib.metadata.version("posbias")
_NAME = re.compile(r"[^.].*-(?P<digits>[0-9a-f]{12})(-(?P<number>\d+))?\.json")


@dataclass(frozen=True, eq=False)
class Record:
    """A finished cell: what its file says, and the file."""

    data: Mapping[str, Any]
    path: Path

    @property
    def quantities(self) -> Quantities:
        """What the cell found."""
        return self.data["result"]["quantities"]

    @property
    def cost(self) -> Mapping[str, Any]:
        """Seconds, cores, bytes and when it was finished."""
        return self.data["cost"]


class DamagedError(InputFileError):
    """A record that is not what was written: cut short, altered, or of another cell."""


def cells_folder(folder: Path) -> Path:
    """Where a study's records are."""
    return folder / CELLS


def index_of(folder: Path) -> dict[str, list[Path]]:
    """The files of every cell in a folder by the twelve digits of their names, the newest of each first."""
    found: dict[str, list[tuple[int, Path]]] = {}
    place = cells_folder(folder)
    for path in sorted(place.iterdir()) if place.is_dir() else []:
        if match := _NAME.fullmatch(path.name):
            found.setdefault(match["digits"], []).append((int(match["number"] or 1), path))
    return {digits: [path for _, path in sorted(those, reverse=True)] for digits, those in found.items()}


def load_record(path: Path) -> Record:
    """Read a record. Raises `DamagedError` for one that is damaged, `InputFileError` for another schema version.

    The latter names the folder, both versions and what to do.
    """
    data = _read(path)
    _check_schema(data, path.parent.parent, path)
    if data.get("posbias_kind") != KIND:
        raise DamagedError(f"{path}: damaged, it is no record of a cell")
    if data.get("checksum") != checksum(data):
        raise DamagedError(f"{path}: damaged, its content does not match its checksum")
    return Record(data, path)


def find_record(paths: list[Path], cell: Cell, say: Any, *, aside: bool = True) -> Record | None:
    """The newest good record among the files of a cell; the others are named to `say`.

    Damaged ones are set aside (renamed) if `aside`. One of a posbias whose version differs in its first two
    numbers is not used. Raises `InputFileError` for another schema version.
    """
    for path in paths:
        try:
            record = load_record(path)
            if record.data["fingerprint"] != cell.fingerprint:
                raise DamagedError(f"{path}: damaged, it holds another cell than its name says")
        except FileNotFoundError:
            continue  # set aside by another run
        except DamagedError as error:
            kept = f"; kept as {set_aside(path).name}" if aside else ""
            say(f"{error}{kept}, computed again")
            continue
        made = record.data["versions"]["posbias"]
        if _main(made) == _main(VERSION):
            return record
        say(f"{path}: made by posbias {made}, this is {VERSION}; kept, computed again")
    return None


def set_aside(path: Path) -> Path:
    """Give a damaged file a name under which it is not looked for, and return that."""
    number = 1
    while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    with contextlib.suppress(FileNotFoundError):
        path.rename(target)
    return target


def save_record(cell: Cell, found: Mapping[str, Any], folder: Path, taken: list[Path]) -> Record:
    """Write the record of a cell from what `verbs.perform` returned, beside those in `taken`.

    Raises `OutputFileError` if it cannot be written; nothing is left then.
    """
    finished = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    data = {
        "posbias_kind": KIND,
        "schema": SCHEMA,
        "fingerprint": cell.fingerprint,
        "spec": cell.mapping,
        "seed": cell.seed,
        "versions": found["versions"],
        "result": found["result"],
        "cost": dict(found["cost"]) | {"finished": finished},
    }
    data = json.loads(dump_json(data))
    whole = {"posbias_kind": KIND, "schema": SCHEMA, "checksum": checksum(data), **data}
    return Record(whole, _write(whole, _free(cells_folder(folder) / f"{cell.name}.json", taken), folder))


def checksum(data: Mapping[str, Any]) -> str:
    """SHA-256 over everything but the checksum itself, in any order of keys."""
    rest = {key: held for key, held in data.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def save_manifest(study: Study, folder: Path) -> None:
    """Write what was run to `study.json`, unless it says so already. Raises `OutputFileError`."""
    data = {"posbias_kind": MANIFEST_KIND, "schema": SCHEMA, "study": as_dict(study)}
    data["cells"] = [cell.fingerprint for cell in study.cells()]
    path = folder / MANIFEST
    if not path.is_file() or path.read_bytes() != f"{dump_json(data)}\n".encode():
        _write(data, path, folder)


def clear_leftovers(folder: Path) -> None:
    """Remove what writers of this machine that were killed had begun; those that live keep theirs."""
    place = folder / WRITING
    for path in place.iterdir() if place.is_dir() else []:
        host, _, rest = path.name.lstrip(".").partition("~")
        number = rest.partition("~")[0]
        if host == platform.node() and number.isdigit() and not _lives(int(number)):
            path.unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    """Raise `InputFileError` for a folder whose manifest has another schema version; damage to it is no matter."""
    path = folder / MANIFEST
    if not path.is_file():
        return
    try:
        data = _read(path)
    except DamagedError:
        return  # it only says what was run; the records speak for themselves
    _check_schema(data, folder, path)


def _write(data: Mapping[str, Any], path: Path, folder: Path) -> Path:
    """Write a file apart, then move it to its place: a killed writer leaves nothing among the results."""
    written = save_json(data, folder / WRITING / f"{platform.node()}~{os.getpid()}~{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written.replace(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise OutputFileError(
            f"cannot write {path}: {error.strerror or error}; nothing was left there"
        ) from error
    return path


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: damaged, not valid JSON ({error})") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror}") from None
    if not isinstance(data, dict):
        raise DamagedError(f"{path}: damaged, no table of keys")
    return data


def _check_schema(data: Mapping[str, Any], folder: Path, path: Path) -> None:
    schema = data.get("schema")
    if data.get("posbias_kind") in (KIND, MANIFEST_KIND) and isinstance(schema, int) and schema != SCHEMA:
        raise InputFileError(
            f"{folder}: its results have schema version {schema} ({path.name}), this posbias reads and writes "
            f"{SCHEMA}; --out with another folder needed"
        )


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _main(version: str) -> list[str]:
    """The first two numbers of a version: those that say whether results may differ."""
    return version.split(".")[:2]


def _free(path: Path, taken: list[Path]) -> Path:
    """`path`, or beside files that are to stay the next of path-2, path-3, …"""
    numbers = [int(match["number"] or 1) for one in taken if (match := _NAME.fullmatch(one.name))]
    return path if not numbers else path.with_name(f"{path.stem}-{max(numbers) + 1}.json")
