"""A figure, table or section of a paper as a study: cells computed once, claims judged, a drawing, a page.

    from posbias.papers.kim2026 import STUDIES

    study = STUDIES["fig1"]
    print(study.question, *(claim.sentence for claim in study.claims), sep="\n")

The paper's package computes the cells; `write` judges, draws and writes what they found.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posbias.claims import Claim, Judged, judged
from posbias.errors import InvalidValueError
from posbias.files import write_text
from posbias.papers import find_figures
from posbias.reports.pages import Page, Table
from posbias.sources import cite
from posbias.store import save_json
from posbias.store.header import VERSION

log = logging.getLogger(__name__)
PICTURES = ("svg", "png")
Results = Mapping[Any, Any]
"""What the cells of a study found, by cell. A study without cells of its own may have results of another type."""


@dataclass(frozen=True)
class Expected:
    """A number that a paper prints: of what, its value, how far ours may lie from it, and where it stands."""

    what: str
    value: float
    tolerance: float
    where: str


@dataclass(frozen=True, eq=False)
class Study:
    """A question about some cells, and what a paper says of the answer.

    `name` is PAPER/NAME; `effort` what is spent on each cell at the efforts quick and full, in `unit` where it is
    a number, and `minutes` what that takes on two cores; `tables` are those of the page and `data` the numbers of
    its JSON, from results, and `note` says what these rest on. `draw` makes the figure of results, if there is
    one; where it is `captioned` it takes a `caption`, the note and the judged claims as coloured lines to write
    beneath. `parts` are the studies of a number that is the caption of others; `uses` are sources beyond the paper
    and those of its cells, each with what is used of it.

    A claim without evidence in some results is left out there, and `missing` says why there is nothing to show at
    all ("" if there is); `words` fill the {fields} of claims. Where cells are asked for at each run,
    `cells` are none, all results are the study's, and `counts` says how many there are at each effort by default;
    `options` are those of its command. `printed` are numbers of the paper, and `rows` claims about what it prints
    that are judged on the study's JSON, made or not (then an empty one).
    """

    name: str
    title: str
    question: str
    cells: tuple[Any, ...]
    claims: tuple[Claim, ...]
    effort: Mapping[str, Any]
    unit: str
    minutes: Mapping[str, float]
    tables: Callable[[Any], Iterable[Table]]
    data: Callable[[Any], Mapping[str, Any]]
    note: Callable[[Any], str]
    draw: Callable[..., Any] | None = None
    captioned: bool = False
    needs: str = ""
    parts: tuple[str, ...] = ()
    uses: tuple[tuple[str, str], ...] = ()
    missing: Callable[[Any], str] = lambda results: ""
    words: Callable[[Any], Mapping[str, str]] = lambda results: {}
    counts: Mapping[str, int] | None = None
    options: str = ""
    printed: tuple[Expected, ...] = ()
    rows: tuple[Claim, ...] = ()

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

    def judged(self, results: Any) -> tuple[Judged, ...]:
        """Its claims that have evidence in these results, judged."""
        words, found = self.words(results), []
        for claim in self.claims:
            evidence = tuple(claim.quantity(results)) if claim.quantity else ()
            if evidence:
                told = replace(claim, sentence=claim.sentence.format(**words)) if words else claim
                found.append(judged(told, evidence))
        return tuple(found)

    def effort_of(self, amount: int) -> str:
        """'full' or 'quick' if so much is drawn for every cell, else the amount in words."""
        for name in ("full", "quick"):
            if amount >= self.effort[name]:
                return name
        return f"{amount:,} {self.unit}"


class Studies(dict[str, Study]):
    """The studies of a paper by their short names."""

    def __init__(self, studies: Iterable[Study]):
        super().__init__({study.short: study for study in studies})

    def find(self, what: str | Iterable[str]) -> list[str]:
        """The names that `what` means, captions taken apart, in their order.

        Raises `InvalidValueError` for nothing, and for an unknown name, naming the nearest.
        """
        asked = [what] if isinstance(what, str) else list(what)
        if not asked:
            raise InvalidValueError(f"what: nothing given, some of {', '.join(self)} or all needed")
        chosen = {name for target in asked for name in find_figures(target, self)}
        chosen |= {part for name in chosen for part in self[name].parts}
        return [name for name in self if name in chosen and not self[name].parts]


@dataclass(frozen=True, eq=False)
class Made:
    """A study with its results, its page, the files that were written, and the seconds all this took."""

    study: Study
    results: Any
    page: Page
    figures: tuple[Path, ...]
    files: tuple[Path, ...]
    seconds: float

    @property
    def judged(self) -> tuple[Judged, ...]:
        """Its claims."""
        return self.page.claims


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was made: studies by name, and what the cells behind them found."""

    made: Mapping[str, Made]
    results: Any

    @property
    def pages(self) -> dict[str, Page]:
        """Pages by figure."""
        return {name: made.page for name, made in self.made.items()}

    @property
    def claims(self) -> dict[str, Sequence[Judged]]:
        """Claims by figure."""
        return {name: made.judged for name, made in self.made.items()}

    @property
    def figures(self) -> tuple[Path, ...]:
        """The pictures."""
        return tuple(path for made in self.made.values() for path in made.figures)

    @property
    def files(self) -> tuple[Path, ...]:
        """The pages, as text and as JSON."""
        return tuple(path for made in self.made.values() for path in made.files)

    @property
    def written(self) -> tuple[Path, ...]:
        """All files, study by study."""
        return tuple(path for made in self.made.values() for path in (*made.figures, *made.files))


def write(study: Study, results: Any, effort: str, folder: Path, **options: Any) -> Made:
    """Judge a study on its results, draw it and write its page: NAME.svg, .png, .md and .json in `folder`.

    `results` may hold cells of other studies: claims may compare with them, all else is about those of this one.
    `effort` is what every cell was made with at least, `options` are those of the study's `draw`. Raises
    `OutputFileError`.
    """
    began = time.monotonic()
    log.info("drawing %s …", study.short)
    judged = study.judged(results)
    shown = {cell: results[cell] for cell in study.cells} or results
    figures = _draw(study, shown, judged, folder, options)
    source, title = cite(study.paper).short, f"{study.label}: {study.title}"
    page = Page(f"{source}, {title}", study.note(shown), tuple(study.tables(shown)), judged)
    about = {"name": study.short, "title": title, "source": source, "version": VERSION, "effort": effort}
    files = (
        write_text(folder / f"{study.short}.md", page.markdown()),
        save_json(about | page.as_dict() | dict(study.data(shown)), folder / f"{study.short}.json"),
    )
    return Made(study, shown, page, figures, files, time.monotonic() - began)


def _draw(
    study: Study, results: Any, judged: Sequence[Judged], folder: Path, options: Mapping[str, Any]
) -> tuple[Path, ...]:
    from posbias.plots.captions import verdict_lines
    from posbias.plots.style import save_figure

    if study.draw is None:
        return ()
    caption = {"caption": verdict_lines(study.note(results), judged)} if study.captioned else {}
    figure = study.draw(results, **caption, **options)
    return tuple(save_figure(figure, folder / f"{study.short}.{kind}") for kind in PICTURES)
