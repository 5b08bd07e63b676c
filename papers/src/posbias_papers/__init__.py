"""The figures, tables and printed numbers of the papers, drawn again: one module per paper.

    from posbias_papers.kim2026 import reproduce

    reproduce("fig1", samples=1_000_000, out="results/kim2026")

A paper's package has `STUDIES` (`study`), by name, and `reproduce`.
"""

from collections.abc import Iterable
from pathlib import Path

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest

__all__ = ["MODELS", "PAPERS", "find_figures"]
__version__ = "0.3.0"

MODELS = Path(__file__).with_name("models")
"""Small decoders of our own, a folder each: `tiny-alibi` and its like, where this package is installed."""

PAPERS = ("wu2025", "herasimchyk2026", "kim2026")
"""The papers, by citation key, in the order of all lists."""


def find_figures(what: str, known: Iterable[str]) -> tuple[str, ...]:
    """The figures that `what` means: one, or with "all" all. Raises `InvalidValueError`, naming the nearest."""
    known = tuple(known)
    if what != "all" and what not in known:
        choices = (*known, "all")
        raise InvalidValueError(
            f"figure: {shortened(what)} given, one of {', '.join(choices)} needed{nearest(what, choices)}"
        )
    return known if what == "all" else (what,)
