"""Compute a paper's cells, judge and draw its studies, and write them: files, pages, JSON.

    from posbias_papers.reproduction import reproduce

    made = reproduce("kim2026", ["fig1", "section3"], out="results/kim2026")
    print(*made.claims["fig1"], sep="\n")

`reproduce` makes studies of one paper, `make_all` those of all papers. Cells are kept in OUT/cells, where all
studies find those they share; after an interruption the same call goes on.
"""

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posbias.core.errors import PosbiasError, one_of
from posbias.core.files import clear_leftovers, need_writable, write_text
from posbias.core.formats import VERSION, dump_json, save_json
from posbias.core.packages import missing as missing_package
from posbias.core.packages import need
from posbias.core.progress import OnEvent
from posbias_papers.claims import Judged
from posbias_papers.pages import Page
from posbias_papers.registry import PAPERS, find_studies
from posbias_papers.study import EFFORTS, STATEMENTS, Recorded, Study, Tables
from posbias_papers.theorems import INSTANCES, try_statements

log = logging.getLogger("posbias.papers")
PICTURES = ("svg", "png")


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

    @property
    def claims(self) -> dict[str, Sequence[Judged]]:
        """Claims by study."""
        return {name: made.page.claims for name, made in self.made.items()}

    @property
    def written(self) -> tuple[Path, ...]:
        """All files, study by study."""
        return tuple(path for made in self.made.values() for path in (*made.figures, *made.files))

    def as_dict(self) -> dict[str, Any]:
        """Files, claims, what pages have of cells and printed numbers, each once, and of rows, for JSON."""
        pages = {name: made.page.data for name, made in self.made.items()}
        rows: dict[str, Any] = {
            key: [*{dump_json(row): row for data in pages.values() for row in data.get(key, ())}.values()]
            for key in ("cells", "published")
            if key == "cells" or any(key in data for data in pages.values())
        }
        if tables := {name: data for name, data in pages.items() if "stand_in" in data}:
            rows["tables"] = tables
        claims = {name: [claim.as_dict() for claim in claims] for name, claims in self.claims.items()}
        figures = [str(path) for made in self.made.values() for path in made.figures]
        files = [str(path) for made in self.made.values() for path in made.files]
        return {"figures": figures, "files": files, "claims": claims, "seconds": self.seconds, **rows}


def reproduce(
    paper: str,
    what: str | Iterable[str] = "all",
    *,
    out: str | Path,
    effort: str | int = "quick",
    again: bool = False,
    recorded: bool = False,
    on_event: OnEvent | None = None,
    **settings: Any,
) -> Reproduction:
    """Make some studies of a paper, or all, in the folder `out`: pictures, pages, tables (CSV) and JSON.

    `effort` is quick, full (the paper's) or a number in the paper's unit; `again` computes what is kept or on
    record anew; with `recorded` a study is drawn from what is on record of at least that effort, if all of it
    is. `settings` are those of the paper's `tables`, which see. Raises `InvalidValueError` for an unknown name
    or wrong settings, `OutputFileError`, before any work, if `out` cannot be written, `MissingPackageError`
    without matplotlib, KeyboardInterrupt on Ctrl-C, saying what is kept, and as `tables`.
    """
    package = PAPERS[one_of("paper", paper, PAPERS)]
    began, folder, studies = time.monotonic(), Path(out), package.studies
    names = studies.find(what)
    need("matplotlib", work="drawing", extra="report")
    need_writable(folder / "cells" / "cell.nc")
    clear_leftovers(folder)
    made: dict[str, Made] = {}
    for name in names:
        if recorded and (one := serving(studies[name], effort)):
            log.info("%s: from the record (%s); --rerun makes it anew", name, one)
            made[name] = write(studies[name], one.table(), one.effort, folder)
    tables = Tables({}, "")
    if rest := [name for name in names if name not in made]:
        tables = package.tables(rest, folder, effort=effort, again=again, on_event=on_event, **settings)
    for name, reason in tables.left_out.items():
        log.info("%s: left out, %s", name, reason)
    made |= {
        name: write(studies[name], frame, tables.effort, folder) for name, frame in tables.frames.items()
    }
    return Reproduction(made, time.monotonic() - began, tables.left_out)


def serving(study: Study, effort: str | int) -> Recorded | None:
    """What is on record of a study, if that is all of it at an effort or a greater one."""
    record = study.recorded(study)
    return record if record is not None and record.whole and effort in record.serves else None


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
    are those of Herasimchyk et al. 2026 (none: its record, or those available here), `configs` a folder of the
    authors' rollout files; `engine` does the training and the statements (None: the cores here). A part that
    fails stops no other and is in `Ran.failed`. Raises `InvalidValueError` for an unknown name or effort,
    `OutputFileError` before any work if `folder` cannot be written, `MissingPackageError` without matplotlib, and
    KeyboardInterrupt on Ctrl-C.
    """
    one_of("effort", effort, EFFORTS)
    began, folder = time.monotonic(), Path(folder)
    studies = find_studies(names)
    if any(study.name != STATEMENTS for study in studies):
        need("matplotlib", work="drawing", extra="report")
    need_writable(folder / "papers.html")
    options = {"engine": engine, "models": tuple(models), "configs": configs}
    shared = {"effort": effort, "again": again, "on_event": on_event}
    made: list[str] = []
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    for part in _parts(studies, None if again else effort):
        try:
            reasons = _make(folder, part, options, **shared)
        except KeyboardInterrupt as stopped:
            detail = f" ({stopped})" if str(stopped) else ""
            raise KeyboardInterrupt(f"what is finished is kept in {folder}{detail}") from None
        except Exception as error:
            # the other parts are to be made all the same
            absent = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
            known = absent is not None or isinstance(error, PosbiasError)
            message = str(absent or error) if known else f"{type(error).__name__}: {error}"
            failed |= {study.key: message for study in part}
            log.error("%s: %s", ", ".join(study.key for study in part), message)
            continue
        left_out |= reasons
        made += [study.key for study in part if study.key not in reasons]
    return Ran(tuple(made), left_out, failed, time.monotonic() - began)


def _parts(studies: Sequence[Study], effort: str | None) -> list[list[Study]]:
    """Studies that are made together: statements, then paper by paper, fastest first, what is on record at an
    effort (None: nothing is used), and the rest."""
    parts: dict[Any, list[Study]] = {}
    for study in studies:
        order = -1.0 if study.name == STATEMENTS else PAPERS[study.paper].minutes
        computed = effort is None or serving(study, effort) is None
        parts.setdefault((order, computed, study.apart), []).append(study)
    return [parts[place] for place in sorted(parts)]


def _make(
    folder: Path, part: Sequence[Study], options: Mapping[str, Any], **shared: Any
) -> Mapping[str, str]:
    """Make the studies of a part, and say why some were left out."""
    paper, names = part[0].paper, [study.name for study in part]
    if names[0] == STATEMENTS:
        how: dict[str, Any] = {"instances": INSTANCES[shared["effort"]], "on_event": shared["on_event"]}
        how |= {"engine": options["engine"], "recorded": not shared["again"]}
        try_statements(folder, [study.paper for study in part], **how)
        return {}
    settings = PAPERS[paper].settings(names, **options)
    recorded = not (shared["again"] or settings.get("models") or settings.get("configs"))
    made = reproduce(paper, names, out=folder / paper, recorded=recorded, **settings, **shared)
    return {f"{paper}/{name}": reason for name, reason in made.left_out.items()}
