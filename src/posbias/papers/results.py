"""The JSON of a finished figure or table: read and checked, its state, and its numbers as rows."""

import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.claims import TOLD
from posbias.errors import InputFileError
from posbias.evidence import VERDICTS
from posbias.input_files import read_mapping
from posbias.store.header import VERSION

LONG = 16
"""Lists longer than this are curves, of which every position is a row."""


@dataclass(frozen=True)
class State:
    """Whether a study is made: its effort and time (ISO 8601) if so, its claims by verdict, or what is wrong."""

    made: bool = False
    effort: str = ""
    when: str = ""
    claims: Mapping[str, int] = field(default_factory=dict)
    damaged: str = ""

    @classmethod
    def of(cls, effort: str, path: Path, verdicts: Sequence[str]) -> "State":
        """The state of what `path` was written last for."""
        when = datetime.datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")
        return cls(True, effort, when, {kind: verdicts.count(kind) for kind in VERDICTS})

    @classmethod
    def joined(cls, states: "Sequence[State]") -> "State":
        """The state of parts as that of a whole, which is made when all of them are."""
        damaged = "; ".join(one.damaged for one in states if one.damaged)
        if not all(one.made for one in states):
            return cls(damaged=damaged)
        efforts = {one.effort for one in states}
        claims = {kind: sum(one.claims.get(kind, 0) for one in states) for kind in VERDICTS}
        return cls(True, efforts.pop() if len(efforts) == 1 else "", max(one.when for one in states), claims)

    def __str__(self) -> str:
        if self.damaged:
            return f"cannot be used: {self.damaged}"
        if not self.made:
            return "not made"
        told = ", ".join(f"{count} {kind}" for kind, count in self.claims.items() if count)
        return ", ".join(word for word in (f"made {self.when[:16]}", self.effort, told) if word)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "claims": dict(self.claims)}


def read_result(path: Path, name: str) -> dict[str, Any]:
    """The JSON of study `name`.

    Raises `InputFileError` when it is missing, damaged, of another study or another version of posbias (one that
    names none is of an earlier one), or holds no claims as `Judged.as_dict` spells them.
    """
    data = read_mapping(path)
    held = data.get("name", name)
    if held != name:
        raise InputFileError(f"{path}: holds {held!r}, {name!r} needed")
    if (version := data.get("version")) != VERSION:
        of = "an earlier posbias" if version is None else f"posbias {version}"
        raise InputFileError(f"{path}: of {of}, this is {VERSION}")
    claims = data.get("claims")
    if not isinstance(claims, list) or not all(isinstance(one, dict) for one in claims):
        raise InputFileError(f"{path}: holds no list of claims")
    for one in claims:
        missing = [key for key in TOLD if key not in one]
        if missing:
            raise InputFileError(
                f"{path}: written before claims had {', '.join(missing)}; it has to be made anew"
            )
        if one["verdict"] not in VERDICTS:
            raise InputFileError(f"{path}: verdict {one['verdict']!r}, one of {', '.join(VERDICTS)} needed")
        for key, least in (("number", -sys.float_info.max), ("se", 0.0)):
            if not _is_number(one[key], least):
                needed = "a finite number" + " ≥ 0" * (least == 0.0)
                raise InputFileError(f"{path}: {key} {one[key]!r} of a claim, {needed} or null needed")
    return data


def _is_number(told: Any, least: float) -> bool:
    """Whether it is null, or a number from `least` on that a float can be."""
    return told is None or (type(told) in (int, float) and least <= told <= sys.float_info.max)


def state_of(path: Path, name: str) -> State:
    """The state of the study whose JSON would be `path`."""
    if not path.exists():
        return State()
    try:
        data = read_result(path, name)
    except InputFileError as error:
        return State(damaged=str(error))
    return State.of(str(data.get("effort", "")), path, [one["verdict"] for one in data["claims"]])


def rows_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of a study's JSON as flat rows; column "table" says which list one is of, if there are more."""
    lists = {
        key: [one for one in held if isinstance(one, dict)]
        for key, held in data.items()
        if key not in ("claims", "effects", "tables") and isinstance(held, list)
    }
    lists = {key: records for key, records in lists.items() if records}
    several = len(lists) > 1
    return [
        ({"table": key} if several else {}) | row
        for key, records in lists.items()
        for record in records
        for row in _rows(record)
    ]


def _rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A record as one row, or, if it holds curves, one for every position."""
    flat: dict[str, Any] = {}
    curves: dict[str, list[Any]] = {}
    for key, value in _leaves(record, ""):
        (curves if isinstance(value, list) else flat)[key] = value
    if not curves:
        yield flat
        return
    for position in range(max(map(len, curves.values()))):
        here = {key: curve[position] for key, curve in curves.items() if position < len(curve)}
        yield flat | {"position": position} | here


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Names with dots and plain values; a long list of numbers stays whole."""
    if (
        isinstance(value, list)
        and len(value) > LONG
        and not any(isinstance(one, list | dict) for one in value)
    ):
        yield name, value
        return
    inner = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if inner is None:
        yield name, value
        return
    for key, one in inner:
        yield from _leaves(one, f"{name}.{key}" if name else str(key))
