"""Results that come along: one file of lines for each paper, a line being what a cell's own file would hold."""

import functools
import json
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError
from posbias.core.files import write_text
from posbias.core.formats import Header, JsonCodec
from posbias.core.store import Cell, Stored


class Records:
    """The results in the file at `path`, which need not exist; of whatever version of posbias they are."""

    def __init__(self, path: Path):
        self.path = Path(path)

    def find(self, cell: Cell, at_least: int | None = None) -> Stored | None:
        """What is on record of a cell, with an amount of `at_least` if that is given; None if nothing is.

        Raises `SchemaError` for another schema, `DamagedError` for a line that is not whole.
        """
        line = self._lines.get((cell.kind, cell.fingerprint))
        if line is None:
            return None
        header, content = _verified(line, self.path, cell.kind, cell.schema)
        if at_least is not None and (header.amount or 0) < at_least:
            return None
        return cell.restored(header, content, self.path)

    def put(self, header: Header, content: Any) -> None:
        """Put a result on record, in place of an earlier one of the same cell. Raises `OutputFileError`."""
        lines = {key: json.dumps(line, ensure_ascii=False) for key, line in self._lines.items()}
        lines[header.kind, header.fingerprint] = JsonCodec().line(header, content)
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
    lines = _read(path, written).values()
    return tuple(_verified(line, path, line["posbias_kind"], line.get("schema"))[0] for line in lines)


def _verified(line: dict[str, Any], path: Path, kind: str, schema: Any) -> tuple[Header, Any]:
    """Header and content of a line. Raises as `JsonCodec.read`."""
    keys = {name: held for name, held in line.items() if name != "content"}
    return JsonCodec().verified(keys, line.get("content"), path, kind, schema)


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
