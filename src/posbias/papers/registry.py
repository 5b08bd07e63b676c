"""All figures, tables and numbered statements of the three papers as studies, by name.

    from posbias.papers.registry import STUDIES

    study = STUDIES["wu2025/fig2"]
    print(study.question, study.quick.minutes, study.state("results"))

What a study shows, asks, needs and costs stands in its module (statements: in `theorems`).
A study knows its files under a folder of results: `state` says whether they are there, `rows` what they hold as a
table. Making them is `posbias.papers.everything.make_study`. Nothing heavy is imported here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from posbias.claims import Claim
from posbias.errors import InputFileError, InvalidValueError, nearest
from posbias.papers.results import State, read_result, rows_of, state_of
from posbias.papers.study import Expected, Study
from posbias.papers.theorems import QUESTION, STATED, STATEMENTS, rows, tried_already

PAPERS = ("wu2025", "herasimchyk2026", "kim2026")
"""The papers, by citation key, in the order of the registry."""
UNITS = {"wu2025": "iterations, sequences", "herasimchyk2026": "prompts", "kim2026": "draws"}
"""What the effort of a paper's figures and tables is counted in."""
MACHINE = "2 cores, x86-64"
"""What costs are of."""
PICTURES = ("svg", "png", "md", "json")


@dataclass(frozen=True)
class Cost:
    """What a study takes when nothing is there yet: cells, minutes, and the machine these are of."""

    cells: int
    minutes: float
    machine: str

    def __str__(self) -> str:
        return f"{self.cells} cells, {minutes_text(self.minutes)}"


@dataclass(frozen=True)
class PaperStudy:
    """A figure, a table or the numbered statements of a paper.

    `needs` is "" (nothing beyond posbias[report]), "torch" or "models" (a language model; those of the paper that
    cannot be had are read from the authors' rollout files, or stood in for). `writes` are its files, `parts` the
    studies of a number that is the caption of others, `command` what makes it. `expected` are the numbers that the
    paper prints of it (Wu et al. 2025 print none), `row_claims` those about rows of a printed table.
    """

    paper: str
    name: str
    title: str
    question: str
    quick: Cost
    full: Cost
    needs: str
    writes: tuple[str, ...]
    parts: tuple[str, ...] = ()
    command: str = ""
    expected: tuple[Expected, ...] = ()
    row_claims: tuple[Claim, ...] = ()

    @property
    def key(self) -> str:
        """'wu2025/fig2'."""
        return f"{self.paper}/{self.name}"

    def file(self, folder: str | Path, at: Mapping[str, Path] | None = None) -> Path:
        """Its JSON in a folder of results, or the folder of what trying the statements of all papers gave.

        `at` are folders of papers that lie elsewhere.
        """
        if self.name == STATEMENTS:
            return Path(folder) / STATEMENTS
        return (at or {}).get(self.paper, Path(folder) / self.paper) / f"{self.name}.json"

    def state(self, folder: str | Path, at: Mapping[str, Path] | None = None) -> State:
        """Whether it is made in a folder of results, with which effort, when, and its claims by verdict.

        Never raises for a file that cannot be used: that is what `State.damaged` is for.
        """
        if self.parts:
            return State.joined([STUDIES[f"{self.paper}/{part}"].state(folder, at) for part in self.parts])
        if self.name == STATEMENTS:
            try:
                tried = tried_already(Path(folder), self.paper)
            except InputFileError as error:
                return State(damaged=str(error))
            if tried is None:
                return State()
            amount = min(stored.header.amount or 0 for stored in tried)
            newest = max((stored.path for stored in tried), key=lambda path: path.stat().st_mtime)
            return State.of(f"{amount:,} instances", newest, [row["verdict"] for row in rows(tried)])
        return state_of(self.file(folder, at), self.name)

    def rows(self, folder: str | Path, at: Mapping[str, Path] | None = None) -> list[dict[str, Any]]:
        """Its numbers as a table, ready for CSV: a row for each cell, a column for each quantity.

        Quantities are numbers, words or None; nested ones are spelt with dots ("gap.value"), short lists with
        their place ("every_gap.0"), and of curves every position is a row (column "position"). Raises
        `InputFileError` when it is not made, damaged or of another version.
        """
        if self.parts:
            names = (f"{self.paper}/{part}" for part in self.parts)
            return [{"study": name} | row for name in names for row in STUDIES[name].rows(folder, at)]
        path, stated = self.file(folder, at), self.name == STATEMENTS
        try:
            tried = tried_already(Path(folder), self.paper) if stated else None
            if tried is None and (stated or not path.exists()):
                raise InputFileError(f"{path}: not made")
            return rows_of(read_result(path, self.name)) if tried is None else list(rows(tried))
        except InputFileError as error:
            raise InputFileError(f"{error}; {self.made_by}") from None

    @property
    def unit(self) -> str:
        """What its effort is counted in; a number as effort is one of these, where it is one alone."""
        return "instances" if self.name == STATEMENTS else UNITS[self.paper]

    @property
    def made_by(self) -> str:
        """'`posbias paper wu2025 fig5` makes it (about 14 minutes)'."""
        return f"`{self.command}` makes it (about {minutes_text(self.quick.minutes)})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "study": self.key,
            "title": self.title,
            "question": self.question,
            "needs": self.needs,
            "expected": [vars(one) for one in self.expected],
            "quick": vars(self.quick),
            "full": vars(self.full),
            "unit": self.unit,
            "writes": list(self.writes),
            "parts": [f"{self.paper}/{part}" for part in self.parts],
            "command": self.command,
        }


def find_studies(names: str | Iterable[str] = ()) -> list[PaperStudy]:
    """The studies of these keys, or of whole papers, in the order of the registry; none given: all.

    Raises `InvalidValueError` naming the nearest.
    """
    asked = [names] if isinstance(names, str) else list(names)
    choices = [*STUDIES, *PAPERS]
    for name in asked:
        if name not in choices:
            raise InvalidValueError(
                f"study: {name!r} given, a paper ({', '.join(PAPERS)}) or one of its studies, such as "
                f"wu2025/fig2, needed{nearest(name, choices)}"
            )
    return [one for one in STUDIES.values() if not asked or {one.key, one.paper} & {*asked}]


def minutes_text(minutes: float) -> str:
    """'20 seconds', '14 minutes', '3 hours', '6 days'."""
    for size, limit, unit in ((1 / 60, 1, "second"), (1, 90, "minute"), (60, 2880, "hour")):
        if minutes < limit:
            count = max(1, round(minutes / size))
            return f"{count} {unit}{'s' * (count > 1)}"
    return f"{round(minutes / 1440)} days"


def _registered() -> Iterator[PaperStudy]:
    """The figures and tables of each paper, then its numbered statements."""
    from posbias.papers import herasimchyk2026, kim2026, wu2025

    for paper, module in zip(PAPERS, (wu2025, herasimchyk2026, kim2026), strict=True):
        yield from map(_of_module, module.STUDIES.values())
        stated = STATED[paper]
        quick, full = (Cost(stated.count, minutes, MACHINE) for minutes in (stated.quick, stated.full))
        writes, command = (f"{STATEMENTS}/",), f"posbias paper claims --paper {paper}"
        yield PaperStudy(paper, STATEMENTS, stated.title, QUESTION, quick, full, "", writes, command=command)


def _of_module(study: Study) -> PaperStudy:
    counts = study.counts or dict.fromkeys(study.minutes, len(study.cells))
    cost = {effort: Cost(counts[effort], minutes, MACHINE) for effort, minutes in study.minutes.items()}
    written = () if study.parts else PICTURES if study.draw else PICTURES[2:]
    return PaperStudy(
        study.paper,
        study.short,
        study.title,
        study.question,
        cost["quick"],
        cost["full"],
        study.needs,
        tuple(f"{study.short}.{kind}" for kind in written),
        study.parts,
        command=f"posbias paper {study.paper} {study.short} {study.options}".rstrip(),
        expected=study.printed,
        row_claims=study.rows,
    )


STUDIES: Mapping[str, PaperStudy] = MappingProxyType({study.key: study for study in _registered()})
"""Every study, by "PAPER/NAME", paper by paper in the order of the text."""
