"""What the three papers contain, item by item, and what of it posbias covers: `coverage.toml` of each paper.

    from posbias.papers.coverage import items, update_page

    update_page("docs/coverage.md")

An item is a definition, a statement, a figure, a table, a setting, an observation or a recommendation. It names
the command that shows it and the claims that judge it; what is missing of it is said. Tests hold that commands and
claims are there.
"""

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, Literal, get_args

from posbias.arguments import one_of
from posbias.files import write_between
from posbias.papers import PAPERS
from posbias.sources import cite

BEGIN, END = "<!-- coverage -->", "<!-- end of coverage -->"
"""The marks on the page before and after what is made from the data."""
Kind = Literal["definition", "statement", "figure", "table", "setting", "observation", "recommendation"]
Covered = Literal["whole", "partly", "missing"]
PYTHON = "python: "
"""What a `command` begins with that is a name to import."""


@dataclass(frozen=True)
class Item:
    """One thing that a paper contains: its `place`, its `kind`, and `what` it is, in our words.

    `command` shows it (empty where nothing does); `parameters` says "paper" where the defaults of the command are
    the paper's, else what they are and what gives the paper's; `claims` are the ids of those that judge it; `left`
    says what is missing of an item that is not covered whole. Raises `InvalidValueError` for other kinds and
    coverages.
    """

    paper: str
    place: str
    kind: Kind
    what: str
    command: str
    parameters: str
    claims: tuple[str, ...]
    covered: Covered
    left: str

    def __post_init__(self):
        one_of("kind", self.kind, get_args(Kind))
        one_of("covered", self.covered, get_args(Covered))

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {"claims": list(self.claims)}


def items(papers: Iterable[str] = PAPERS) -> list[Item]:
    """All items of some papers, in their order. Raises `InvalidValueError` for an unknown paper."""
    return [item for paper in papers for item in _read(one_of("paper", paper, PAPERS))]


def tally(listed: Iterable[Item]) -> dict[str, dict[str, int]]:
    """How many items of each paper are covered whole, partly, not at all."""
    counts = Counter((item.paper, item.covered) for item in listed)
    return {
        paper: {covered: counts[paper, covered] for covered in get_args(Covered)}
        for paper in dict.fromkeys(paper for paper, _ in counts)
    }


def page_text() -> str:
    """How many items of each kind every paper has, and each that is not covered whole, as Markdown."""
    return "\n".join(_lines(items()))


def update_page(path: str | os.PathLike[str]) -> str:
    """Write the table into the page at `path`, between its two marks; returns them.

    Raises `InputFileError` for a page without the two marks, `OutputFileError` if it cannot be written.
    """
    text = page_text()
    write_between(path, BEGIN, END, text)
    return text


@cache
def _read(paper: str) -> tuple[Item, ...]:
    text = (files(f"posbias.papers.{paper}") / "coverage.toml").read_text(encoding="utf-8")
    return tuple(
        Item(**row | {"paper": paper, "claims": tuple(row["claims"])}) for row in tomllib.loads(text)["item"]
    )


def _lines(listed: list[Item]) -> Iterator[str]:
    columns = ("whole", "partly", "missing")
    yield f"| paper | {' | '.join(f'{kind}s' for kind in get_args(Kind))} | all | {' | '.join(columns)} |"
    yield "|---" * (len(get_args(Kind)) + len(columns) + 2) + "|"
    for paper, counts in tally(listed).items():
        kinds = Counter(item.kind for item in listed if item.paper == paper)
        numbers = (
            *(kinds[kind] for kind in get_args(Kind)),
            kinds.total(),
            *(counts[column] for column in columns),
        )
        yield f"| {cite(paper).short} | {' | '.join(map(str, numbers))} |"
    if lacking := [item for item in listed if item.left]:
        yield from ("", "Not whole:", "")
        yield from (
            f"- {item.paper}, {item.place}, {item.what} ({item.covered}): {item.left}" for item in lacking
        )


def entry(item: Item) -> str:
    """An item in lines: where and what it is, what shows it with which parameters, the claims that judge it."""
    shown = (
        f"{item.command.removeprefix(PYTHON)} (parameters: {item.parameters})" if item.command else item.left
    )
    return "\n".join(
        (
            f"{item.paper}, {item.place} ({item.kind}, {item.covered}): {item.what}",
            f"    {shown}",
            *((f"    claims: {ids_text(item.paper, item.claims)}",) if item.claims else ()),
            *((f"    missing: {item.left}",) if item.left and item.command else ()),
        )
    )


def told(counts: dict[str, int]) -> str:
    """A tally in words: '48 items: 40 whole, 6 partly, 2 missing'."""
    parts = ", ".join(f"{count} {covered}" for covered, count in counts.items() if count)
    return f"{sum(counts.values())} items: {parts}"


def ids_text(paper: str, claims: Iterable[str]) -> str:
    """The ids of a paper's claims, figures' by study, statements' as they are: `lemma-4.4; fig2/1-3, 5`."""
    by_study: dict[str, list[str]] = {}
    for claim in claims:
        study, _, number = claim.removeprefix(f"{paper}/").rpartition("/")
        by_study.setdefault(study, []).append(number)
    return "; ".join(
        f"{study}/{', '.join(_runs(ids))}" if study else ", ".join(ids) for study, ids in by_study.items()
    )


def _runs(ids: Iterable[str]) -> Iterator[str]:
    """Ids with three or more numbers in a row as one: 1, 2, 3, 5 are `1-3`, `5`."""
    by_offset = groupby(enumerate(ids), lambda at: int(at[1]) - at[0] if at[1].isdigit() else at[1])
    for _, group in by_offset:
        run = [one for _, one in group]
        yield from (f"{run[0]}-{run[-1]}",) if len(run) > 2 else run
