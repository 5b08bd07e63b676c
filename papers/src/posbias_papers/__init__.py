"""The figures, tables and printed numbers of the papers, drawn again: one module per paper.

    from posbias_papers.reproduction import reproduce

    reproduce("kim2026", "fig1", out="results/kim2026")

A paper's package has its `PAPER` (`study`): what it says, its studies by name, and what computes their tables.
"""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from posbias.core.errors import InvalidValueError, nearest, shortened

__all__ = ["MODELS"]
__version__ = "0.3.0"

MODELS = Path(__file__).with_name("models")
"""Small decoders of our own, a folder each: `tiny-alibi` and its like, where this package is installed."""
SMALL = ("tiny-nope", "tiny-alibi", "tiny-rope", "tiny-learned", "tiny-window")
"""Decoders of ours that differ in the encoding alone (`docs/evidence.md`)."""
Thing = TypeVar("Thing")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file, by column; lines that begin with # are about it."""
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(line for line in file if line[0] != "#")]


def choose(
    expected: str,
    things: Iterable[Thing],
    names: str | Iterable[str],
    called: Callable[[Thing], Iterable[str]],
) -> list[Thing]:
    """The things that have one of these names, in their order; without names all.

    Raises `InvalidValueError` for an unknown name: "`expected`, got …", with the nearest.
    """
    wanted = [names] if isinstance(names, str) else [*names]
    known = [(one, {*called(one)}) for one in things]
    choices = list(dict.fromkeys(name for _, own in known for name in sorted(own)))
    for name in wanted:
        if name not in choices:
            raise InvalidValueError(f"{expected}, got {shortened(name)}{nearest(name, choices)}")
    return [one for one, own in known if not wanted or own & {*wanted}]
