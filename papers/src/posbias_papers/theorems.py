"""The numbered statements of the papers as claims: tried on instances, kept in OUT/statements, judged.

A statement tried (`StatementCell`) serves whoever wants no more instances than it has. As a claim
it is that the least slack of the printed reading is no less than rounding allows.
"""

import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.errors import whole
from posbias.core.machine import cores
from posbias.core.progress import OnEvent
from posbias.core.running import Engine, Processes
from posbias.core.store import Store, Stored, compute
from posbias.profiles.claims import Above, Claim, Evidence, Judged, judged, undecided
from posbias.profiles.estimate import Estimate
from posbias_papers.study import STATEMENTS, Study

if TYPE_CHECKING:
    from posbias_papers.statements import Statement
    from posbias_papers.statements.run import Finding, StatementCell, Trial

log = logging.getLogger("posbias.papers")
QUESTION = "Which of the printed statements survive random and adversarial instances, and what stands where "
QUESTION += "one does not?"
INSTANCES = 200
"""Instances of a reading by default: about 20 seconds on two cores."""
SCOPE = "whatever satisfies its hypotheses"
"""What a numbered statement speaks of."""
FEW = 8
"""This many statements or fewer are tried sooner than worker processes have started."""


def _stated(paper: str, title: str, count: int, quick: float, full: float) -> Study:
    """The statements of a paper in words, their number, and the minutes that trying them takes."""
    about = f"{paper}/{STATEMENTS}", title, QUESTION, (), (), (quick, full), "instances"
    return Study(*about, count=count)


STATED = {
    study.paper: study
    for study in (
        _stated("wu2025", "Theorems 4.1 to 4.7 with their lemmas and proofs", 29, 0.1, 0.5),
        _stated(
            "herasimchyk2026",
            "Propositions 4.2 to 4.5, Lemma 5.3, Theorem 5.4 with their proofs",
            23,
            0.1,
            0.5,
        ),
        _stated("kim2026", "Theorem 1, Propositions 1 to 3, Equations 5, 19 and 42", 20, 1.2, 6),
    )
}
"""The studies of numbered statements, by paper."""


def statements_of(papers: Sequence[str] = ()) -> "list[Statement]":
    """The numbered statements of some papers (none: all)."""
    from posbias_papers.statements import STATEMENTS as ALL

    return [statement for statement in ALL if not papers or statement.source in papers]


def try_statements(
    folder: Path,
    papers: Sequence[str] = (),
    *,
    instances: int = INSTANCES,
    seed: int = 0,
    engine: Engine | None = None,
    on_event: OnEvent | None = None,
) -> "dict[str, Finding]":
    """What trying the statements of some papers (none: all) gave, by key, those FOLDER has as they are.

    What it has not is tried on `engine` (default: the cores here) and kept; one that cannot be tried is named to
    the log and left out. `on_event` counts statements to do. Raises `InvalidValueError` for instances < 1,
    `OutputFileError` when they cannot be kept.
    """
    whole("instances", instances, 1)
    cells = _cells(papers, seed, instances)
    if engine is None and cores() > 1 and len(cells) > FEW:
        engine = Processes(cores())
    done = compute(cells, Store(folder / STATEMENTS), engine=engine, on_event=on_event)
    return {cell.statement.key: stored.result for cell, stored in done.stored.items()}


def tried_already(folder: Path, paper: str, instances: int | None = None) -> list[Stored] | None:
    """The statements of a paper as `folder` has them, tried on `instances` or more; None unless it has all."""
    store = Store(folder / STATEMENTS)
    cells = _cells([paper], 0) if store.folder.is_dir() else ()
    stored = [store.find(cell, at_least=instances) for cell in cells]
    return [one for one in stored if one] if stored and all(stored) else None


def judge_statements(papers: Sequence[str], tried: "Mapping[str, Finding]") -> Iterator[Judged]:
    """The statements of some papers judged; one that was not tried is undecided.

    A statement holds as printed if its least slack is no less than minus its tolerance. One that `asserts` more
    than constants (that there are some) holds if any reading's survive, and its printed ones are judged as well.
    """
    for statement in statements_of(papers):
        study, finding = f"{statement.source}/{STATEMENTS}", tried.get(statement.key)
        for claim in claims_of_statement(statement):
            if finding is None:
                why = f"could not be tried; `posbias verify {statement.key}` says why"
                yield undecided(claim, why, study, {"statement": statement.key})
            else:
                yield replace(_judge(claim, finding), study=study)


def _judge(claim: Claim, finding: "Finding") -> Judged:
    statement, exists = finding.statement, bool(finding.asserted) and claim.strength == "theorem"
    standing = finding.corrected if exists and finding.corrected else finding.as_printed
    effort = f"{standing.instances:,} instances" if standing.survived else "a counterexample"
    more = {"statement": statement.key, "instances": standing.instances, "effort": effort}
    verdict = judged(claim, [Evidence("least margin", Estimate(max(standing.slack, -sys.float_info.max)))])
    why = _why(finding)
    if exists and standing.survived:
        why = f"it stands: {_survived(standing)} ({(statement.corrected or statement.as_printed).claim})"
    elif exists:
        why = f"the constants tried do not bear it out ({margin_text(standing.slack)}); others may"
        verdict = replace(verdict, verdict="undecided", seen=None)
    elif not standing.survived:
        amended = statement.corrected if finding.corrected_verdict == "holds" else None
        more["stands"] = amended.claim if amended else ""
    # exact for the instances drawn; what no instance came near has an error that nobody knows
    return replace(verdict, evidence=(), estimate=Estimate(standing.slack, math.nan), why=why, more=more)


def claims_of_statement(statement: "Statement") -> Iterator[Claim]:
    """What is claimed by a statement: what it asserts, and what is printed of its proof; or one for both."""
    printed, key = statement.as_printed, f"{statement.source}/{slug(statement.name)}"
    test = Above(math.nextafter(-printed.tolerance, -math.inf), least=0.0)
    more = {"evidence" if name == "effort" else name: held for name, held in statement.about.items()}
    of_proof = {"strength": "constant"} | more.pop("proof", {})
    about: dict[str, Any] = {
        "strength": "theorem",
        "scope": SCOPE,
        "evidence": "a proof",
        "bar": "paper",
    } | more
    if not statement.asserts:
        yield Claim(key, statement.name, f"{statement.name}: {printed.claim}", test=test, **about)
        return
    corrected = statement.corrected or printed
    bound = Above(math.nextafter(-corrected.tolerance, -math.inf), least=0.0)
    yield Claim(key, statement.name, f"{statement.name}: {statement.asserts}", test=bound, **about)
    words = f"{statement.name}, as its proof has it: {printed.claim}"
    yield Claim(f"{key}-proof", f"{statement.name}, proof", words, test=test, **about | of_proof)


def slug(name: str) -> str:
    """'Theorem 4.5, critical distance' as 'theorem-4.5-critical-distance'."""
    words = name.lower().replace("§", "section ")
    return "-".join("".join(sign if sign.isalnum() or sign == "." else " " for sign in words).split())


def _cells(papers: Sequence[str], seed: int, amount: int | None = None) -> "list[StatementCell]":
    from posbias_papers.statements.run import StatementCell

    return [StatementCell(statement, seed, amount) for statement in statements_of(papers)]


def _why(finding: "Finding") -> str:
    statement, printed, corrected = finding.statement, finding.as_printed, finding.corrected
    if printed.survived:
        return f"{_survived(printed)}. {statement.note.removeprefix('Holds.').strip()}".strip()
    why = f"counterexample found, {margin_text(printed.slack)}"
    if (found := finding.compared) is not None:
        why += f": true value {found.value:.4g}, printed bound {found.bound:.4g}"
    why += f". {statement.note}"
    if statement.corrected is not None and corrected is not None and corrected.survived:
        why += f" What stands: {statement.corrected.claim} ({_survived(corrected)})."
    return why


def _survived(trial: "Trial") -> str:
    return f"no counterexample in {trial.instances:,} random and adversarial instances, {margin_text(trial.slack)}"


def margin_text(slack: float) -> str:
    """'margin 0.12', 'margin 0 to rounding', 'off by a factor of 25' or 'of more than 10^11'."""
    if slack < -10.0:
        times = 1.0 - slack
        far = f"more than 10^{math.floor(math.log10(times))}" if times >= 1000 else f"{times:.0f}"
        return f"off by a factor of {far}"
    least = "0 to rounding" if abs(slack) <= 1e-9 else f"{slack:.2g}".replace("-", "−")
    return f"margin {least}"
