"""A figure, table or section of a paper as a study: cells computed once, claims judged, a drawing, a page.

    from posbias.papers.kim2026 import STUDIES
    from posbias.papers.study import make

    made = make(STUDIES["fig1"], "results/kim2026", effort=200_000)
    print(*made.judged, sep="\n")

A module of a paper holds `STUDY` and, if there is something to draw, `draw(results)`; this module runs it.
"""

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.claims import Claim, Judged, count, judge
from posbias.files import write_text
from posbias.sources import cite
from posbias.store import save_json
from posbias.store.header import VERSION

log = logging.getLogger(__name__)
PICTURES = ("svg", "png")
Results = Mapping[Any, Any]
"""What the cells of a study found, by cell."""


@dataclass(frozen=True)
class Table:
    """A table of a study's page: what stands above it, its head, and rows of words."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> list[str]:
        """Its lines, an empty one at the end."""
        lines = [f"{self.caption}:", "", f"| {' | '.join(self.head)} |", f"|{'---|' * len(self.head)}"]
        return [*lines, *(f"| {' | '.join(row)} |" for row in self.rows), ""]


@dataclass(frozen=True, eq=False)
class Study:
    """A question about some cells, and what a paper says of the answer.

    `name` is PAPER/NAME; `effort` the amount that each cell draws at the efforts quick and full, in `unit`, and
    `minutes` what that takes on two cores; `tables` are those of the page and `data` the numbers of its JSON, from
    results, and `note` says what these rest on. `draws` says whether its module has a `draw`.
    """

    name: str
    title: str
    question: str
    cells: tuple[Any, ...]
    claims: tuple[Claim, ...]
    effort: Mapping[str, int]
    unit: str
    minutes: Mapping[str, float]
    tables: Callable[[Results], Iterable[Table]]
    data: Callable[[Results], Mapping[str, Any]]
    note: Callable[[Results], str]
    draws: bool = True
    needs: str = ""

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.name.partition("/")[0]

    @property
    def short(self) -> str:
        """Its name within the paper."""
        return self.name.partition("/")[2]

    @property
    def label(self) -> str:
        """'Figure 1', 'Section 3'."""
        kinds = {"fig": "Figure", "table": "Table", "section": "Section"}
        for begin, word in kinds.items():
            if self.short.startswith(begin):
                return f"{word} {self.short.removeprefix(begin)}"
        return self.short

    def effort_of(self, amount: int) -> str:
        """'full' or 'quick' if so much is drawn for every cell, else the amount in words."""
        for name in ("full", "quick"):
            if amount >= self.effort[name]:
                return name
        return f"{amount:,} {self.unit}"


@dataclass(frozen=True, eq=False)
class Made:
    """A study with its results, its claims judged, and the files that were written."""

    study: Study
    results: Results
    judged: tuple[Judged, ...]
    figures: tuple[Path, ...]
    files: tuple[Path, ...]


def write(study: Study, results: Results, amount: int, folder: Path, **options: Any) -> Made:
    """Judge a study on its results, draw it and write its page: NAME.svg, .png, .md and .json in `folder`.

    `amount` is what every cell drew at least, `options` are those of the module's `draw`. Raises
    `OutputFileError`.
    """
    log.info("drawing %s …", study.short)
    judged = tuple(judge(claim, results) for claim in study.claims)
    figures: tuple[Path, ...] = ()
    if study.draws:
        from posbias.plots.style import save_figure

        module = importlib.import_module(f"posbias.papers.{study.paper}.{study.short}")
        figure = module.draw(results, **options)
        figures = tuple(save_figure(figure, folder / f"{study.short}.{kind}") for kind in PICTURES)
    page = write_text(folder / f"{study.short}.md", markdown(study, results, judged))
    about = {
        "name": study.short,
        "title": f"{study.label}: {study.title}",
        "note": study.note(results),
        "source": cite(study.paper).short,
        "version": VERSION,
        "effort": study.effort_of(amount),
        study.unit: amount,
        "claims": [one.as_dict() for one in judged],
        **study.data(results),
    }
    return Made(study, results, judged, figures, (page, save_json(about, folder / f"{study.short}.json")))


def markdown(study: Study, results: Results, judged: Sequence[Judged]) -> str:
    """A study's page: its tables, its claims and all their evidence."""
    lines = [f"# {cite(study.paper).short}, {study.label}: {study.title}", "", study.note(results), ""]
    for table in study.tables(results):
        lines += table.markdown()
    lines += [", ".join(f"{number} {verdict}" for verdict, number in count(judged).items()), ""]
    for one in judged:
        lines += [f"- **{one.verdict}**: {one.sentence}", *(f"  - {piece}" for piece in one.evidence)]
    return "\n".join(lines) + "\n"
