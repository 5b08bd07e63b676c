"""A figure, table or section of a paper: its cells, the tidy table that they make, and what is shown of it.

    from posbias_papers.registry import STUDIES

    study = STUDIES["kim2026/fig1"]
    frame = study.table({cell: posbias.simulate(cell, samples=200_000) for cell in study.cells})
    print(study.question, study.page(frame).note, *study.judged(frame), sep="\n")

All that is shown is a function of the table: the page, the figure, and the verdicts on the study's claims.
`posbias_papers.reproduction` computes cells and writes results, `posbias_papers.results` reads them again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from posbias.core.errors import InvalidValueError
from posbias.core.progress import time_text
from posbias.core.sources import BIBLIOGRAPHY, cite
from posbias_papers import choose, read_rows
from posbias_papers.claims import Claim, Judged, judged
from posbias_papers.pages import Page

EFFORTS = ("quick", "full")
"""Efforts by name: minutes of a laptop, and the paper's own."""
STATEMENTS = "statements"
"""The study of a paper that is its numbered statements, and the folder of their results."""
KINDS = {"fig": "Figure", "table": "Table", "section": "Section"}
MACHINE = "2 cores, x86-64"
"""What costs are of."""
EVIDENCE = (
    "instances",
    "a closed form, no draws",
    "simulated at the paper's effort",
    "the paper's models",
    "trained at the paper's effort",
    "trained below it",
    "other models or fewer samples",
    "nothing",
)
"""Kinds of evidence. "instances" are random, adversarial or all of them; of the paper's models, configurations and
the authors' files count too."""
INSTANCED, COMPUTED, *_, OTHERS, UNTESTED = EVIDENCE


@dataclass(frozen=True)
class Cost:
    """What a study takes when nothing has been computed yet: cells, minutes, and the machine these are of."""

    cells: int
    minutes: float
    machine: str = MACHINE

    def __str__(self) -> str:
        return f"{self.cells} cells, {time_text(60 * self.minutes)}"


@dataclass(frozen=True, order=True)
class Basis:
    """What results rest on: iterations, networks and test sequences, or samples, that every cell has at least.

    They are of `cells`, of which `recorded` are recorded results; `inputs` says how these were drawn, where there
    are several ways. That of more effort is the greater one.
    """

    iterations: int = 0
    networks: int = 0
    sequences: int = 0
    cells: int = field(default=0, compare=False)
    recorded: int = field(default=0, compare=False)
    samples: int = 0
    inputs: str = field(default="", compare=False)

    def __str__(self) -> str:
        """'25,000 iterations × 3 networks × 10,000 test sequences, embeddings as in the code'."""
        units = {"iterations": "iterations", "networks": "networks", "sequences": "test sequences"}
        counts = ((getattr(self, name), unit) for name, unit in (units | {"samples": "samples"}).items())
        amount = " × ".join(f"{count:,} {unit}" for count, unit in counts if count)
        return f"{amount}, {self.inputs}" if self.inputs else amount

    @property
    def source(self) -> str:
        """'recorded', 'computed here', or '7 of 18 cells recorded'."""
        if 0 < self.recorded < self.cells:
            return f"{self.recorded} of {self.cells} cells recorded"
        return "recorded" if self.recorded else "computed here"


@dataclass(frozen=True, eq=False)
class Recorded:
    """What is on record of a study's cells, at the greatest effort that all have, else at that which most have.

    `basis` says how much that is, `serves` for which of `EFFORTS` it is enough; `table` reads it.
    """

    effort: str
    basis: Basis
    serves: tuple[str | int, ...]
    table: Callable[[], Any]
    when: str = ""

    @property
    def whole(self) -> bool:
        """Whether all cells are on record."""
        return self.basis.recorded == self.basis.cells

    def __str__(self) -> str:
        if not self.basis.cells:
            return "nothing to compute"
        cells = f"{self.basis.recorded} of {self.basis.cells} cells recorded"
        return ", ".join(part for part in (cells, str(self.basis)) if part)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tidy tables of some studies, by name, and the effort that every cell has at least.

    `left_out` says of which studies there is nothing to show, and why.
    """

    frames: Mapping[str, Any]
    effort: str
    left_out: Mapping[str, str] = field(default_factory=dict)


@cache
def _titles() -> dict[str, tuple[str, str]]:
    rows = read_rows(Path(__file__).with_name("studies.csv"))
    return {row["study"]: (row["title"], row["question"]) for row in rows}


def titled(key: str) -> tuple[str, str, str]:
    """A study's key with its title and question (`studies.csv`); a paper's with what it is about."""
    return key, *_titles()[key]


def judge_each(claims: Iterable[Claim], table: Any) -> Iterator[Judged]:
    """Those claims that have evidence in a study's table, judged."""
    for claim in claims:
        if claim.quantity and (evidence := tuple(claim.quantity(table))):
            yield judged(claim, evidence)


@dataclass(frozen=True, eq=False)
class Study:
    """A question about some cells, and what a paper says of the answer.

    `key` is PAPER/NAME; `minutes` are those of the efforts quick and full, `unit` what an effort that is a
    number counts. `table` makes the tidy table of the cells' results, `page` its note, tables and numbers,
    `draw` the figure with a caption, if there is one, and `judge` the verdicts. `needs` is "" (nothing beyond
    posbias[report]), "torch" or "models" (a language model); `uses` are sources beyond the paper, each with
    what is used of it. `recorded` says what is on record of the cells, `decided_by` what would decide claims
    that are left open. Where cells are chosen at each run `cells` are none, and `count` is how many there are
    by default. `tested_on` is the kind of evidence its claims always have, `apart` says that a run over all
    papers makes it by itself, `document` which page of the documents is about it.
    """

    key: str
    title: str
    question: str
    claims: tuple[Claim, ...]
    cells: tuple[Any, ...]
    minutes: tuple[float, float]
    unit: str
    table: Callable[[Any], Any] = lambda results: results
    page: Callable[[Any], Page] = lambda table: Page()
    draw: Callable[..., Any] | None = None
    judge: "Callable[[Study, Any], Iterable[Judged]]" = lambda study, table: judge_each(study.claims, table)
    recorded: "Callable[[Study], Recorded | None]" = lambda study: None
    needs: str = ""
    uses: tuple[tuple[str, str], ...] = ()
    decided_by: str = ""
    count: int = 0
    tested_on: str = ""
    apart: bool = False
    document: str = ""

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Its name within the paper."""
        return self.key.partition("/")[2]

    @property
    def source(self) -> str:
        """The paper as a page names it; "Ours" where it is of none."""
        return cite(self.paper).short if self.paper in BIBLIOGRAPHY else "Ours"

    @property
    def label(self) -> str:
        """'Figure 12', 'Section 4', 'Statements'."""
        parts = re.fullmatch(r"([a-z]+)(\d+)", self.name)
        return f"{KINDS[parts[1]]} {parts[2]}" if parts else self.name.capitalize().replace("-", " ")

    @property
    def quick(self) -> Cost:
        """What it takes at the effort quick."""
        return Cost(self.count or len(self.cells), self.minutes[0])

    @property
    def full(self) -> Cost:
        """What it takes at the effort full."""
        return Cost(self.count or len(self.cells), self.minutes[1])

    @property
    def command(self) -> str:
        """What computes it."""
        stated = self.name == STATEMENTS
        return f"posbias paper {f'claims {self.key}' if stated else f'{self.paper} {self.name}'}"

    @property
    def made_by(self) -> str:
        """'`posbias paper wu2025 fig5` makes it (about 14 min)'."""
        return f"`{self.command}` makes it (about {time_text(60 * self.minutes[0])})"

    def judged(self, table: Any) -> tuple[Judged, ...]:
        """Its claims on a table, those without evidence there left out."""
        return tuple(self.judge(self, table))

    def file(self, folder: str | Path) -> Path:
        """Its JSON in a folder of results."""
        return Path(folder) / self.paper / f"{self.name}.json"


class Studies(dict[str, Study]):
    """The studies of a paper by their names in it; `captions` are numbers that stand for several of them."""

    def __init__(self, studies: Iterable[Study], captions: Mapping[str, Iterable[str]] | None = None):
        super().__init__({study.name: study for study in studies})
        self.captions = captions or {}

    def find(self, what: str | Iterable[str]) -> list[str]:
        """The names that `what` means, in their order; "all" are all of them.

        Raises `InvalidValueError` for nothing, and for an unknown name, naming the nearest.
        """
        wanted = [what] if isinstance(what, str) else [*what]
        choices = ", ".join((*self, *self.captions, "all"))
        if not wanted:
            raise InvalidValueError(f"what: expected some of {choices}, got nothing")

        def called(study: Study) -> list[str]:
            return [study.name, "all", *(name for name, its in self.captions.items() if study.name in its)]

        found = choose(f"figure: expected one of {choices}", self.values(), wanted, called)
        return [study.name for study in found]


@dataclass(frozen=True, eq=False)
class Paper:
    """A paper: its studies, what computes their tables, and all else that differs between papers.

    `tables` makes the tables of some of its `studies`; `settings` are its arguments in a run over all papers, of
    the names of studies and of that run's options. `stated` is the number of its numbered statements, and minutes
    (quick, full). What reaches `effort` was tested on
    the first of `kinds`, what was simulated or trained with less on the second; `measured` is the kind of evidence
    where neither was done. `uses` is what every cell rests on, `specification` what of a cell is searched for
    further sources.
    """

    key: str
    studies: Studies
    tables: Callable[..., Tables]
    stated: tuple[int, tuple[float, float]]
    effort: Basis = Basis()
    kinds: tuple[str, str] = (OTHERS, OTHERS)
    measured: str = OTHERS
    settings: Callable[..., Mapping[str, Any]] = lambda names, **options: {}
    uses: tuple[tuple[str, str], ...] = ()
    specification: Callable[[Any], Any] = lambda cell: cell

    @cached_property
    def statements(self) -> Study:
        """Its numbered statements as a study."""
        count, minutes = self.stated
        return Study(*titled(f"{self.key}/{STATEMENTS}"), (), (), minutes, "instances", count=count)

    @property
    def says(self) -> str:
        """What it is about."""
        return titled(self.key)[1]

    @property
    def minutes(self) -> float:
        """Those of all studies at the effort quick, cells that several share counted for each."""
        return sum(study.quick.minutes for study in self.studies.values())
