"""A result's page as a value: what it rests on, its tables, its claims; written as Markdown and JSON.

The page of three papers reads the JSON (`Page.from_dict`): nothing that was set as text is taken apart again.
"""

import csv
import io
import math
import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from posbias.core.errors import InvalidValueError
from posbias.core.progress import one_line
from posbias.profiles.claims import Judged, tally
from posbias.profiles.estimate import Estimate


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

    def csv(self) -> str:
        """Head and rows as comma-separated values (RFC 4180, but for line ends)."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((self.head, *self.rows))
        return text.getvalue()

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """A table from JSON. Raises `InvalidValueError` for what is none."""
        match data:
            case {"caption": str(caption), "head": [*head], "rows": [*rows]} if all(
                isinstance(row, list) and len(row) == len(head) for row in rows
            ):
                return cls(caption, list(map(str, head)), [list(map(str, row)) for row in rows])
        raise InvalidValueError(
            "tables: expected a caption, a head and rows as long as it, got another value"
        )


@dataclass(frozen=True)
class Page:
    """A page: its title, a note on what its numbers rest on, tables, and judged claims with all their evidence."""

    title: str = ""
    note: str = ""
    tables: tuple[Table, ...] = ()
    claims: tuple[Judged, ...] = ()

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
        return {"note": self.note, "tables": [vars(table) for table in self.tables], "claims": claims}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Note and tables from JSON, where it has them. Raises `InvalidValueError` for tables that are none."""
        listed = data.get("tables", [])
        tables = tuple(map(Table.from_dict, listed if isinstance(listed, list) else [listed]))
        return cls(note=str(data.get("note", "")), tables=tables)


@dataclass(frozen=True)
class Picture:
    """A saved figure as a page shows it: its file, and the width and height of what is shown, in CSS pixels.

    `height` leaves out the words beneath a captioned figure, which the page says as text. `file` is empty where
    there is none; `why` then says so, in words for a person.
    """

    file: str = ""
    width: float = 0
    height: float = 0
    why: str = ""


def picture(folder: str | os.PathLike[str], name: str) -> Picture:
    """The figure NAME.svg or NAME.png of `folder`, the next where one is damaged."""
    wrong = []
    for kind, shown in (("svg", _size_of_svg), ("png", _size_of_png)):
        file = Path(folder) / f"{name}.{kind}"
        try:
            if size := shown(file.read_bytes()):
                return Picture(str(file), *size)
            wrong.append(f"{file.name} {'is no PNG' if kind == 'png' else 'cannot be read'}")
        except FileNotFoundError:
            continue
        except OSError:
            wrong.append(f"{file.name} cannot be read")
    return Picture(why=" and ".join(wrong))


def _size_of_svg(content: bytes) -> tuple[float, float] | None:
    box = re.search(rb'viewBox="\S+ \S+ ([\d.]+) ([\d.]+)"', content)
    if box is None or not content.rstrip().endswith(b"</svg>"):
        return None
    panels = re.search(rb'id="subfigure_1">\s*<g id="\w+">\s*<path d="M \S+ ([\d.]+)', content)
    return float(box[1]) * 4 / 3, float((panels or box)[1 if panels else 2]) * 4 / 3


def _size_of_png(content: bytes) -> tuple[float, float] | None:
    from posbias.reports.plots.style import DPI

    if content[:8] != b"\x89PNG\r\n\x1a\n" or len(content) < 24:
        return None
    width, height = (pixels * 96 / DPI for pixels in struct.unpack(">II", content[16:24]))
    return width, height


def _word(value: Any) -> str:
    """A value as a table has it: '−0.123', '0.12 ± 0.01', 'yes', '–' for none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value != value or (isinstance(value, Estimate) and math.isnan(value.value)):
        return "–"
    text = (
        str(value)
        if isinstance(value, Estimate)
        else f"{value:.3g}"
        if isinstance(value, float)
        else f"{value:,}"
    )
    return text.replace("-", "−")


def _safe(text: str) -> str:
    """Markdown within a line, without HTML, links or what a terminal obeys: names bring what they like."""
    return _escaped(r"<(?=[A-Za-z/!?])|(?<=\])\(", one_line(text, None))


def _cell(text: str) -> str:
    """The same in a table, whose cells end at a bar."""
    return _escaped(r"\|", _safe(text))


def _escaped(pattern: str, text: str) -> str:
    """A backslash before what matches, where there is none that is not escaped itself."""
    return re.sub(rf"(?<!\\)((?:\\\\)*)({pattern})", r"\1\\\2", text)
