"""Lines of CSV, JSON and JSON lines as records: columns with what stands in them, and where each stood.

A folder is read as one file: all files of these kinds in it, by name. Files of other people may hold anything, so
bytes, records and files are counted before they are kept.
"""

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.arguments import is_number, shortened
from posbias.errors import InputFileError
from posbias.input_files import LARGEST, json_lines, json_object, loads_json, need_ordinary, read_text

KINDS = (".csv", ".tsv", ".json", ".jsonl", ".jsonl.gz")
"""What the names of files of records end with."""
MOST_FILES = 10_000
"""Files that a folder may hold."""
MOST_RECORDS = 2**20
"""Records that a file or folder may hold."""
MOST = 1e100
"""Size of a number, so that squares of all of them have a sum."""


@dataclass(frozen=True)
class Record:
    """What stands in a line or an object, by column; `file` and `where` (file and line) are for errors."""

    columns: dict[str, Any]
    file: str
    where: str

    def label(self, column: str) -> str:
        """What tells the record from others, as text. Raises `InputFileError` where it is missing."""
        if column not in self.columns:
            raise InputFileError(f"{self.where}: {column} missing, which the first record has")
        return str(self.columns[column])

    def number(self, column: str) -> float:
        """A finite number, also one written as text; true is 1, false 0. Raises `InputFileError`."""
        given = self.columns.get(column)
        if isinstance(given, str):
            given = {"true": True, "false": False}.get(given.strip().lower(), given)
        try:
            number = float(given.strip().removesuffix("%")) if isinstance(given, str) else given
        except ValueError:
            number = None
        number = float(number) if isinstance(number, bool) else number
        if number is None or not is_number(number) or not math.isfinite(number):
            raise InputFileError(f"{self.where}: {column}: {shortened(given)} given, a finite number needed")
        if abs(number) > MOST:
            raise InputFileError(f"{self.where}: {column}: {number:g} given, at most {MOST:g} in size needed")
        return float(number)

    def text(self, column: str) -> str:
        """A text. Raises `InputFileError`."""
        given = self.columns.get(column)
        if not isinstance(given, str):
            raise InputFileError(f"{self.where}: {column}: {shortened(given)} given, a text needed")
        return given

    def texts(self, column: str) -> list[str]:
        """Texts, one at least. Raises `InputFileError`."""
        given = self.columns.get(column)
        if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
            raise InputFileError(f"{self.where}: {column}: {shortened(given)} given, a list of texts needed")
        return given


def plain_name(column: str) -> str:
    """A column's name in small letters, with one underscore for all that is no letter or digit."""
    return re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")


def is_records(path: Path) -> bool:
    """Whether a name is that of a file of records, or of a folder that holds one at least."""
    if path.is_dir():
        return any(one.name.lower().endswith(KINDS) for one in path.iterdir())
    return path.name.lower().endswith(KINDS)


def files_of(path: Path) -> list[Path]:
    """The file itself, or those of records in a folder, by name. Raises `InputFileError` for too many."""
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if one.name.lower().endswith(KINDS))
    if len(files) > MOST_FILES:
        raise InputFileError(f"{path}: {len(files):,} files given, at most {MOST_FILES:,} needed")
    return files


def read_records(path: Path) -> list[Record]:
    """All records of a file, or of the files in a folder. Raises `InputFileError` naming file and line."""
    records, size = [], 0
    for file in files_of(path):
        text = _text(file)
        size += len(text)
        if size > LARGEST:
            raise InputFileError(f"{path}: more than {LARGEST:,} characters given, fewer needed")
        name = file.name.lower()
        rows = _of_table(text, file) if name.endswith((".csv", ".tsv")) else _of_json(text, file)
        records += rows
        if len(records) > MOST_RECORDS:
            raise InputFileError(f"{path}: more than {MOST_RECORDS:,} records given, fewer needed")
    if not records:
        raise InputFileError(f"{path}: no record given, lines or objects with columns needed")
    return records


def _text(path: Path) -> str:
    """The text of a file, unpacked; never more than `LARGEST` bytes are."""
    if not path.name.lower().endswith(".gz"):
        return read_text(path, LARGEST)
    try:
        need_ordinary(path)
        with gzip.open(path) as file:
            # in pieces: to read so many bytes at once takes their room, however few there are
            held = b""
            while len(held) <= LARGEST and (more := file.read(2**20)):
                held += more
    except (OSError, EOFError, zlib.error) as error:
        raise InputFileError(f"{path}: cannot be unpacked: {error}") from None
    if len(held) > LARGEST:
        raise InputFileError(f"{path}: more than {LARGEST:,} bytes unpacked, fewer needed")
    try:
        return held.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path}: not UTF-8 text (byte {error.start})") from None


def _of_table(text: str, path: Path) -> Iterator[Record]:
    """Lines of a table whose first line names the columns, parted by tab, semicolon or comma."""
    first = text.partition("\n")[0]
    parted_by = next((sign for sign in "\t;" if sign in first), ",")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=parted_by)
    try:
        # pandas writes a column without a name first: the number of the row
        names = [plain_name(column) or f"unnamed_{place}" for place, column in enumerate(next(rows, []))]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputFileError(f"{path}: line 1: column {shortened(twice)} is given twice")
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            where = f"{path}: line {rows.line_num}"
            if len(row) != len(names):
                raise InputFileError(f"{where}: {len(row)} cells given, {len(names)} needed as in line 1")
            yield Record(dict(zip(names, row, strict=True)), path.name, where)
    except csv.Error as error:
        raise InputFileError(f"{path}: line {rows.line_num}: {error}") from None


def _of_json(text: str, path: Path) -> Iterator[Record]:
    """An object, a list of objects, or one object a line."""
    try:
        data = loads_json(text)
    except RecursionError:
        raise InputFileError(f"{path}: nested too deeply to be read") from None
    except ValueError as error:
        if not path.name.lower().endswith((".jsonl", ".gz")) and "\n{" not in text.strip():
            raise InputFileError(f"{path}: not valid JSON ({error})") from None
        yield from (Record(line.columns, path.name, line.where) for line in json_lines(text, path))
        return
    rows = data if isinstance(data, list) else [data]
    for number, row in enumerate(rows):
        where = str(path) if rows is not data else f"{path}: entry {number}"
        yield Record(json_object(row, where), path.name, where)


def named(records: Sequence[Record], columns: Sequence[str]) -> str | None:
    """The one of these columns that records have, or None. Raises `InputFileError` where there are several."""
    found = [column for column in columns if column in records[0].columns]
    if len(found) > 1:
        raise InputFileError(
            f"{records[0].where}: columns {', '.join(found)} given, one of them needed (they mean the same)"
        )
    return found[0] if found else None
