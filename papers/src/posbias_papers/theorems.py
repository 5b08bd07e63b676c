"""The numbered statements of the papers as studies: tried on instances, kept in OUT/statements, judged.

A statement tried (`StatementCell`) serves whoever wants no more instances than it has. As a claim it is that the
least slack of the printed reading is no less than rounding allows.

    python -m posbias_papers.theorems docs/made

writes two pages of the site: `theorems.md` says of every statement what was claimed, what holds, and why;
`errata.md` has the errata, entry by entry.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.core.errors import whole
from posbias.core.files import write_text
from posbias.core.machine import cores
from posbias.core.progress import OnEvent
from posbias.core.running import Engine, Processes
from posbias.core.store import Store, Stored, compute
from posbias.profiles.estimate import Estimate
from posbias_papers.claims import AMENDED, Claim, Evidence, Judged, judged, undecided
from posbias_papers.study import INSTANCED, STATEMENTS

if TYPE_CHECKING:
    from posbias_papers.statements.trials import Finding, StatementCell

INSTANCES = {"quick": 200, "full": 1000}
"""Instances of a reading: quick, the default, takes about 20 seconds on two cores."""
ON_PAGE = 20
"""Instances of the site's page, enough where a printed reading that fails brings its witness."""
RECORDS = Path(__file__).with_name("statements") / "records.jsonl"
"""All statements tried on 1,000 instances, a line each (`tools/statement_records.py`)."""
FEW = 8
"""This many statements or fewer are tried sooner than worker processes have started."""


def try_statements(
    folder: Path,
    papers: Sequence[str] = (),
    *,
    instances: int = INSTANCES["quick"],
    engine: Engine | None = None,
    on_event: OnEvent | None = None,
    recorded: bool = False,
) -> "dict[str, Finding]":
    """What trying the statements of some papers (none: all) gave, by key, those FOLDER has as they are.

    With `recorded` those on record that were tried on as many instances come from there. What it has not is tried
    on `engine` (default: the cores here) and kept; one that cannot be tried is named to the log and left out.
    `on_event` counts statements to do. Raises `InvalidValueError` for instances < 1, `OutputFileError` when they
    cannot be kept.
    """
    whole("instances", instances, 1)
    cells = _cells(papers, instances)
    known = _on_record(cells) if recorded else {}
    missing = [cell for cell in cells if cell not in known]
    if engine is None and cores() > 1 and len(missing) > FEW:
        engine = Processes(cores())
    done = compute(missing, Store(folder / STATEMENTS), engine=engine, on_event=on_event)
    found = known | {cell: stored.result for cell, stored in done.stored.items()}
    return {cell.statement.key: found[cell] for cell in cells if cell in found}


def _on_record(cells: "Iterable[StatementCell]") -> "dict[StatementCell, Finding]":
    """The findings on record of some statements, those that were tried on as many instances."""
    lines = map(json.loads, RECORDS.read_text(encoding="utf-8").splitlines())
    known = {line["fingerprint"]: line for line in lines}
    return {
        cell: cell.from_content(None, known[cell.fingerprint]["content"])
        for cell in cells
        if known.get(cell.fingerprint, {}).get("instances", 0) >= (cell.amount or 0)
    }


def tried_already(folder: Path, paper: str) -> list[Stored] | None:
    """The statements of a paper as `folder` has them; None unless it has all."""
    store = Store(folder / STATEMENTS)
    cells = _cells([paper]) if store.folder.is_dir() else ()
    stored = [store.find(cell) for cell in cells]
    return [one for one in stored if one] if stored and all(stored) else None


def judge_statements(papers: Sequence[str], tried: "Mapping[str, Finding]") -> Iterator[Judged]:
    """The statements of some papers judged; one that was not tried is undecided.

    A statement holds as printed if its least slack is no less than minus its tolerance. One that `asserts` more
    than constants (that there are some) holds if any reading's survive, and its printed ones are judged as well.
    """
    for statement in (cell.statement for cell in _cells(papers)):
        study, finding = f"{statement.source}/{STATEMENTS}", tried.get(statement.key)
        for claim in statement.claims:
            if finding is None:
                why = f"could not be tried; `posbias verify {statement.key}` says why"
                yield replace(undecided(claim, why, study), statement=statement.key, tested_on=INSTANCED)
            else:
                yield replace(_judge(claim, finding), study=study, tested_on=INSTANCED)


def _judge(claim: Claim, finding: "Finding") -> Judged:
    """What a statement asserts is judged by the constants that stand, what is printed as it is printed."""
    statement, numbers = finding.statement, finding.compared
    exists = bool(statement.asserts) and claim.strength == "theorem"
    trial = finding.standing if exists else finding.as_printed
    margin, reading = margin_text(trial.slack), statement.corrected or statement.claim
    verdict = judged(claim, [Evidence("least margin", Estimate(max(trial.slack, -sys.float_info.max)))])
    effort, stands = "a counterexample", ""
    if trial.verdict == "holds":
        effort = f"{trial.instances:,} instances"
        note = f" ({reading})" if exists else f". {statement.note.removeprefix('Holds.').strip()}"
        why = f"no counterexample in {trial.instances:,} random and adversarial instances, {margin}{note}"
    elif exists:
        why = f"the constants tried do not bear it out ({margin}); others may"
        verdict = replace(verdict, verdict="undecided", seen=None)
    else:
        stands = reading if finding.mark in AMENDED.values() else ""
        why = f"counterexample found, {margin}"
        why += f": {numbers.words}. {statement.note}" if numbers else f". {statement.note}"
        if stands:
            why += f" What holds: {stands} ({finding.standing.instances:,} instances)."
    # exact for the instances drawn; what no instance came near has an error that nobody knows
    return replace(
        verdict,
        evidence=(),
        estimate=Estimate(trial.slack, math.nan),
        why=why.rstrip(),
        statement=statement.key,
        instances=trial.instances,
        effort=effort,
        stands=stands,
    )


def margin_text(slack: float) -> str:
    """'margin 0.12', 'margin 0 to rounding', 'off by a factor of 25' or 'of more than 10^11'."""
    if slack < -10.0:
        times = 1.0 - slack
        far = f"more than 10^{math.floor(math.log10(times))}" if times >= 1000 else f"{times:.0f}"
        return f"off by a factor of {far}"
    least = "0 to rounding" if abs(slack) <= 1e-9 else f"{slack:.2g}".replace("-", "−")
    return f"margin {least}"


def _cells(papers: Sequence[str], amount: int | None = None) -> "list[StatementCell]":
    """The numbered statements of some papers (none: all), to be tried on so many instances."""
    from posbias_papers.statements import STATEMENTS as ALL
    from posbias_papers.statements import select
    from posbias_papers.statements.trials import StatementCell

    return [StatementCell(one, amount=amount) for one in select(ALL, papers)]


# --- pages of the site ---------------------------------------------------------------------------------------


def write_pages(folder: Path | str) -> None:
    """Try all statements and write `theorems.md` and `errata.md`. Raises `OutputFileError` if it cannot.

    The table of statements has verdicts and no margins, so that it does not change with the machine.
    """
    from posbias_papers.errata import errata_page
    from posbias_papers.statements import STATEMENTS as ALL
    from posbias_papers.statements import verify

    write_text(Path(folder) / "errata.md", errata_page())
    write_text(Path(folder) / "theorems.md", theorems_page(verify(ALL, instances=ON_PAGE)))


def theorems_page(findings: "Iterable[Finding]") -> str:
    """The findings as a Markdown table, in the order given, and a line that counts the verdicts.

    The claim is that of the reading that holds: as amended where the printed one fails. What a statement asserts
    beyond its proof has a line of its own. The note has the true value and the printed bound of a counterexample,
    and the erratum's key or what is said of the statement.
    """
    from posbias_papers.errata import HEADS

    head = ["| statement | claim that holds | verdict | note |", "|---|---|---|---|"]
    lines, marks = [HEADS["theorems"], *head], []
    for finding in findings:
        row, compared, statement = finding.as_dict(), finding.compared, finding.statement
        marks.append(finding.mark)
        cells = [[statement.name, statement.asserts, finding.asserted, ""]] if finding.asserted else []
        numbers = compared.words if compared else ""
        anchor = statement.erratum.replace("/", "").replace(".", "")
        link = f"[{statement.erratum}](errata.md#{anchor})" if anchor else ""
        note = "; ".join(filter(None, [numbers, link or _escaped(row["note"])]))
        cells.append([row["statement"], row["claim"], finding.mark, note])
        for *words, last in cells:
            lines.append(f"| `{row['key']}` {' | '.join(map(_escaped, words))} | {last} |")
    counts = ", ".join(f"{marks.count(mark)} {mark}" for mark in dict.fromkeys(marks))
    return "\n".join([*lines, "", f"{len(marks)} statements: {counts}.", ""])


def _escaped(text: str) -> str:
    """Text of a table's cell: what Markdown would take for its own is marked."""
    for sign in ("\\", "|", "*", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    write_pages(sys.argv[1])
