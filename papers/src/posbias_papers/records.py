"""Results that come along: one file of lines for each paper, a line being what a cell's own file would hold."""

import functools
import json
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError
from posbias.core.files import write_text
from posbias.core.spec import fingerprint
from posbias.core.store import Header, JsonCodec, Stored
from posbias.core.store.header import check
from posbias.core.store.json_files import verified
from posbias.core.store.store import StoredCell, stored_of


class Records:
    """The results in the file at `path`, which need not exist; of whatever version of posbias they are."""

    def __init__(self, path: Path):
        self.path = Path(path)

    def find(self, cell: StoredCell, at_least: int | None = None) -> Stored | None:
        """What is on record of a cell, with an amount of `at_least` if that is given; None if nothing is.

        Raises `SchemaError` for another schema, `DamagedError` for a line that is not whole.
        """
        line = self._lines.get((cell.kind, fingerprint(cell.specification)))
        if line is None:
            return None
        check(line, self.path, cell.kind, cell.schema)
        header, content = verified(line, self.path)
        if at_least is not None and (header.amount or 0) < at_least:
            return None
        return stored_of(cell, header, content, self.path)

    def put(self, header: Header, content: Any) -> None:
        """Put a result on record, in place of an earlier one of the same cell. Raises `OutputFileError`."""
        lines = {key: json.dumps(line, ensure_ascii=False) for key, line in self._lines.items()}
        lines[header.kind, header.fingerprint] = JsonCodec().text(header, content)[1]
        write_text(self.path, "".join(f"{line}\n" for _, line in sorted(lines.items())))

    def headers(self) -> tuple[Header, ...]:
        """What the lines say of themselves. Raises `DamagedError` for one that is not whole."""
        return _headers(self.path, self._written)

    @property
    def _lines(self) -> dict[tuple[str, str], dict[str, Any]]:
        return _read(self.path, self._written)

    @property
    def _written(self) -> int | None:
        return self.path.stat().st_mtime_ns if self.path.is_file() else None


@functools.lru_cache(maxsize=8)
def _headers(path: Path, written: int | None) -> tuple[Header, ...]:
    return tuple(verified(line, path)[0] for line in _read(path, written).values())


@functools.lru_cache(maxsize=8)
def _read(path: Path, written: int | None) -> dict[tuple[str, str], dict[str, Any]]:
    """The lines by kind and fingerprint, none of a file that was never written. Raises `InputFileError`."""
    if written is None:
        return {}
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {(line["posbias_kind"], line["fingerprint"]): line for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{path}: expected a cell's JSON in every line, got {error!r:.120}") from None
