"""The pages of the site that are made from the statements and errata.

    python -m posbias_papers.statements.pages docs/made

`theorems.md` says of every statement what was claimed, what holds, and why; `errata.md` has the errata, entry by
entry. The table of statements has verdicts and no margins, so that it does not change with the machine.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from posbias.core.files import write_text
from posbias.core.sources import cite
from posbias_papers.errata import ERRATA, REMARKS
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.trials import Finding, verify

INSTANCES = 20
"""Enough for a page: a printed reading that fails brings its witness."""
THEOREMS = """# Theorems, tried

Every numbered statement of the three papers, tried on random and adversarial instances. Where it or a step of its
proof fails, the reading that holds stands in its place. λ is the weight of attention, ε the smallest admitted
weight; positions count as in the paper unless a claim says otherwise.
"""
ERRATA_HEAD = """# Errata

Where a paper, its code and the truth disagree: what is printed or coded, what holds and what difference it makes,
what posbias does. `posbias_papers.readings.compare_readings(KEY)` computes both readings.
"""


def write_pages(folder: Path | str) -> None:
    """Try all statements and write both pages. Raises `OutputFileError` if one cannot be written."""
    write_text(Path(folder) / "errata.md", errata_page())
    write_text(Path(folder) / "theorems.md", theorems_page(verify(STATEMENTS, instances=INSTANCES)))


def theorems_page(findings: Iterable[Finding]) -> str:
    """The findings as a Markdown table, in the order given, and a line that counts the verdicts.

    The claim is that of the reading that holds: as amended where the printed one fails. What a statement asserts
    beyond its proof has a line of its own. The note has the true value and the printed bound of a counterexample,
    and the erratum's key or what is said of the statement.
    """
    lines, marks = [THEOREMS, "| statement | claim that holds | verdict | note |", "|---|---|---|---|"], []
    for finding in findings:
        row, compared, statement = finding.as_dict(), finding.compared, finding.statement
        marks.append(finding.mark)
        cells = [[statement.name, statement.asserts, finding.asserted, ""]] if finding.asserted else []
        numbers = compared.words if compared else ""
        link = f"[{statement.erratum}](errata.md#{_anchor(statement.erratum)})" if statement.erratum else ""
        note = "; ".join(filter(None, [numbers, link or _escaped(row["note"])]))
        cells.append([row["statement"], row["claim"], finding.mark, note])
        for *words, last in cells:
            lines.append(f"| `{row['key']}` {' | '.join(map(_escaped, words))} | {last} |")
    counts = ", ".join(f"{marks.count(mark)} {mark}" for mark in dict.fromkeys(marks))
    return "\n".join([*lines, "", f"{len(marks)} statements: {counts}.", ""])


def errata_page() -> str:
    """All errata as Markdown: a section for each paper and a heading for each entry."""
    lines = [ERRATA_HEAD]
    for paper in dict.fromkeys(one.paper for one in ERRATA):
        source = cite(paper)
        lines += [f"## {source.short.split(' (')[0]}, *{source.title}*\n", f"{REMARKS.get(paper, '')}\n"]
        for one in (one for one in ERRATA if one.paper == paper):
            parts = {"where": one.where, "printed": one.printed, "holds": one.holds, "posbias": one.posbias}
            lines += [f"### {one.key}\n", *(f"- *{name}*: {text}" for name, text in parts.items()), ""]
    return "\n".join(lines)


def _anchor(key: str) -> str:
    """Where the heading of an erratum is found on its page."""
    return key.replace("/", "").replace(".", "")


def _escaped(text: str) -> str:
    """Text of a table's cell: what Markdown would take for its own is marked."""
    for sign in ("\\", "|", "*", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    write_pages(sys.argv[1])
