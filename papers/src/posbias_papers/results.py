"""The JSON of a finished figure or table: read and checked, its state, and its numbers as rows."""

import datetime
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError
from posbias.core.input_files import read_mapping
from posbias.core.store import VERSION, undamaged
from posbias.profiles.claims import TOLD
from posbias.profiles.evidence import VERDICTS

log = logging.getLogger("posbias.papers")


@dataclass(frozen=True, order=True)
class Basis:
    """What results rest on: iterations, networks and test sequences, or samples, that every cell has at least.

    They are of `cells`, of which `recorded` are recorded results. That of more effort is the greater one.
    """

    iterations: int = 0
    networks: int = 0
    sequences: int = 0
    cells: int = field(default=0, compare=False)
    recorded: int = field(default=0, compare=False)
    samples: int = 0

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Basis":
        """What a study's JSON says of it; nothing where it says nothing."""
        told = data.get("rests_on")
        return cls(**told) if isinstance(told, dict) else cls()

    def __str__(self) -> str:
        """'25,000 iterations × 3 networks × 10,000 test sequences'."""
        parts = (
            (self.iterations, "iterations"),
            (self.networks, "networks"),
            (self.sequences, "test sequences"),
            (self.samples, "samples"),
        )
        return " × ".join(f"{count:,} {unit}" for count, unit in parts if count)

    @property
    def source(self) -> str:
        """'recorded', 'made here', or '7 of 18 cells recorded'."""
        if 0 < self.recorded < self.cells:
            return f"{self.recorded} of {self.cells} cells recorded"
        return "recorded" if self.recorded else "made here"


@dataclass(frozen=True, eq=False)
class Recorded:
    """What is on record of a study's cells, at the greatest effort that all have, else at that which most have.

    `basis` says at what effort, how many cells the study has and how many are on record; `effort` is what a
    paper's `reproduce` takes; `data` reads what the study's JSON would hold, if all cells are there.
    """

    effort: Any
    basis: Basis
    when: str
    data: Callable[[], Mapping[str, Any]]

    @property
    def whole(self) -> bool:
        """Whether all cells are on record."""
        return self.basis.recorded == self.basis.cells

    def __str__(self) -> str:
        return f"{self.basis.recorded} of {self.basis.cells} cells recorded, {self.basis}"


@dataclass(frozen=True)
class State:
    """Whether a study is made: its effort and time (ISO 8601) if so, its claims by verdict, or what is wrong.

    `recorded` says what is on record where that is of more effort than what was made; effort, time and claims are
    then those of the recorded results, if these are whole.
    """

    made: bool = False
    effort: str = ""
    when: str = ""
    claims: Mapping[str, int] = field(default_factory=dict)
    damaged: str = ""
    recorded: str = ""

    @classmethod
    def of(cls, effort: str, path: Path, verdicts: Sequence[str]) -> "State":
        """The state of what `path` was written last for."""
        when = datetime.datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")
        return cls(True, effort, when, {kind: verdicts.count(kind) for kind in VERDICTS})

    @classmethod
    def joined(cls, states: "Sequence[State]") -> "State":
        """The state of parts as that of a whole, which is made when all of them are."""
        damaged = "; ".join(one.damaged for one in states if one.damaged)
        recorded = "; ".join(dict.fromkeys(one.recorded for one in states if one.recorded))
        if not all(one.made or one.claims for one in states):
            return cls(damaged=damaged, recorded=recorded)
        efforts, made = {one.effort for one in states}, all(one.made for one in states)
        claims = {kind: sum(one.claims.get(kind, 0) for one in states) for kind in VERDICTS}
        effort, when = efforts.pop() if len(efforts) == 1 else "", max(one.when for one in states)
        return cls(made, effort, when, claims, recorded=recorded)

    def __str__(self) -> str:
        if self.damaged:
            return f"cannot be used: {self.damaged}"
        told = ", ".join(f"{count} {kind}" for kind, count in self.claims.items() if count)
        if self.made:
            return ", ".join(word for word in (f"made {self.when[:16]}", self.effort, told) if word)
        if not self.recorded:
            return "not made"
        return ", ".join(word for word in ("" if told else "not made", self.recorded, told) if word)


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
    data = undamaged(data, path)
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


def best_result(path: Path, name: str, recorded: Recorded | None) -> Mapping[str, Any]:
    """The JSON of study `name`: what was made, or, of more effort, what is on record of all its cells.

    A made one that cannot be used is named to the log where there is a record. Raises as `read_result`, and for
    nothing made and not all recorded `InputFileError` that says how much is on record.
    """
    whole = recorded if recorded is not None and recorded.whole else None
    if not path.exists() and whole is None:
        some = f"; {recorded}" if recorded is not None else ""
        raise InputFileError(f"{path}: not made{some}")
    try:
        made = read_result(path, name) if path.exists() else None
    except InputFileError as error:
        if whole is None:
            raise
        log.warning("%s; not used", error)
        made = None
    if made is not None and (whole is None or Basis.of(made) >= whole.basis):
        return made
    assert whole is not None
    return whole.data()


def state_of(path: Path, name: str, recorded: Recorded | None = None) -> State:
    """The state of the study whose JSON would be `path`."""
    try:
        made = read_result(path, name) if path.exists() else None
    except InputFileError as error:
        return State(damaged=str(error))
    if recorded is not None and (made is None or (recorded.whole and recorded.basis > Basis.of(made))):
        if not recorded.whole:
            return State(recorded=str(recorded))
        verdicts = [one["verdict"] for one in recorded.data()["claims"]]
        claims = {kind: verdicts.count(kind) for kind in VERDICTS}
        effort = getattr(recorded.effort, "name", "full")
        return State(False, effort, recorded.when, claims, recorded=str(recorded))
    if made is None:
        return State()
    return State.of(str(made.get("effort", "")), path, [one["verdict"] for one in made["claims"]])
