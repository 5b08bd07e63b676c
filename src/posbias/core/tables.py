"""Tables as people and tools write them: CSV, TSV, JSON and JSON lines, also gzipped, as pandas DataFrames.

A row is a line or an object; its label in the index says where it stands ("FILE: line 3"), for errors. JSON may be
a list of objects, one object a line, results within an object, or any form in which pandas writes names of columns
(columns, index, records, split, table) or lists by column. Cells stay as they are written: text in CSV.
"""

import ast
import io
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError, PosbiasError, one_of, wrong
from posbias.core.files import once, read_text

PLAIN = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
KINDS = (*PLAIN, *(f"{kind}.gz" for kind in PLAIN))
"""What the names of files with tables end with."""
_MEANS = {"percent", "pct", "perc", "percentage", "mean", "avg", "average"}
YES = ("true", "yes", "pass", "passed", "correct", "right")
NO = ("false", "no", "fail", "failed", "incorrect", "wrong")
Table = Any
"""A DataFrame of pandas, whose own types say too little of columns to be checked."""
Column = Any
"""A Series of pandas."""
Placed = tuple[str, dict[str, Any]]
"""Where a row stands, and its cells."""


@dataclass(frozen=True)
class Names:
    """What columns may be called: `known` bare names tell columns from rows, and results from what is around them.

    Of what is around results, the values of names in `around` count for every row. `cells` are columns whose cells
    may be lists: an object with one of them is a row. `roles`: by role of a cell what its column may be called;
    `columns` says which it is, keys within others by points.
    """

    known: Collection[str] = ()
    cells: Collection[str] = ()
    around: Collection[str] = ()
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def count(self, columns: Collection[str]) -> int:
        """How many of these columns are known, or cells."""
        return sum(bare_name(column) in self.known or column in self.cells for column in columns)

    def of(self, row: dict[str, Any]) -> dict[str, Any]:
        """The cells of a row by role: of the first name that is there, however it is written; None for none."""
        held = {bare_name(key): cell for key, cell in row.items() if cell is not None}
        bare = {
            role: [name for name in map(bare_name, names) if name in held]
            for role, names in self.roles.items()
        }
        cells = {role: held[there[0]] if there else None for role, there in bare.items()}
        for role, column in self.columns.items():
            cell: Any = row
            for key in [column] if column in row else column.split("."):
                cell = cell.get(key) if isinstance(cell, dict) else None
            cells[one_of("columns", role, self.roles)] = cell
        return cells


def plain_name(column: Any) -> str:
    """A column's name in small letters: "Gold Position" and "goldPosition" are gold_position, "%" is percent."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", str(column)).replace("%", " percent ").lower()
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def bare_name(column: Any) -> str:
    """A plain name without underscores, and without words for a mean or per cent: "acc_percent" is acc."""
    words = plain_name(column).split("_")
    return "".join([word for word in words if word not in _MEANS] or words)


def unexpected(where: Any, what: str, got: Any) -> PosbiasError:
    """An error that says where what was expected, and what was got."""
    return wrong(where, what, got, kind=InputFileError)


def in_utf8(path: Path) -> Path:
    """A path for labels of rows, which are texts to pandas, as a name that is no UTF-8 is not."""
    return Path(os.fsencode(path).decode(errors="replace"))


def is_table(path: Path) -> bool:
    """Whether the name is that of a file with a table."""
    return path.name.lower().endswith(KINDS)


def is_csv(path: Path) -> bool:
    """Whether the name is that of a file of lines of cells."""
    return path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))


def read_table(path: Path, names: Names = Names()) -> Table:
    """The rows of a file. Raises `InputFileError` naming file and line."""
    text, path = read_text(path), in_utf8(path)
    return (
        _checked(_of_csv(text, path), path) if is_csv(path) else table_of(_of_json(text, path, names), path)
    )


def table_lines(path: Path, names: Names = Names(), *, lists: bool = False) -> Iterator[Placed]:
    """The rows of a table one by one, without empty cells, or of JSON lines, as all are that are no tables.

    `lists`: lists and objects that are written as text are read. Raises as `read_table`, also for no row.
    """
    text, named, where = read_text(path), in_utf8(path), ""
    by_line = not is_table(path) or {".jsonl", ".ndjson"} & set(path.suffixes)
    if is_csv(path):
        table = _checked(_of_csv(text, named), named)
        rows = zip(table.index, table.to_dict("records"), strict=True)
    else:
        rows = json_lines(text, path) if by_line else _of_json(text, path, names)
    for where, row in rows:
        row = {key: cell for key, cell in row.items() if by_line or (cell == cell and cell != "")}
        yield where, {key: parsed(cell) for key, cell in row.items()} if lists else row
    if not where:
        what = "one JSON object on each line" if by_line else "rows with named columns"
        raise InputFileError(f"{path}: expected {what}, got none")


def named_rows(path: Path, names: Names) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The rows of a table, lists in them read, each with its cells by role.

    Raises as `read_table`, and `InputFileError` for a row without a cell in one of the columns that are said.
    """
    for where, row in table_lines(path, names, lists=True):
        cells = names.of(row)
        for role, column in names.columns.items():
            if cells[role] is None:
                raise unexpected(f"{where}: {role}", f"a column {column}", ", ".join(map(str, row)))
        yield where, row, cells


def json_lines(text: str, path: str | os.PathLike[str]) -> Iterator[Placed]:
    """Lines of a text that hold a JSON object each, one after another; blank ones are left out.

    A line ends at "\\n": the other ends that Unicode knows may stand within a text. `path` is for errors. Raises
    `InputFileError` naming the line that is not valid JSON, is nested too deeply, or holds something else.
    """
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            row = json.loads(line, object_pairs_hook=once)
        except RecursionError:
            raise InputFileError(f"{where}: nested too deeply to be read") from None
        except ValueError as error:
            raise InputFileError(f"{where}: not valid JSON ({error})") from None
        yield where, _json_object(row, where)


def _json_object(row: Any, where: str) -> dict[str, Any]:
    """What was read from JSON, if that is an object. Raises `InputFileError` that begins with `where`."""
    if not isinstance(row, dict):
        each = isinstance(row, list) and bool(row) and isinstance(row[0], dict)
        raise unexpected(where, "a JSON object" + " on each line, not a list of them" * each, row)
    return row


def table_of(rows: Iterable[Placed], path: Path) -> Table:
    """Rows of a file as a table. Raises `InputFileError` for none, and for a column twice."""
    import pandas as pd

    placed = list(rows)
    table = pd.DataFrame([row for _, row in placed], [where for where, _ in placed], dtype=object)
    return _checked(table, path)


def _checked(table: Table, path: Path) -> Table:
    if table.empty:
        raise InputFileError(f"{path}: expected rows with named columns, got none")
    plain = [plain_name(column) for column in table.columns]
    if twice := {name for name in plain if name and plain.count(name) > 1}:
        raise unexpected(path, "each column once", ", ".join(sorted(twice)))
    return table


def number(cell: Any) -> float | None:
    """A finite number, also written as text, per cent or not, 0,5 as .5; `YES` is 1, `NO` 0. None for all else."""
    if isinstance(cell, str):
        text = cell.strip().lower().removesuffix("%").strip()
        if re.fullmatch(r"-?(?:0,\d+|\d+,\d{1,2}|\d+,\d{4,})", text):  # not 4,096, which may be of thousands
            text = text.replace(",", ".")
        cell = 1 if text in YES else 0 if text in NO else text
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def parsed(cell: Any) -> Any:
    """A list or object that is written as text, as JSON or as Python writes it; another cell as it is."""
    if isinstance(cell, str) and cell.strip()[:1] in ("[", "{"):
        for read in (json.loads, ast.literal_eval):
            try:
                return read(cell.strip())
            except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                continue
    return cell


def _of_csv(text: str, path: Path) -> Table:
    """Lines of cells, parted by tab, semicolon, bar or comma, or as a first line sep=SIGN says; then names."""
    import pandas as pd

    first, _, rest = text.partition("\n")
    said = re.fullmatch(r"(?i)sep=(.)\s*", first)
    parted_by = said[1] if said else next((sign for sign in "\t;|" if sign in first), ",")
    options = {"dtype": str, "header": None, "keep_default_na": False, "skip_blank_lines": False}
    try:
        held = pd.read_csv(io.StringIO(rest if said else text), sep=parted_by, **options)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except pd.errors.ParserError as error:
        raise InputFileError(f"{path}: {' '.join(str(error).split()).rpartition('C error: ')[2]}") from None
    held = held.fillna("").astype(object)
    # a cell in quotes may go over several lines
    lines = 1 + held.apply(lambda column: column.str.count("\n")).sum(axis=1)
    held.index = [f"{path}: line {line}" for line in 1 + bool(said) + lines.cumsum().shift(fill_value=0)]
    if parted_by == "|":  # of Markdown: bars around, and a line below the names
        held = held.apply(lambda column: column.str.strip()).loc[:, lambda cells: (cells != "").any()]
        held = held[~held.apply(lambda column: column.str.fullmatch(r":?-+:?")).all(axis=1)]
    held.columns = [name or f"unnamed_{place}" for place, name in enumerate(held.iloc[0])]
    return held[(held != "").any(axis=1)].iloc[1:]


def _of_json(text: str, path: Path, names: Names) -> Iterator[Placed]:
    if not {".jsonl", ".ndjson"} & set(path.suffixes):
        try:
            return _rows(json.loads(text, object_pairs_hook=once), str(path), names)
        except RecursionError:
            raise InputFileError(f"{path}: expected JSON, got one nested too deeply to be read") from None
        except ValueError as error:
            if "\n{" not in text.strip():
                raise InputFileError(f"{path}: expected JSON, got what is not valid ({error})") from None
    return json_lines(text, path)


def _rows(data: Any, where: str, names: Names) -> Iterator[Placed]:
    """The rows that a value of JSON holds."""
    import pandas as pd

    if isinstance(data, list):
        for place, row in enumerate(data):
            yield f"{where}: entry {place}", _json_object(row, f"{where}: entry {place}")
        return
    data = _json_object(data, where)
    lists = {name: held for name, held in data.items() if isinstance(held, list)}
    dicts = [held for held in data.values() if isinstance(held, dict)]
    if isinstance(data.get("columns"), list) and "data" in lists:
        rows = [dict(zip(data["columns"], row, strict=False)) for row in lists["data"]]
        yield from _rows(rows, where, names)
    elif isinstance(data.get("schema"), dict) and "data" in lists:
        yield from _rows(lists["data"], where, names)
    elif not data.keys().isdisjoint(names.cells):
        yield where, data
    elif len(sizes := {len(held) for name, held in lists.items() if names.count([name])}) == 1:
        plain = {name: held for name, held in data.items() if not isinstance(held, list | dict)}
        plain |= {name: held for name, held in lists.items() if len(held) in sizes}
        yield from _rows(pd.DataFrame(plain, dtype=object).to_dict("records"), where, names)
    elif len(dicts) == len(data) and _is_flat(dicts, names):
        columns = pd.DataFrame(data, dtype=object)
        columns = columns.T if names.count(dicts[0]) > names.count(data) else columns
        keyed = zip(columns.index, columns.to_dict("records"), strict=True)
        yield from _rows([{"key": key} | row for key, row in keyed], where, names)
    else:
        yield from _within(data, where, names)


def _is_flat(dicts: list[dict[str, Any]], names: Names) -> bool:
    """Whether objects have the same keys, with plain values, or the cells of rows."""
    if not dicts or any(held.keys() != dicts[0].keys() for held in dicts):
        return False
    plain = not any(isinstance(one, dict | list) for held in dicts for one in held.values())
    return plain or not dicts[0].keys().isdisjoint(names.cells)


def _within(data: dict[str, Any], where: str, names: Names) -> Iterator[Placed]:
    """The rows of the one value with known columns, with what counts for all of them; else the object itself."""
    found = {}
    for name, held in data.items():
        if isinstance(held, dict) or (isinstance(held, list) and held and isinstance(held[0], dict)):
            rows = list(_rows(held, f"{where}: {name}", names))
            if rows and names.count(rows[0][1]):
                found[name] = rows
    if several := {name: rows for name, rows in found.items() if len(rows) > 1}:
        found = several  # a single row among them is their summary
    if len(found) > 1:
        raise unexpected(where, "results under one key", ", ".join(found))
    around = {name: held for name, held in data.items() if bare_name(name) in names.around}
    for rows in found.values():
        yield from ((place, around | row) for place, row in rows)
    if not found:
        yield where, data
