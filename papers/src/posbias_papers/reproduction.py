"""Compute a paper's cells, judge and draw its studies, and write them: files, pages, JSON.

    from posbias_papers.reproduction import reproduce

    made = reproduce("kim2026", ["fig1", "section3"], out="results/kim2026")
    print(*made.claims["fig1"], sep="\n")

`reproduce` makes studies of one paper, `make_all` those of all papers. Cells are kept in OUT/cells, where all
studies find those they share; after an interruption the same call goes on.
"""

import importlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posbias.core.errors import (
    InvalidValueError,
    MissingPackageError,
    ModelError,
    PosbiasError,
    one_of,
    shortened,
)
from posbias.core.files import clear_leftovers, need_writable, write_text
from posbias.core.formats import VERSION, dump_json, save_json
from posbias.core.packages import missing as missing_package
from posbias.core.packages import need
from posbias.core.progress import OnEvent
from posbias.profiles.claims import Judged
from posbias_papers import PAPERS
from posbias_papers.pages import Page
from posbias_papers.registry import STUDIES, find_studies, studies_of
from posbias_papers.study import EFFORTS, STATEMENTS, Recorded, Study

log = logging.getLogger("posbias.papers")
PICTURES = ("svg", "png")
SHUFFLED = "herasimchyk2026/fig4"
"""The figure that needs a second text, here the first with its tokens shuffled: of the small model alone where
all is made, as it doubles what has to be measured."""
SMALL_MODEL = ("tiny-alibi",)
INSTANCES = {"quick": 200, "full": 1000}
"""Instances of each reading of a numbered statement."""


@dataclass(frozen=True, eq=False)
class Made:
    """A study with its table, its page, and the files that were written."""

    study: Study
    table: Any
    page: Page
    figures: tuple[Path, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The studies that were made, by name, and the seconds that took; `left_out` says why others were not."""

    made: Mapping[str, Made]
    seconds: float
    left_out: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def claims(self) -> dict[str, Sequence[Judged]]:
        """Claims by study."""
        return {name: made.page.claims for name, made in self.made.items()}

    @property
    def written(self) -> tuple[Path, ...]:
        """All files, study by study."""
        return tuple(path for made in self.made.values() for path in (*made.figures, *made.files))

    def as_dict(self) -> dict[str, Any]:
        """Files, claims and cells, for JSON."""
        claims = {name: [claim.as_dict() for claim in claims] for name, claims in self.claims.items()}
        figures = [str(path) for made in self.made.values() for path in made.figures]
        files = [str(path) for made in self.made.values() for path in made.files]
        return {"figures": figures, "files": files, "claims": claims, "seconds": self.seconds, **self.more}


def reproduce(
    paper: str,
    what: str | Iterable[str] = "all",
    *,
    out: str | Path,
    effort: str | int = "quick",
    again: bool = False,
    on_event: OnEvent | None = None,
    **settings: Any,
) -> Reproduction:
    """Make some studies of a paper, or all, in the folder `out`: pictures, pages, tables (CSV) and JSON.

    `effort` is quick, full (the paper's) or a number in the paper's unit; `again` computes what is kept or on
    record anew; `settings` are those of the paper's `tables`, which see. Raises `InvalidValueError` for an
    unknown name or wrong settings, `OutputFileError`, before any work, if `out` cannot be written,
    `MissingPackageError` without matplotlib, KeyboardInterrupt on Ctrl-C, saying what is kept, and as `tables`.
    """
    one_of("paper", paper, PAPERS)
    began, folder, names = time.monotonic(), Path(out), studies_of(paper).find(what)
    need("matplotlib", work="drawing", extra="report")
    need_writable(folder / "cells" / "cell.nc")
    clear_leftovers(folder)
    package = importlib.import_module(f"posbias_papers.{paper}")
    tables = package.tables(names, folder, effort=effort, again=again, on_event=on_event, **settings)
    for name, reason in tables.left_out.items():
        log.info("%s: left out, %s", name, reason)
    made = {
        name: write(STUDIES[f"{paper}/{name}"], frame, tables.effort, folder)
        for name, frame in tables.frames.items()
    }
    return Reproduction(made, time.monotonic() - began, tables.left_out, tables.more)


def write(study: Study, table: Any, effort: str, folder: Path) -> Made:
    """Judge a study on its table, draw it and write it: NAME.svg, .png, .md, .json and .csv in `folder`.

    `effort` is that which every cell has at least. Raises `OutputFileError`.
    """
    from posbias.reports.plots.style import save_figure

    log.info("drawing %s …", study.name)
    page = page_of(study, table)
    figures = ()
    if study.draw is not None:
        figure = study.draw(table, page.note)
        figures = tuple(save_figure(figure, folder / f"{study.name}.{kind}") for kind in PICTURES)
    files = [
        write_text(folder / f"{study.name}.md", page.markdown()),
        save_json(content_of(study, page, effort), folder / f"{study.name}.json"),
    ]
    if hasattr(table, "to_csv"):
        numbers = table[[name for name, kind in table.dtypes.items() if str(kind) != "object"]]
        files.append(write_text(folder / f"{study.name}.csv", numbers.to_csv(float_format="%.9g")))
    return Made(study, table, page, figures, tuple(files))


def page_of(study: Study, table: Any) -> Page:
    """The page of a study with its title and its claims, judged on the table."""
    title = f"{study.source}, {study.label}: {study.title}"
    return replace(study.page(table), title=title, claims=study.judged(table))


def content_of(study: Study, page: Page, effort: str) -> dict[str, Any]:
    """What the study's JSON holds; `effort` as of `write`."""
    about = {"name": study.name, "title": f"{study.label}: {study.title}", "source": study.source}
    return json.loads(dump_json(about | {"version": VERSION, "effort": effort} | page.as_dict()))


# --- all papers --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """The studies that a run over papers made, those of which there is nothing to show, those that failed."""

    made: tuple[str, ...]
    left_out: Mapping[str, str]
    failed: Mapping[str, str]
    seconds: float


def make_all(
    folder: str | Path,
    names: str | Iterable[str] = (),
    *,
    effort: str = "quick",
    models: Sequence[str] = (),
    configs: str | Path | None = None,
    engine: Any = None,
    again: bool = False,
    on_event: OnEvent | None = None,
) -> Ran:
    """Make every study of `names` (papers or studies; none: all) in `folder`, from fastest to slowest.

    What is on record at the effort, quick or full, or a greater one is drawn from that unless `again`. `models`
    are those of Herasimchyk et al. 2026 (none: those available here), `configs` a folder of the authors'
    rollout files; `engine` does the training and the statements (None: the cores here). A part that fails stops
    no other and is in `Ran.failed`. Raises `InvalidValueError` for an unknown name or effort, `OutputFileError`
    before any work if `folder` cannot be written, `MissingPackageError` without matplotlib, and
    KeyboardInterrupt on Ctrl-C.
    """
    if effort not in EFFORTS:
        raise InvalidValueError(f"effort: expected quick or full, got {shortened(effort)}")
    began, folder = time.monotonic(), Path(folder)
    studies = find_studies(names)
    if any(study.name != STATEMENTS for study in studies):
        need("matplotlib", work="drawing", extra="report")
    need_writable(folder / "papers.html")
    made: list[str] = []
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    measured = {"models": tuple(models), "configs": configs}
    settings = {"effort": effort, "engine": engine, "again": again, "on_event": on_event}
    for part, make in _parts(folder, studies, measured, **settings):
        try:
            reasons = make()
        except KeyboardInterrupt as stopped:
            detail = f" ({stopped})" if str(stopped) else ""
            raise KeyboardInterrupt(f"what is finished is kept in {folder}{detail}") from None
        except Exception as error:
            # the other parts are to be made all the same
            absent = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
            known = absent is not None or isinstance(error, PosbiasError)
            message = str(absent or error) if known else f"{type(error).__name__}: {error}"
            failed |= dict.fromkeys(part, message)
            log.error("%s: %s", ", ".join(part), message)
            continue
        left_out |= reasons
        made += [key for key in part if key not in reasons]
    return Ran(tuple(made), left_out, failed, time.monotonic() - began)


Part = tuple[list[str], Callable[[], Mapping[str, str]]]
"""Keys of studies that are made together, and what makes them and returns why some were left out."""


def _parts(
    folder: Path,
    studies: Sequence[Study],
    measured: Mapping[str, Any],
    *,
    effort: str,
    again: bool,
    **how: Any,
) -> Iterator[Part]:
    """Statements, what is drawn from records, then the papers, fastest first."""
    if stated := [study for study in studies if study.name == STATEMENTS]:
        yield [study.key for study in stated], lambda: _try(folder, stated, effort, **how)
    rest: list[Study] = []
    for study in (study for study in studies if study.name != STATEMENTS):
        record = None if again else study.recorded(study)
        if record is not None and record.whole and effort in record.serves:
            yield [study.key], lambda study=study, record=record: _draw_recorded(folder, study, record)
        else:
            rest.append(study)
    for paper in ("kim2026", "herasimchyk2026", "wu2025"):
        own = [study.key for study in rest if study.paper == paper]
        for part in ([key for key in own if key != SHUFFLED], [key for key in own if key == SHUFFLED]):
            common = {"effort": effort, "again": again, "on_event": how["on_event"]}
            if part and paper == "herasimchyk2026":
                yield part, lambda part=part, common=common: _measure(folder, part, **measured, **common)
            elif part:
                more = common | ({"engine": how["engine"]} if paper == "wu2025" else {})
                yield part, lambda part=part, more=more: _compute(folder, part, **more)


def _try(folder: Path, stated: Sequence[Study], effort: str, **how: Any) -> dict[str, str]:
    from posbias_papers.theorems import try_statements

    try_statements(folder, [study.paper for study in stated], instances=INSTANCES[effort], **how)
    return {}


def _draw_recorded(folder: Path, study: Study, record: Recorded) -> dict[str, str]:
    write(study, record.table(), record.effort, folder / study.paper)
    return {}


def _compute(folder: Path, keys: Sequence[str], **settings: Any) -> dict[str, str]:
    paper, names = keys[0].partition("/")[0], [key.partition("/")[2] for key in keys]
    made = reproduce(paper, names, out=folder / paper, **settings)
    return {f"{paper}/{name}": reason for name, reason in made.left_out.items()}


def _measure(
    folder: Path, keys: Sequence[str], *, models: Sequence[str], configs: Any, **settings: Any
) -> dict[str, str]:
    """The same of language models; one that was not asked for by name and cannot be had is done without."""
    further = [*keys] == [SHUFFLED]
    options = settings | {"configs": configs, "scramble": further}
    if models or further:
        return _compute(folder, keys, models=() if models == ("none",) else models or SMALL_MODEL, **options)
    try:
        return _compute(folder, keys, **options)
    except (ModelError, MissingPackageError) as error:
        log.warning("%s; going on with %s alone", error, ", ".join(SMALL_MODEL))
        return _compute(folder, keys, models=SMALL_MODEL, **options)
