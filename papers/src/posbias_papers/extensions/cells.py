"""The cells of our own studies: computed once, kept, and some on record.

A cell is a frozen dataclass of plain fields with a method `compute`; its result is kept in OUT/cells. Cells of
language models and of training are in `records.jsonl` too, as they take long: these are used unless `rerun`.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from posbias.core import store
from posbias_papers.pages import Page, Table
from posbias_papers.study import Study, titled

Result = Mapping[str, Any]
"""What a cell computes, in JSON's terms."""
Results = Mapping[Any, Result]
"""Results by cell."""
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


def on_record(cells: Iterable[Cell]) -> dict[Cell, Result]:
    """The results on record of some cells."""
    known = _records()
    return {cell: known[cell.fingerprint] for cell in cells if cell.fingerprint in known}


@functools.cache
def _records() -> dict[str, Result]:
    lines = map(json.loads, RECORDS.read_text(encoding="utf-8").splitlines())
    return {line["fingerprint"]: line["content"] for line in lines}


def rounded(values: Iterable[float], digits: int = 4) -> list[float]:
    """The same to `digits` significant digits, which is what records keep."""
    return [float(f"{value:.{digits}g}") for value in values]


def own_study(
    name: str,
    cells: Iterable[Cell],
    minutes: float,
    tables: Callable[[Results], Iterable[Table]],
    draw: Callable[[Results], Any] | None = None,
    document: str = "docs/evidence.md",
) -> Study:
    """A study of ours, which has no claims: its cells, the tables of its page, and its figure."""
    return Study(
        *titled(f"extensions/{name}"),
        (),
        tuple(cells),
        (minutes, minutes),
        "cells",
        page=lambda results: Page(note=f"See {document}", tables=tuple(tables(results))),
        draw=draw and (lambda results, caption: draw(results)),
        document=document,
    )
