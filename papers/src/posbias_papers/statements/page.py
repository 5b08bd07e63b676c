"""The table of all statements as it stands in the documentation: what was claimed, what stands, and why.

A page holds the table between two marks; `update_page` tries all statements and writes it anew, leaving the
words around it alone. The table has verdicts and no margins, so that it does not change with the machine, the
seed or the number of instances, unless a statement does.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from posbias.core.files import write_between
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.run import Finding, verify
from posbias_papers.statements.statement import Statement

BEGIN, END = "<!-- statements -->", "<!-- end of statements -->"
"""The marks before and after the table."""


def theorems_table(findings: Iterable[Finding], elsewhere: Mapping[str, str] | None = None) -> str:
    """The findings as a Markdown table, in the order given, and a line that counts the verdicts.

    The claim is that of the reading that stands: as amended where the printed one fails. What a statement
    asserts beyond its proof has a line of its own. Of a note the first sentence stands there, after the true
    value and the printed bound of a counterexample. `elsewhere` has for the keys of amended statements the
    Markdown that stands in its place: a link to where the fault is told.
    """
    elsewhere = elsewhere or {}
    lines = ["| statement | claim that stands | verdict | note |", "|---|---|---|---|"]
    verdicts = []
    for finding in findings:
        row, found = finding.as_dict(), finding.compared
        verdicts.append(finding.mark)
        if finding.asserted:
            about = [
                f"`{row['key']}` {finding.statement.name}",
                row["asserts"]["claim"],
                finding.asserted,
                "",
            ]
            lines.append(f"| {' | '.join(map(_escaped, about))} |")
        cells = [f"`{row['key']}` {_escaped(row['statement'])}", _escaped(row["claim"]), finding.mark]
        told = elsewhere.get(row["key"]) if finding.corrected_verdict == "holds" else None
        told = told or _escaped(first_sentence(row["note"]))
        numbers = found and f"true value {found.value:.3g}, printed bound {found.bound:.3g}"
        lines.append(f"| {' | '.join([*cells, '; '.join(filter(None, [numbers, told]))])} |")
    counts = ", ".join(f"{verdicts.count(mark)} {mark}" for mark in dict.fromkeys(verdicts))
    return "\n".join([*lines, "", f"{len(verdicts)} statements: {counts}."])


def update_page(
    path: Path | str,
    instances: int = 1000,
    statements: Sequence[Statement] = STATEMENTS,
    elsewhere: Mapping[str, str] | None = None,
) -> str:
    """Try `statements` and write their table into the page at `path`, as `theorems_table` has it; returns it.

    Raises `InputFileError` for a page without the two marks.
    """
    table = theorems_table(verify(statements, instances=instances), elsewhere)
    write_between(path, BEGIN, END, table)
    return table


def first_sentence(note: str) -> str:
    """The first sentence of a statement's note, without the verdict that it may begin with and its full stop."""
    first = re.split(r"(?<!Eq)\. (?=[A-Z(])", note, maxsplit=1)[0].removesuffix(".")
    rest = re.sub(r"^Holds(?:[;:,]? |$)", "", first)
    return rest[:1].upper() + rest[1:] if rest != first and rest[:1].isascii() else rest


def _escaped(text: str) -> str:
    """Text of a table's cell: what Markdown would take for its own is marked."""
    for sign in ("\\", "|", "*", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text
