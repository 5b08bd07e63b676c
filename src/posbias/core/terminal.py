"""Numbers and tables as lines of text: aligned columns, wrapped on a terminal, each row a line in a pipe."""

import itertools
import math
import shutil
import sys
import textwrap


class Row(str):
    """A line of a table, which `fitted` leaves as it is."""

    __slots__ = ()


def plain(value: float) -> str:
    """A number without an exponent: 16,384, 0.25, 0.0001; of one that is not whole, four digits."""
    if not math.isfinite(value) or float(value).is_integer():
        return f"{value:,.0f}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Rows under a head, as lines with aligned columns.

    On a terminal that is narrower, cells go on in further lines, those of the widest columns first; words are
    never broken.
    """
    every, width = [head, *rows], terminal_width()
    widths = [max(len(row[k]) for row in every) for k in range(len(head))]
    if width is not None:
        least = [max(len(word) for row in every for word in row[k].split() or [""]) for k in range(len(head))]
        widths = _narrowed(widths, least, width - len(_BETWEEN) * (len(head) - 1))
        every = [line for row in every for line in _folded(row, widths)]
    return [
        Row(_BETWEEN.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for row in every
    ]


_BETWEEN = "  "


def _narrowed(widths: list[int], least: list[int], room: int) -> list[int]:
    """The widths, the widest made narrower until all fit in `room` or none can be."""
    widths = list(widths)
    while sum(widths) > room:
        spare = [k for k, width in enumerate(widths) if width > least[k]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _folded(row: list[str], widths: list[int]) -> list[list[str]]:
    """A row as lines of cells that are at most so wide."""
    cells = [
        [cell] if len(cell) <= width else _wrapped(cell, width)
        for cell, width in zip(row, widths, strict=True)
    ]
    return [list(line) for line in itertools.zip_longest(*cells, fillvalue="")]


def fitted(lines: list[str]) -> list[str]:
    """Lines for stdout: on a terminal prose is wrapped to its width; tables and indented lines stay."""
    width = terminal_width()
    if width is None:
        return lines
    loose = [not isinstance(line, Row) and len(line) > width and not line[0].isspace() for line in lines]
    return [
        part
        for line, wrap in zip(lines, loose, strict=True)
        for part in (_wrapped(line, width) if wrap else [line])
    ]


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is a file or a pipe, whose lines are for programs."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
