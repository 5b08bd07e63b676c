"""What a kind of file is; what columns are called (`columns.toml`), and how their cells read as places and scores.

Where two columns may hold the same and differ, neither is taken: `Choice.columns` says which.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, InvalidValueError, shortened
from posbias.core.tables import Column, Table, bare_name, number, plain_name, unexpected
from posbias.profiles.profile import Profile

NAMES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""What columns are called, by what they hold."""
WORDS = {word: float(place) for place, words in NAMES.pop("words").items() for word in words}
"""Words for places."""
RATES = NAMES["score"] + NAMES["share"] + NAMES["right"] + NAMES["count"]
SCALES = {"share": (0, 1), "percent": (0, 100), "1-10": (1, 10), "0-10": (0, 10)}
"""What scores count in: what becomes 0, and 1. ROUGE × 10 is 0-10."""
ROLES = ("place", "score", "total", "trial", "length", "model", "scale")
"""What `Choice.columns` may name; a scale is one of `SCALES`."""
_OPTION = re.compile(r"\(?[A-Za-z]\)?\.?")


@dataclass(frozen=True)
class Choice:
    """What of a file is wanted where it has several: a `model`, a context length ("all": their mean), columns.

    Where columns are `shared` by several files, one that has none of them is read by its own names.
    """

    model: str | None = None
    tokens: float | str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False

    def __post_init__(self):
        for name, column in self.columns.items():
            if name not in ROLES or (name == "scale" and column not in SCALES):
                raise InvalidValueError(
                    f"columns: expected one of {', '.join(ROLES)}, and as scale one of {', '.join(SCALES)}, got "
                    f"{shortened(f'{name}={column}')}"
                )

    def has(self, table: Table) -> bool:
        """Whether the columns that are named count for a table."""
        names = {*table.columns, *map(plain_name, table.columns)}
        return not self.shared or not names.isdisjoint(self.columns.values())


ANY = Choice()


def undecided(table: Table, what: str, example: str) -> InputFileError:
    """An error that says what is not decided, the columns of a file, and how to name them."""
    found = ", ".join(map(str, table.columns))
    found = found if len(found) <= 200 else f"{found[:197]}..."
    how = f"name them: --columns {example} (columns= in Python)"
    return InputFileError(f"{file_of(table)}: expected {what}; its columns are {found}; {how}")


def file_of(held: Table | Column) -> str:
    """The file of the first row."""
    return re.split(r": (?:line|entry) ", str(held.index[0]))[0]


def having(table: Table, names: Sequence[str]) -> list[str]:
    """The columns that are called one of these, in the order of the names."""
    wanted = [bare_name(name) for name in names]
    found = [column for column in table.columns if bare_name(column) in wanted]
    return sorted(found, key=lambda column: wanted.index(bare_name(column)))


def column_of(table: Table, role: str, names: Sequence[str], choice: Choice = ANY) -> str | None:
    """The column that is named for this, or the only one called so (or of several alike the first), or None.

    Raises `InputFileError` for several that differ.
    """
    if (named := choice.columns.get(role)) is not None and choice.has(table):
        if (column := next((one for one in table.columns if named in (one, plain_name(one))), None)) is None:
            raise undecided(table, f"a column {named}", f"{role}=COLUMN")
        return column
    found = having(table, names)
    if len({tuple(table[column].map(str)) for column in found}) > 1:
        raise undecided(
            table, f"one column for {role}, not {', '.join(found)}, which differ", f"{role}={found[0]}"
        )
    return found[0] if found else None


def numbers(column: Column) -> Float[np.ndarray, "row"]:
    """The numbers of a column; those with a sign for per cent are divided by 100.

    Raises `InputFileError` where there is none, and where some have the sign and others not.
    """
    found = column.map(number)
    if found.isna().any():
        at = int(found.isna().to_numpy().argmax())
        raise unexpected(f"{column.index[at]}: {column.name}", "a finite number", column.iloc[at])
    values, signs = found.to_numpy(dtype=np.float64), in_percent(column)
    bare = ~signs & (values != 0)
    if signs.any() and bare.any():
        at = int(bare.argmax())
        raise unexpected(f"{column.index[at]}: {column.name}", "per cent as in other rows", column.iloc[at])
    return values / 100 if signs.any() else values


def in_percent(column: Column) -> np.ndarray:
    """Which cells are written with a sign for per cent."""
    return column.map(lambda cell: isinstance(cell, str) and cell.strip().endswith("%")).to_numpy(bool)


def is_called(column: Column, *roles: str) -> bool:
    """Whether a column is called as those of one of these roles; "percent": whether its name says per cent."""
    if "percent" in roles and re.search(r"percent|_pct|_perc$", plain_name(column.name)):
        return True
    return any(bare_name(column.name) in map(bare_name, NAMES.get(role, ())) for role in roles)


def places_of(column: Column) -> tuple[Float[np.ndarray, "row"], bool]:
    """The places of a column, and whether they are shares of the context.

    Depths up to 1 are shares also where their column is called per cent: a curve over the first 1 % is none.
    Raises `InputFileError` for what is no place, letters (options) among them.
    """
    words = column.map(lambda cell: WORDS.get(str(cell).strip().lower()))
    if words.notna().all():
        return words.to_numpy(np.float64), True
    if column.map(lambda cell: isinstance(cell, str) and bool(_OPTION.fullmatch(cell.strip()))).all():
        what = "places, not letters of options (choices among options are not read)"
        raise unexpected(f"{file_of(column)}: {column.name}", what, column.iloc[0])
    values = numbers(column)
    if not (is_called(column, "depth", "percent") or in_percent(column).any()):
        return values, False
    if values.max() > 1 and not is_called(column, "percent") and values.max() <= 50:
        return values, False
    values = values / 100 if values.max() > 1 else values
    if values.min() < 0 or values.max() > 1:
        got = f"{values.min():.4g} to {values.max():.4g}"
        raise unexpected(f"{file_of(column)}: {column.name}", "depths from 0 to 1 or 100 %", got)
    return values, True


def scores_of(column: Column, choice: Choice, graded: bool = False) -> tuple[Float[np.ndarray, "row"], str]:
    """Scores as shares, and what scale they were taken to be in: what is written, said by `choice`, or called so.

    `graded`: of gkamradt's tester, whose scores are whole, of 1 to 10, or else ROUGE × 10. Raises `InputFileError`
    for no known scale.
    """
    values = numbers(column)
    scale = choice.columns.get("scale") or _scale(column, values, graded)
    low, high = SCALES.get(scale or "", (0, 0))
    if scale is None or values.min() < low or values.max() > high:
        raise InputFileError(
            f"{file_of(column)}: {column.name}: expected scores of a known scale, got {values.min():g} to "
            f"{values.max():g}; say which: --columns scale={'|'.join(SCALES)} (or total=COLUMN for counts)"
        )
    said = {"share": "shares", "percent": "per cent", "1-10": "whole scores of 1 to 10"}
    return (values - low) / (high - low), said.get(scale, f"scores of {scale}")


def _scale(column: Column, values: np.ndarray, graded: bool) -> str | None:
    """A scale by what is written; None where that does not decide."""
    low, high, whole = values.min(), values.max(), bool((values % 1 == 0).all())
    if in_percent(column).any():
        return "share"
    if is_called(column, "percent"):
        return "percent" if high > 1 or high == 0 else None
    if graded and high <= 10 and not (whole and low == 0 and high <= 1):
        return "1-10" if whole and low >= 1 else "0-10"
    if high <= 1:
        return "share"
    if is_called(column, "share"):
        return "percent"
    if is_called(column, "right", "count"):
        return None
    if whole and low >= 1 and high <= 10:
        return "1-10"
    return "percent" if high > 10 else None


Curves = dict[float | None, Profile]
"""A profile for each context length; under None where lengths are not known, or all are taken together."""


@dataclass(frozen=True)
class Format:
    """Files of one writer: `needs` lists columns that all have, each as the names that it may have.

    `read` makes profiles of the rows of a file or folder; their attribute "read_as" says in a line what they were
    taken for. `source` is the key of what to cite. With `apart` each file of a folder is a task of its own.
    """

    name: str
    needs: tuple[Sequence[str], ...]
    read: Callable[[Table, Path, Choice], Curves]
    source: str = ""
    apart: bool = False

    def missing(self, columns: Iterable[str]) -> list[str]:
        """What of `needs` a file with these columns lacks, by the first name of each."""
        found = {bare_name(column) for column in columns}
        return [names[0] for names in self.needs if found.isdisjoint(map(bare_name, names))]
