"""A result's page as a value: what it rests on, its tables, its claims; written as Markdown and JSON."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from posbias.core.progress import one_line
from posbias.profiles.estimate import Estimate
from posbias_papers.claims import Judged, tally


@dataclass(frozen=True)
class Table:
    """A table: what stands above it, its head, and rows of words; all of it Markdown within a line."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(cls, caption: str, rows: Iterable[Mapping[str, Any]]) -> Self:
        """A table of rows by column: numbers to three digits, estimates with their error, a dash for none."""
        rows = list(rows)
        head = [*dict.fromkeys(name for row in rows for name in row)]
        return cls(caption, head, [[_word(row.get(name)) for name in head] for row in rows])

    def markdown(self) -> list[str]:
        """Its lines, an empty one at the end."""
        head, *rows = (" | ".join(map(_cell, row)) for row in (self.head, *self.rows))
        lines = [f"{_safe(self.caption)}:", "", f"| {head} |", f"|{'---|' * len(self.head)}"]
        return [*lines, *(f"| {row} |" for row in rows), ""]


@dataclass(frozen=True)
class Page:
    """A page: its title, a note on what its numbers rest on, tables, and judged claims with all their evidence.

    `data` are numbers that its JSON has in addition.
    """

    title: str = ""
    note: str = ""
    tables: tuple[Table, ...] = ()
    claims: tuple[Judged, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """The page as a text file."""
        lines = [f"# {_safe(self.title)}", "", _safe(self.note), ""]
        for table in self.tables:
            lines += table.markdown()
        for whose, counts in tally(self.claims).items():
            counted = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
            lines += [f"{'Ours: ' * (whose == 'ours')}{counted}", ""] if sum(counts.values()) else []
        for claim in self.claims:
            whose = "ours" if claim.claim.provenance == "ours" else claim.claim.place
            lines.append(f"- **{claim.mark}**: {_safe(claim.sentence)} ({whose or 'of the paper'})")
            lines += [f"  - {_safe(str(piece))}" for piece in claim.shown]
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        claims = [claim.as_dict() for claim in self.claims]
        tables = [vars(table) for table in self.tables]
        return {"note": self.note, "tables": tables, "claims": claims, **self.data}


def _word(value: Any) -> str:
    """A value as a table has it: '−0.123', '0.12 ± 0.01', 'yes', '–' for none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value != value or (isinstance(value, Estimate) and math.isnan(value.value)):
        return "–"
    if isinstance(value, float):
        return f"{value or 0.0:.3g}".replace("-", "−")
    return (str(value) if isinstance(value, Estimate) else f"{value:,}").replace("-", "−")


def _safe(text: str) -> str:
    """Markdown within a line, without HTML, links or what a terminal obeys: names are taken as they are."""
    return _escaped(r"<(?=[A-Za-z/!?])|(?<=\])\(", one_line(text, None))


def _cell(text: str) -> str:
    """The same in a table, whose cells end at a bar."""
    return _escaped(r"\|", _safe(text))


def _escaped(pattern: str, text: str) -> str:
    """A backslash before what matches, where there is none that is not escaped itself."""
    return re.sub(rf"(?<!\\)((?:\\\\)*)({pattern})", r"\1\\\2", text)
