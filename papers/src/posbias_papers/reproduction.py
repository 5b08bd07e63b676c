"""What is made of a paper's studies: judged, drawn, written as pages, tables and JSON; and what each of them
took."""

import json
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.core.files import write_text
from posbias.core.formats import VERSION, dump_json, save_json
from posbias.profiles.claims import Judged
from posbias_papers.pages import Page
from posbias_papers.sections import label
from posbias_papers.study import PICTURES, Study

log = logging.getLogger("posbias.papers")


@dataclass(frozen=True, eq=False)
class Made:
    """A study with its table, its page, the files that were written, and the seconds all this took."""

    study: Study
    table: Any
    page: Page
    figures: tuple[Path, ...]
    files: tuple[Path, ...]
    seconds: float


@dataclass(frozen=True)
class Spent:
    """What a study took: seconds, cells computed for it, cells that were there."""

    name: str
    seconds: float
    made: int
    found: int


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was made: studies by name, and what the cells behind them found.

    `new` are the cells that were computed for it; `seconds` is what all took. `left_out` says why others of the
    studies were.
    """

    made: Mapping[str, Made]
    results: Any
    new: Collection[Any]
    seconds: float
    left_out: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def cells_of(self, name: str) -> Iterable[Any]:
        """The cells behind a study."""
        return self.made[name].study.cells

    @property
    def spent(self) -> Iterator[Spent]:
        """What each study took; a new cell is counted to the first study that needs it."""
        left, many = {*self.new}, max(1, len(self.new))
        common = self.seconds - sum(made.seconds for made in self.made.values())
        for name, made in self.made.items():
            cells = {*self.cells_of(name)}
            first = len(cells & left)
            left -= cells
            yield Spent(name, made.seconds + common * first / many, first, len(cells) - first)

    @property
    def stand_in(self) -> str:
        """Which models stand in for the paper's, in a sentence; "" if none does."""
        return ""

    @property
    def pages(self) -> dict[str, Page]:
        """Pages by study."""
        return {name: made.page for name, made in self.made.items()}

    @property
    def claims(self) -> dict[str, Sequence[Judged]]:
        """Claims by study."""
        return {name: made.page.claims for name, made in self.made.items()}

    @property
    def figures(self) -> tuple[Path, ...]:
        """The pictures."""
        return tuple(path for made in self.made.values() for path in made.figures)

    @property
    def files(self) -> tuple[Path, ...]:
        """Pages, JSON and tables."""
        return tuple(path for made in self.made.values() for path in made.files)

    @property
    def written(self) -> tuple[Path, ...]:
        """All files, study by study."""
        return tuple(path for made in self.made.values() for path in (*made.figures, *made.files))

    def as_dict(self) -> dict[str, Any]:
        """Files and claims, for JSON."""
        claims = {name: [claim.as_dict() for claim in claims] for name, claims in self.claims.items()}
        return {"files": [str(path) for path in self.written], "claims": claims, "seconds": self.seconds}


def write(study: Study, table: Any, effort: str, folder: Path, **options: Any) -> Made:
    """Judge a study on its table, draw it and write its page: NAME.svg, .png, .md and .json in `folder`, and .csv.

    `effort` is what every cell was made with at least, `options` are those of the study's `draw`. Raises
    `OutputFileError`.
    """
    from posbias.reports.plots.style import save_figure

    began = time.monotonic()
    log.info("drawing %s …", study.name)
    page = _page(study, table)
    figures = ()
    if study.draw is not None:
        figure = study.draw(table, page.note, **options)
        figures = tuple(save_figure(figure, folder / f"{study.name}.{kind}") for kind in PICTURES)
    files = [
        write_text(folder / f"{study.name}.md", page.markdown()),
        save_json(_about(study, table, page, effort), folder / f"{study.name}.json"),
    ]
    if hasattr(table, "to_csv"):
        numbers = table[[name for name, kind in table.dtypes.items() if str(kind) != "object"]]
        text = numbers.to_csv(float_format="%.9g")
        files.append(write_text(folder / f"{study.name}.csv", text))
    return Made(study, table, page, figures, tuple(files), time.monotonic() - began)


def content_of(study: Study, table: Any, effort: str) -> dict[str, Any]:
    """What the study's JSON would hold of its table; `effort` as of `write`."""
    return json.loads(dump_json(_about(study, table, _page(study, table), effort)))


def _page(study: Study, table: Any) -> Page:
    title = f"{study.source}, {label(study.name)}: {study.title}"
    return Page(title, study.note(table), tuple(study.tables(table)), study.judged(table))


def _about(study: Study, table: Any, page: Page, effort: str) -> dict[str, Any]:
    about = {"name": study.name, "title": f"{label(study.name)}: {study.title}", "source": study.source}
    return about | {"version": VERSION, "effort": effort} | page.as_dict() | dict(study.data(table))
