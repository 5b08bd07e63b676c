"""The figures, tables and printed numbers of the papers, drawn again: one module per paper.

    from posbias.papers.kim2026 import reproduce

    reproduce("fig1", samples=1_000_000, out="results/kim2026")

A paper's module has `FIGURES`, by name, and `reproduce`; the simulations behind them are kept by `cells`.
"""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from posbias.errors import InvalidValueError, nearest

PAPERS = ("kim2026",)
"""Citation keys of the papers whose figures can be drawn."""

__all__ = ["PAPERS", "find_figures", "find_paper"]


def find_paper(name: str) -> ModuleType:
    """The module of a paper. Raises `InvalidValueError` for one that is not there, naming the nearest."""
    if name not in PAPERS:
        needed = PAPERS[0] if len(PAPERS) == 1 else f"one of {', '.join(PAPERS)}"
        raise InvalidValueError(f"paper: {name!r} given, {needed} needed{nearest(name, PAPERS)}")
    return import_module(f"posbias.papers.{name}")


def find_figures(what: str, known: Iterable[str]) -> tuple[str, ...]:
    """The figures that `what` means: one, or with "all" all. Raises `InvalidValueError`, naming the nearest."""
    known = tuple(known)
    if what != "all" and what not in known:
        choices = (*known, "all")
        raise InvalidValueError(
            f"figure: {what!r} given, one of {', '.join(choices)} needed{nearest(what, choices)}"
        )
    return known if what == "all" else (what,)
