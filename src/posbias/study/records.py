"""How the results of a study are kept: its cells in a store, and a manifest of what was last run.

    OUT/study.json                                        the study as it was last run here
    OUT/cells/simulate-dimension16-seed0-1f0c….json       a cell

Several runs may share a folder (`posbias.core.store.Store`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posbias.core.errors import DamagedError
from posbias.core.files import clear_leftovers
from posbias.core.store import Header, JsonCodec, Store, Stored
from posbias.study.quantities import Quantities
from posbias.study.value import Cell, Study, as_dict

MANIFEST, CELLS = "study.json", "cells"
_KIND, _SCHEMA = "study", 2


class Record(Stored):
    """A finished cell of a study, as the store has it."""

    @property
    def quantities(self) -> Quantities:
        """What the cell found."""
        return self.result["quantities"]

    @property
    def about(self) -> Mapping[str, Any]:
        """What else is worth keeping: words, checksums, a counterexample."""
        return self.result["about"]

    @property
    def cost(self) -> Mapping[str, Any]:
        """Seconds, cores, bytes and when it was finished."""
        return self.header.cost


def load_record(path: Path) -> Record:
    """Read a cell's file. Raises `DamagedError`, `SchemaError` or `InputFileError`."""
    header, content = JsonCodec().read(Path(path), Cell.kind, Cell.schema)
    return Record(content, header, Path(path))


def store_of(folder: Path) -> Store:
    """Where a study's cells are."""
    return Store(folder / CELLS)


def save_manifest(study: Study, folder: Path) -> None:
    """Write what was run to `study.json`, unless it says so already. Raises `OutputFileError`."""
    path, cells = folder / MANIFEST, {"cells": [cell.fingerprint for cell in study.cells()]}
    header = Header(_KIND, _SCHEMA, as_dict(study))
    kept = _read_manifest(path)
    if kept is None or (kept[0].fingerprint, kept[1]) != (header.fingerprint, cells):
        JsonCodec().write(path, header, cells)


def check_folder(folder: Path) -> None:
    """Raise `SchemaError` for a folder whose manifest has another schema version; damage to it is no matter."""
    _read_manifest(folder / MANIFEST)


def clear(folder: Path) -> None:
    """Remove what writers to a study's folder that were killed on this machine had begun."""
    clear_leftovers(folder)
    store_of(folder).clear_leftovers()


def _read_manifest(path: Path) -> tuple[Header, dict[str, Any]] | None:
    """The manifest; None for one that is damaged: it only says what was run, the cells speak for themselves."""
    try:
        return JsonCodec().read(path, _KIND, _SCHEMA) if path.is_file() else None
    except DamagedError:
        return None
