"""What is made of a paper's studies: judged, drawn, written as pages and JSON; and what each of them took."""

import json
import logging
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.core.files import write_text
from posbias.core.store import VERSION, dump_json, save_json
from posbias.profiles.claims import Judged
from posbias.reports.pages import Page
from posbias_papers.sections import label
from posbias_papers.study import PICTURES, Study

log = logging.getLogger("posbias.papers")


@dataclass(frozen=True)
class Spent:
    """What a study took: seconds, cells made for it, cells that were there."""

    name: str
    seconds: float
    made: int
    found: int


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
    """What was made: studies by name, and what the cells behind them found.

    `new` are the cells that were computed for it, with what each took, in any unit; `seconds` is what all took.
    `left_out` says why others of the studies were.
    """

    made: Mapping[str, Made]
    results: Any
    new: Mapping[Any, float]
    seconds: float
    left_out: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def cells_of(self, name: str) -> Iterable[Hashable]:
        """The cells behind a study."""
        return self.made[name].study.cells

    @property
    def spent(self) -> Iterator[Spent]:
        """What each study took.

        A new cell is counted to the first study that needs it, with a share of the seconds that none took alone.
        """
        left, whole = dict(self.new), sum(self.new.values()) or 1.0
        common = self.seconds - sum(made.seconds for made in self.made.values())
        for name, made in self.made.items():
            cells = {*self.cells_of(name)}
            first = {cell: left.pop(cell) for cell in cells & left.keys()}
            share = common * sum(first.values()) / whole
            yield Spent(name, made.seconds + share, len(first), len(cells) - len(first))

    @property
    def stand_in(self) -> str:
        """Which models stand in for the paper's, in a sentence; "" if none does."""
        return ""

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
    log.info("drawing %s …", study.name)
    shown = _shown(study, results)
    judged = study.judged(shown if study.tidy else results)
    figures = _draw(study, shown, folder, options)
    page = _page(study, shown, judged)
    files = (
        write_text(folder / f"{study.name}.md", page.markdown()),
        save_json(_about(study, shown, page, effort), folder / f"{study.name}.json"),
    )
    if study.table:
        frame = shown if study.tidy else study.table(results)
        text = frame.select_dtypes(exclude="object").to_csv(float_format="%.9g")
        files = (*files, write_text(folder / f"{study.name}.csv", text))
    return Made(study, shown, page, figures, files, time.monotonic() - began)


def _shown(study: Study, results: Any) -> Any:
    """The results of a study's own cells, or the tidy table of these; a tidy table as it is."""
    if study.tidy and not isinstance(results, Mapping):
        return results
    shown = {cell: results[cell] for cell in study.cells} or results
    return study.table(shown) if study.table and study.tidy else shown


def content_of(study: Study, results: Any, effort: str) -> dict[str, Any]:
    """What the study's JSON would hold of results, or of its tidy table; arguments as of `write`."""
    shown = results if study.tidy else {cell: results[cell] for cell in study.cells} or results
    page = _page(study, shown, study.judged(results))
    return json.loads(dump_json(_about(study, shown, page, effort)))


def _page(study: Study, shown: Any, judged: Sequence[Judged]) -> Page:
    title = f"{study.source}, {_title(study)}"
    return Page(title, study.note(shown), tuple(study.tables(shown)), tuple(judged))


def _about(study: Study, shown: Any, page: Page, effort: str) -> dict[str, Any]:
    about = {"name": study.name, "title": _title(study), "source": study.source}
    about |= {"version": VERSION, "effort": effort}
    return about | page.as_dict() | dict(study.data(shown))


def _title(study: Study) -> str:
    return f"{label(study.name)}: {study.title}"


def _draw(study: Study, results: Any, folder: Path, options: Mapping[str, Any]) -> tuple[Path, ...]:
    from posbias.reports.plots.style import save_figure

    if study.draw is None:
        return ()
    caption = {"caption": study.note(results)} if study.captioned else {}
    figure = study.draw(results, **caption, **options)
    return tuple(save_figure(figure, folder / f"{study.name}.{kind}") for kind in PICTURES)
