"""A figure, table or section of a paper: what it is made of, how it is drawn and judged, and what is known of it.

    from posbias_papers.registry import STUDIES

    study = STUDIES["wu2025/fig2"]
    print(study.question, study.quick, study.state("results"), sep="\n")

The paper's package computes the cells and makes their tidy table; everything else about a study is a function of
that table. `posbias_papers.run` judges, draws and writes it: NAME.json holds its claims, which `State` counts.
"""

import datetime
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError, InvalidValueError, nearest, shortened
from posbias.core.formats import VERSION, parse_json, undamaged
from posbias.core.sources import cite
from posbias.profiles.claims import ALWAYS, ELSEWHERE, VERDICTS, Claim, Judged, judged
from posbias_papers.pages import Table

log = logging.getLogger("posbias.papers")
__all__ = ["ELSEWHERE", "HERE", "Basis", "Cost", "Expected", "Recorded", "State", "Studies", "Study"]
MACHINE = "2 cores, x86-64"
"""What costs are of."""
HERE = "the models and texts measured here, which are not the paper's"
"""The scope of what is judged of them."""
PICTURES = ("svg", "png")
Places = Mapping[str, Path]
"""Folders of papers that lie elsewhere than in the folder of results."""


@dataclass(frozen=True)
class Expected:
    """A number that a paper prints: of what, its value, how far ours may lie from it, and where it stands."""

    what: str
    value: float
    tolerance: float
    where: str


@dataclass(frozen=True)
class Cost:
    """What a study takes when nothing is there yet: cells, minutes, and the machine these are of."""

    cells: int
    minutes: float
    machine: str = MACHINE

    def __str__(self) -> str:
        return f"{self.cells} cells, {minutes_text(self.minutes)}"


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
        return cls(**data.get("rests_on", {}))

    def __str__(self) -> str:
        """'25,000 iterations × 3 networks × 10,000 test sequences'."""
        units = {"iterations": "iterations", "networks": "networks", "sequences": "test sequences"}
        counts = ((getattr(self, name), unit) for name, unit in (units | {"samples": "samples"}).items())
        return " × ".join(f"{count:,} {unit}" for count, unit in counts if count)

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
    paper's `reproduce` takes; `data` makes what the study's JSON would hold, if all cells are there.
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
        if not self.basis.cells:
            return "nothing to compute"
        cells = f"{self.basis.recorded} of {self.basis.cells} cells recorded"
        return ", ".join(part for part in (cells, str(self.basis)) if part)


@dataclass(frozen=True)
class State:
    """Whether a study is made: its effort and time (ISO 8601) if so, its claims by verdict, or what is wrong.

    `recorded` says what is on record where that is of more effort than what was made.
    """

    made: bool = False
    effort: str = ""
    when: str = ""
    claims: Mapping[str, int] = field(default_factory=dict)
    damaged: str = ""
    recorded: str = ""

    @classmethod
    def of(cls, effort: str, path: Path, verdicts: Sequence[str], recorded: str = "") -> "State":
        """The state of what `path` was written last for."""
        when = datetime.datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")
        counts = {kind: verdicts.count(kind) for kind in VERDICTS}
        return cls(True, effort, when, counts, recorded=recorded)

    @classmethod
    def joined(cls, states: "Sequence[State]") -> "State":
        """The state of parts as that of a whole, which is made when all of them are."""
        damaged = "; ".join(one.damaged for one in states if one.damaged)
        recorded = "; ".join(dict.fromkeys(one.recorded for one in states if one.recorded))
        if not all(one.made for one in states):
            return cls(damaged=damaged, recorded=recorded)
        efforts = {one.effort for one in states}
        claims = {kind: sum(one.claims[kind] for one in states) for kind in VERDICTS}
        effort = efforts.pop() if len(efforts) == 1 else ""
        return cls(True, effort, max(one.when for one in states), claims, recorded=recorded)

    def __str__(self) -> str:
        if self.damaged:
            return f"cannot be used: {self.damaged}"
        counts = [f"{count} {kind}" for kind, count in self.claims.items() if count]
        words = (
            [f"made {self.when[:16]}", self.effort, *counts]
            if self.made
            else []
            if self.recorded
            else ["not made"]
        )
        return ", ".join(word for word in (*words, self.recorded) if word)


def judge_each(claims: Iterable[Claim], table: Any) -> Iterator[Judged]:
    """Those claims that have evidence in a study's table, judged."""
    for claim in claims:
        if claim.quantity and (evidence := tuple(claim.quantity(table))):
            yield judged(claim, evidence)


@dataclass(frozen=True, eq=False)
class Study:
    """A question about some cells, and what a paper says of the answer.

    `key` is PAPER/NAME; `effort` what is spent on each cell at the efforts quick and full, counted in `unit`
    (`of_number` gives what is spent where the effort is a number of these), and `minutes` what that takes on two
    cores. `table` makes the tidy table of what the cells found; the rest are functions of it: `tables` and
    `note` of the page, `data` of the JSON, `judge` the verdicts, and `draw(table, caption)` the figure, if there
    is one. `needs` is "" (nothing beyond posbias[report]), "torch" or "models" (a language model). `parts` are
    the studies of a number that is the caption of others; `uses` are sources beyond the paper and those of its
    cells, each with what is used of it. `recorded` says what is on record of the cells; None where nothing is.

    Where cells are asked for at each run `cells` are none, and `counts` says how many there are at each effort
    by default; `options` are those of its command, and `missing` says why there is nothing to show. `expected`
    are the numbers that the paper prints of it. `decided_by` says what would decide claims that are left open.
    """

    key: str
    title: str
    question: str
    cells: tuple[Any, ...]
    claims: tuple[Claim, ...]
    effort: Mapping[str, Any]
    unit: str
    minutes: Mapping[str, float]
    tables: Callable[[Any], Iterable[Table]] = lambda table: ()
    data: Callable[[Any], Mapping[str, Any]] = lambda table: {}
    note: Callable[[Any], str] = lambda table: ""
    draw: Callable[..., Any] | None = None
    needs: str = ""
    parts: "tuple[Study, ...]" = ()
    uses: tuple[tuple[str, str], ...] = ()
    table: Callable[[Any], Any] = lambda results: results
    judge: "Callable[[Study, Any], Iterable[Judged]]" = lambda study, table: judge_each(study.claims, table)
    recorded: "Callable[[Study], Recorded | None]" = lambda study: None
    of_number: Callable[[int], Any] = lambda number: number
    counts: Mapping[str, int] | None = None
    options: str = ""
    missing: Callable[[Any], str] = lambda results: ""
    expected: tuple[Expected, ...] = ()
    decided_by: str = ""

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.key.partition("/")[0]

    @property
    def source(self) -> str:
        """The paper as a page names it."""
        return cite(self.paper).short

    @property
    def name(self) -> str:
        """Its name within the paper."""
        return self.key.partition("/")[2]

    @property
    def quick(self) -> Cost:
        """What it takes at the effort quick."""
        return self._cost("quick")

    @property
    def full(self) -> Cost:
        """What it takes at the effort full."""
        return self._cost("full")

    def _cost(self, effort: str) -> Cost:
        return Cost(self.counts[effort] if self.counts else len(self.cells), self.minutes[effort])

    @property
    def made_of(self) -> "tuple[Study, ...]":
        """Itself, or the studies that it is the caption of."""
        return self.parts or (self,)

    @property
    def command(self) -> str:
        """What makes it."""
        return f"posbias paper {self.paper} {self.name} {self.options}".rstrip()

    @property
    def made_by(self) -> str:
        """'`posbias paper wu2025 fig5` makes it (about 14 minutes)'."""
        return f"`{self.command}` makes it (about {minutes_text(self.quick.minutes)})"

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of its files."""
        kinds = () if self.parts else (*(PICTURES if self.draw else ()), "md", "json")
        return tuple(f"{self.name}.{kind}" for kind in kinds)

    def judged(self, table: Any) -> tuple[Judged, ...]:
        """Its claims on a table, those without evidence there left out."""
        return tuple(self.judge(self, table))

    def file(self, folder: str | Path, at: Places | None = None) -> Path:
        """Its JSON in a folder of results, or in that of its paper where `at` has one."""
        return (at or {}).get(self.paper, Path(folder) / self.paper) / f"{self.name}.json"

    def state(self, folder: str | Path) -> State:
        """Whether it is made in a folder of results, with which effort, when, and its claims by verdict.

        Never raises for a file that cannot be used: that is what `State.damaged` is for.
        """
        if self.parts:
            return State.joined([part.state(folder) for part in self.made_of])
        file, record = self.file(folder), self.recorded(self)
        try:
            made = read_result(file, self.name) if file.exists() else None
        except InputFileError as error:
            return State(damaged=str(error))
        more = record is not None and (made is None or (record.whole and record.basis > Basis.of(made)))
        recorded = str(record) if more else ""
        if made is None:
            known = record if record is not None and record.whole else None
            effort, when = (getattr(known.effort, "name", "full"), known.when) if known else ("", "")
            return State(effort=effort, when=when, recorded=recorded)
        return State.of(str(made["effort"]), file, [one["verdict"] for one in made["claims"]], recorded)

    def result(self, folder: str | Path, at: Places | None = None) -> Mapping[str, Any]:
        """Its JSON: what was made in a folder of results, or, of more effort, what is on record.

        A made one that cannot be used is named to the log where there is a record. Raises `InputFileError` when
        neither is there, or what was made is damaged or of another version.
        """
        path, record = self.file(folder, at), self.recorded(self)
        whole = record if record is not None and record.whole else None
        try:
            made = read_result(path, self.name)
        except InputFileError as error:
            if whole is None:
                raise
            if path.exists():
                log.warning("%s; not used", error)
            return whole.data()
        return made if whole is None or Basis.of(made) >= whole.basis else whole.data()


def read_result(path: Path, name: str) -> dict[str, Any]:
    """The JSON of the study `name`.

    Raises `InputFileError` when it is missing, damaged, of another study or another version of posbias.
    """
    data = undamaged(parse_json(path), path)
    for key, wanted in (("name", name), ("version", VERSION)):
        if data.get(key) != wanted:
            raise InputFileError(f"{path}: {key}: expected {wanted}, got {data.get(key)!r}")
    claims = data.get("claims")
    if not isinstance(claims, list) or not all({"id", *ALWAYS} <= {*one} for one in claims):
        raise InputFileError(f"{path}: claims: expected a list of judged claims, got {str(claims)[:60]!r}")
    return data


def minutes_text(minutes: float) -> str:
    """'20 seconds', '14 minutes', '3 hours', '6 days'."""
    for size, limit, unit in ((1 / 60, 1, "second"), (1, 90, "minute"), (60, 2880, "hour")):
        if minutes < limit:
            count = max(1, round(minutes / size))
            return f"{count} {unit}{'s' * (count > 1)}"
    return f"{round(minutes / 1440)} days"


class Studies(dict[str, Study]):
    """The studies of a paper by their names in it."""

    def __init__(self, studies: Iterable[Study]):
        super().__init__({study.name: study for study in studies})

    def find(self, what: str | Iterable[str]) -> list[str]:
        """The names that `what` means, captions taken apart, in their order.

        Raises `InvalidValueError` for nothing, and for an unknown name, naming the nearest.
        """
        targets, choices = [what] if isinstance(what, str) else list(what), (*self, "all")
        if not targets:
            raise InvalidValueError(f"what: expected some of {', '.join(choices)}, got nothing")
        chosen: set[str] = set()
        for target in targets:
            if target not in choices:
                given = f"{shortened(target)}{nearest(target, choices)}"
                raise InvalidValueError(f"figure: expected one of {', '.join(choices)}, got {given}")
            named = self if target == "all" else (target,)
            chosen |= {part.name for name in named for part in self[name].made_of}
        return [name for name in self if name in chosen]
