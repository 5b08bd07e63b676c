"""The pages of the documentation that are made from the statements and errata.

    from posbias_papers.statements.pages import update_pages

    update_pages("docs")

`theorems.md` says of every statement what was claimed, what stands, and why; `errata.md` is the errata, entry by
entry. What is made stands between two marks; the words around it are left alone. The table of statements has
verdicts and no margins, so that it does not change with the machine, the seed or the number of instances.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from posbias.core.files import write_between
from posbias.core.sources import cite
from posbias_papers.errata import ERRATA, REMARKS, Erratum
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.run import Finding, verify

MARKS = ("<!-- statements -->", "<!-- end of statements -->")
"""Before and after the table of statements."""
ERRATA_MARKS = ("<!-- errata -->", "<!-- end of errata -->")


def update_pages(docs: Path | str, instances: int = 1000) -> None:
    """Try all statements and write both pages in the folder `docs` anew.

    Raises `InputFileError` for a page without its two marks, `OutputFileError` if one cannot be written.
    """
    write_between(Path(docs) / "errata.md", *ERRATA_MARKS, errata_text())
    findings = verify(STATEMENTS, instances=instances)
    write_between(Path(docs) / "theorems.md", *MARKS, theorems_table(findings))


def theorems_table(findings: Iterable[Finding]) -> str:
    """The findings as a Markdown table, in the order given, and a line that counts the verdicts.

    The claim is that of the reading that stands: as amended where the printed one fails. What a statement asserts
    beyond its proof has a line of its own. The note has the true value and the printed bound of a counterexample,
    then a link to the erratum, or the first sentence of what is said.
    """
    lines = ["| statement | claim that stands | verdict | note |", "|---|---|---|---|"]
    marks, links = [], _links()
    for finding in findings:
        row, found = finding.as_dict(), finding.compared
        marks.append(finding.mark)
        if finding.asserted:
            about = [finding.statement.name, row["asserts"]["claim"], finding.asserted]
            lines.append(f"| `{row['key']}` {' | '.join(map(_escaped, about))} |  |")
        numbers = found and f"true value {found.value:.3g}, printed bound {found.bound:.3g}"
        link = links.get(finding.statement.erratum)
        note = "; ".join(filter(None, [numbers, link or _escaped(first_sentence(row["note"]))]))
        about = [row["statement"], row["claim"], finding.mark]
        lines.append(f"| `{row['key']}` {' | '.join(map(_escaped, about))} | {note} |")
    counts = ", ".join(f"{marks.count(mark)} {mark}" for mark in dict.fromkeys(marks))
    return "\n".join([*lines, "", f"{len(marks)} statements: {counts}."])


def errata_text() -> str:
    """All errata as Markdown: a section for each paper and a heading for each entry."""
    lines = []
    for paper in dict.fromkeys(one.paper for one in ERRATA):
        source = cite(paper)
        lines += [f"## {source.short.split(' (')[0]}, *{source.title}*", ""]
        lines += [REMARKS[paper], ""] if paper in REMARKS else []
        for one in ERRATA:
            lines += _entry(one) if one.paper == paper else []
    return "\n".join(lines).rstrip()


def _entry(one: Erratum) -> list[str]:
    """A heading with the entry's place, and what is to be said of it as a list."""
    parts = {"printed": one.printed, "holds": one.holds, f"posbias, `{one.key}`": one.posbias}
    return [f"### {one.where}", "", *(f"- *{name}*: {text}" for name, text in parts.items()), ""]


def _links() -> dict[str, str]:
    """By the key of an erratum, a link to its entry on the page."""
    links: dict[str, str] = {}
    again: dict[str, int] = {}
    for one in ERRATA:
        # as viewers of Markdown name headings: one that comes again is numbered
        anchor = re.sub(r"[^\w\- ]", "", one.where.lower()).replace(" ", "-")
        again[anchor] = again.get(anchor, -1) + 1
        links[one.key] = f"[errata](errata.md#{anchor}{f'-{again[anchor]}' if again[anchor] else ''})"
    return links


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
