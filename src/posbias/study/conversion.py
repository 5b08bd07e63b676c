"""Results of posbias 0.1 in a folder: verified by their own checksums and written as files of today.

Nothing is deleted or overwritten. A cell's new file stands beside the old one, where the store finds it; a file
with a name of its own (study.json, a person's .nc) is kept as NAME.0.1, and the new one takes its name. What
cannot be read any more is named with the command that makes it again; a damaged cell is kept under another name
(`.damaged-1`), so that a run computes it anew. Trained cells and unfinished trainings are
converted by `posbias.training` when they are next asked for.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias import spec
from posbias.errors import DamagedError, InputFileError, InvalidValueError, SchemaError
from posbias.simulation.cell import MOMENTS, RecencyCell
from posbias.simulation.model import RecencyModel
from posbias.store import (
    Header,
    JsonCodec,
    Store,
    dump_json,
    open_netcdf,
    open_tensors,
    parse_json,
    save_measurement,
    save_retrieval,
    set_aside,
)
from posbias.store.header import VERSION
from posbias.store.netcdf_files import checksum_of_0_1
from posbias.study.value import Cell

_PAPERS = ("kim2026", "wu2025", "herasimchyk2026", "encodings")
_DIGITS = re.compile(r"(?P<words>[^.].*)-(?P<digits>[0-9a-f]{12})(-(?P<number>\d+))?")


@dataclass(frozen=True)
class Conversion:
    """What became of a file of 0.1: its new file `written`, or `todo`, the command that makes it again."""

    path: Path
    kind: str
    written: Path | None = None
    todo: str = ""

    def as_dict(self) -> dict[str, str | None]:
        """For JSON."""
        written = None if self.written is None else str(self.written)
        return {"file": str(self.path), "kind": self.kind, "written": written, "todo": self.todo}

    def __str__(self) -> str:
        if self.written is not None:
            return f"{self.path}: {self.kind}, now {self.written.name}"
        return f"{self.path}: {self.kind}; {self.todo}"


@dataclass(frozen=True)
class _StudyCell:
    """A cell of a study as its file of 0.1 names it; its content is left as it is."""

    specification: Mapping[str, Any]
    name: str

    kind, schema, codec = Cell.kind, Cell.schema, Cell.codec

    def to_content(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return result

    def from_content(self, header: Header, content: Mapping[str, Any]) -> Mapping[str, Any]:
        return content


def convert(folder: str | os.PathLike[str]) -> list[Conversion]:
    """Convert the files of 0.1 in `folder` and the folders in it; what is converted already is left out.

    Raises `InputFileError` for a folder that is not there, `OutputFileError` when a file cannot be written.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputFileError(f"{folder}: no such folder")
    conversions = []
    for path in sorted(filter(Path.is_file, folder.rglob("*")), key=_order):
        try:
            conversions += _convert(path)
        except (KeyError, TypeError, ValueError, InputFileError) as error:
            reason = " ".join(str(error).removeprefix(f"{path}: ").split())[:120]
            # where the store would look for a cell, it would be in the way of every run
            name = f" as {set_aside(path).name}" if _of_store(path) else ""
            conversions.append(Conversion(path, "damaged", todo=f"{reason}; kept{name}, not converted"))
    return conversions


def _order(path: Path) -> tuple[str, int, str]:
    """By folder; of a study's cell the newest file first, of simulations the one with the most samples last."""
    match = _DIGITS.fullmatch(path.stem)
    samples = re.search(r"-seed\d+-(\d+)$", path.stem)
    return str(path.parent), int(samples[1]) if samples else -int((match and match["number"]) or 1), path.name


def _of_store(path: Path) -> bool:
    return path.suffix == ".json" and _DIGITS.fullmatch(path.stem) is not None


def _convert(path: Path) -> Iterator[Conversion]:
    """What becomes of one file; nothing for one that is no result of 0.1."""
    if path.name.endswith(".partial.npz"):
        todo = "the command that was interrupted begins anew"
        yield Conversion(path, "an unfinished measurement", todo=todo)
    elif path.suffix == ".checkpoint" and "posbias" not in open_tensors(path)[0]:
        yield Conversion(path, "an unfinished training", todo="the command that was interrupted begins anew")
    elif path.suffix == ".nc":
        yield from _convert_arrays(path)
    elif path.suffix == ".json":
        data = parse_json(path)
        kind = data.get("posbias_kind")
        if kind in _JSON_KINDS and data.get("schema", 1) == 1:
            yield from _JSON_KINDS[kind](path, data)
        elif (
            ("name" in data and "claims" in data)
            or {"published", "cells"} <= {*data}
            or {"models", "note", "claims"} == {*data}
        ):
            paper = path.parent.name if path.parent.name in _PAPERS else "PAPER"
            what = f" {data['name']}" if "name" in data else ""
            todo = f"'posbias paper {paper}{what}' writes it again, from its cells"
            yield Conversion(path, "a page", todo=todo)


def _convert_arrays(path: Path) -> Iterator[Conversion]:
    dataset = open_netcdf(path)
    if "posbias_schema" in dataset.attrs:
        return
    kind = dataset.attrs.get("posbias_kind")
    checksum = dataset.attrs.pop("content_checksum", None)
    if checksum is not None and checksum != checksum_of_0_1(dataset):
        raise DamagedError(f"{path}: damaged, its content does not match its checksum")
    if kind == "cell":
        yield Conversion(path, "a trained cell", todo="the command that trained it converts it")
    elif kind in ("measurement", "retrieval"):
        save = save_measurement if kind == "measurement" else save_retrieval
        _replace(path, lambda place: save(dataset, place))
        yield Conversion(path, f"a {kind}", path)


def _convert_cell(path: Path, data: dict[str, Any]) -> Iterator[Conversion]:
    checksum = data.pop("checksum")
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    match = _DIGITS.fullmatch(path.stem)
    if match is None or hashlib.sha256(text.encode()).hexdigest() != checksum:
        raise DamagedError(f"{path}: damaged, its content does not match its checksum")
    cell = _StudyCell({"spec": data["spec"], "seed": data["seed"]}, match["words"])
    if spec.fingerprint(cell.specification)[:12] != match["digits"]:
        raise DamagedError(f"{path}: damaged, it holds another cell than its name says")
    store = Store(path.parent)
    with contextlib.suppress(SchemaError):  # which says that nothing newer is there
        if store.find(cell, look_only=True) is not None:
            return
    stored = store.save(cell, data["result"], data["cost"], versions=_versions(data["versions"]))
    yield Conversion(path, "a study's cell", stored.path)


def _convert_manifest(path: Path, data: dict[str, Any]) -> Iterator[Conversion]:
    header, content = Header("study", 2, data["study"]), {"cells": data["cells"]}
    _replace(path, lambda place: JsonCodec().write(place, header, content))
    yield Conversion(path, "what a study was run with", path)


def _convert_simulation(path: Path, data: dict[str, Any]) -> Iterator[Conversion]:
    checksum = data.pop("checksum")
    if hashlib.sha256(dump_json(data).encode()).hexdigest() != checksum:
        raise DamagedError(f"{path}: damaged, its content does not match its checksum")
    try:
        cell = RecencyCell(spec.decode(RecencyModel, data["model"]), data["seed"])
    except InvalidValueError as error:
        raise DamagedError(f"{path}: {error}") from None
    store, samples = Store(path.parent), int(data["samples"])
    if store.find(cell, at_least=samples, look_only=True) is not None:
        return
    content = {name: data[name] for name in ("engine", "samples", *MOMENTS)}
    result = cell.from_content(Header(cell.kind, cell.schema), content)
    versions = _versions({"posbias": data["version"]})
    stored = store.save(cell, result, versions=versions, amount=samples)
    yield Conversion(path, "a simulation", stored.path)


def _name_statements(path: Path, data: dict[str, Any]) -> Iterator[Conversion]:
    todo = f"'posbias paper claims --out {path.parent}' tries them again"
    yield Conversion(path, "statements as they were tried", todo=todo)


_JSON_KINDS: dict[str, Callable[[Path, dict[str, Any]], Iterator[Conversion]]] = {
    Cell.kind: _convert_cell,
    "study": _convert_manifest,
    RecencyCell.kind: _convert_simulation,
    "statements": _name_statements,
}


def _versions(versions: Mapping[str, str]) -> dict[str, str]:
    return {**versions, "converted": VERSION}


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file that takes the name of `path`, which is kept as NAME.0.1; at no moment is there none."""
    fresh, kept = path.with_name(f".{path.name}.converted"), path.with_name(f"{path.name}.0.1")
    if kept.exists():
        raise InputFileError(f"{path}: {kept.name} is there already; another name for it needed")
    write(fresh)
    os.link(path, kept)
    fresh.replace(path)
