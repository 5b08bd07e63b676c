"""A study of our own: cells that are computed once, tables and a figure of their results.

A cell is a frozen dataclass of plain fields with a method `compute`; its result is kept in OUT/cells. Cells of
language models and of training are in `records.jsonl` too, as they take long: these are used unless `rerun`.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core import store
from posbias.core.files import need_writable, write_text
from posbias.core.progress import OnEvent
from posbias.core.running import Engine
from posbias_papers.pages import Page, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = Mapping[str, Any]
"""What a cell computes, in JSON's terms."""
Results = Mapping[Any, Result]
"""Results by cell."""
SMALL = ("tiny-nope", "tiny-alibi", "tiny-rope", "tiny-learned", "tiny-window")
"""Decoders of ours that differ in the encoding alone (`docs/evidence.md`)."""
RECORDS = Path(__file__).with_name("records.jsonl")
"""Results that come along, a line each: the fingerprint and specification of a cell, what made it, its result."""


@dataclasses.dataclass(frozen=True)
class Cell(store.Cell):
    """One computation; `kind` is the word in its files, another for each class."""

    @property
    def specification(self) -> dict[str, Any]:
        """Its fields, which decide the result."""
        return dataclasses.asdict(self)

    @property
    def name(self) -> str:
        """Its kind and its fields, such as designed_cell-window13-decay0.13."""
        return "-".join([self.kind, *(f"{key}{value}" for key, value in self.specification.items())])


@dataclasses.dataclass(frozen=True, eq=False)
class Extension:
    """A question, its cells, tables and figure of their results, the page about it, and minutes on two cores."""

    name: str
    question: str
    page: str
    cells: tuple[Cell, ...]
    tables: Callable[[Results], Iterable[Table]]
    draw: "Callable[[Results], Figure] | None" = None
    minutes: float = 1.0

    def make(
        self,
        out: str | os.PathLike[str],
        *,
        rerun: bool = False,
        engine: Engine | None = None,
        on_event: OnEvent | None = None,
    ) -> tuple[Path, ...]:
        """Write NAME.md, and NAME.svg and NAME.png where there is a figure, to the folder `out`; return the files.

        Cells on record or in OUT/cells are used unless `rerun`. Raises `OutputFileError` before any work if `out`
        cannot be written, `MissingPackageError` without matplotlib or torch where it needs them,
        KeyboardInterrupt on Ctrl-C (finished cells are kept).
        """
        from posbias.reports.plots.style import save_figure

        folder = Path(out)
        need_writable(folder / f"{self.name}.md")
        known = {} if rerun else self.recorded()
        missing = [cell for cell in self.cells if cell not in known]
        kept = store.Store(folder / "cells")
        done = store.compute(missing, kept, engine=engine, again=rerun, on_event=on_event)
        by_cell = {**known, **done.results()}
        results = {cell: by_cell[cell] for cell in self.cells}
        page = Page(self.question, f"See {self.page}", tuple(self.tables(results)))
        files = [write_text(folder / f"{self.name}.md", page.markdown())]
        if self.draw is not None:
            figure = self.draw(results)
            files += [save_figure(figure, folder / f"{self.name}.{kind}") for kind in ("svg", "png")]
        return tuple(files)

    def recorded(self) -> dict[Cell, Result]:
        """The results on record of its cells."""
        known = _records()
        return {cell: known[cell.fingerprint] for cell in self.cells if cell.fingerprint in known}


@functools.cache
def _records() -> dict[str, Result]:
    lines = map(json.loads, RECORDS.read_text(encoding="utf-8").splitlines())
    return {line["fingerprint"]: line["content"] for line in lines}


def rounded(values: Iterable[float], digits: int = 4) -> list[float]:
    """The same to `digits` significant digits, which is what records keep."""
    return [float(f"{value:.{digits}g}") for value in values]
