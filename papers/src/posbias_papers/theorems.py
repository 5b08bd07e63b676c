"""The numbered statements of the papers as studies: tried on instances, kept in OUT/statements, judged.

A statement tried (`StatementCell`) serves whoever wants no more instances than it has. As a claim it is that the
least slack of the printed reading is no less than rounding allows.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.core.errors import whole
from posbias.core.machine import cores
from posbias.core.progress import OnEvent
from posbias.core.running import Engine, Processes
from posbias.core.store import Store, Stored, compute
from posbias.profiles.claims import Claim, Evidence, Judged, judged, undecided
from posbias.profiles.estimate import Estimate
from posbias_papers.study import STATEMENTS, Study

if TYPE_CHECKING:
    from posbias_papers.statements.record import Statement
    from posbias_papers.statements.trials import Finding, StatementCell

QUESTION = "Which of the printed statements survive random and adversarial instances, and what holds where "
QUESTION += "one does not?"
INSTANCES = 200
"""Instances of a reading by default: about 20 seconds on two cores."""
FEW = 8
"""This many statements or fewer are tried sooner than worker processes have started."""


def _stated(paper: str, title: str, count: int, quick: float, full: float) -> Study:
    """The statements of a paper in words, their number, and the minutes that trying them takes."""
    about = f"{paper}/{STATEMENTS}", title, QUESTION, (), (), (quick, full), "instances"
    return Study(*about, count=count)


STATED = {
    paper: _stated(paper, *about)
    for paper, about in {
        "wu2025": ("Theorems 4.1 to 4.7 with their lemmas and proofs", 29, 0.1, 0.5),
        "herasimchyk2026": (
            "Propositions 4.2 to 4.5, Lemma 5.3, Theorem 5.4 with their proofs",
            23,
            0.1,
            0.5,
        ),
        "kim2026": ("Theorem 1, Propositions 1 to 3, Equations 5, 19 and 42", 20, 1.2, 6),
    }.items()
}
"""The studies of numbered statements, by paper."""


def _statements(papers: Sequence[str]) -> "list[Statement]":
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
    for statement in _statements(papers):
        study, finding = f"{statement.source}/{STATEMENTS}", tried.get(statement.key)
        for claim in statement.claims:
            if finding is None:
                why = f"could not be tried; `posbias verify {statement.key}` says why"
                yield undecided(claim, why, study, {"statement": statement.key})
            else:
                yield replace(_judge(claim, finding), study=study)


def _judge(claim: Claim, finding: "Finding") -> Judged:
    statement, printed, corrected = finding.statement, finding.as_printed, finding.corrected
    exists = bool(finding.asserted) and claim.strength == "theorem"
    trial = corrected if exists and corrected else printed
    instances, margin = f"{trial.instances:,} instances", margin_text(trial.slack)
    effort = instances if trial.verdict == "holds" else "a counterexample"
    more = {"statement": statement.key, "instances": trial.instances, "effort": effort}
    verdict = judged(claim, [Evidence("least margin", Estimate(max(trial.slack, -sys.float_info.max)))])
    why = f"no counterexample in {trial.instances:,} random and adversarial instances, {margin}"
    if trial.verdict == "holds":
        claimed = (statement.corrected or statement.as_printed).claim
        why += f" ({claimed})" if exists else f". {statement.note.removeprefix('Holds.').strip()}".rstrip()
    elif exists:
        why = f"the constants tried do not bear it out ({margin}); others may"
        verdict = replace(verdict, verdict="undecided", seen=None)
    else:
        why = f"counterexample found, {margin}"
        if (compared := finding.compared) is not None:
            why += f": true value {compared.value:.4g}, printed bound {compared.bound:.4g}"
        why += f". {statement.note}"
        amended = statement.corrected if finding.corrected_verdict == "holds" else None
        more["stands"] = amended.claim if amended else ""
        if amended and corrected:
            why += f" What holds: {amended.claim} ({corrected.instances:,} instances)."
    # exact for the instances drawn; what no instance came near has an error that nobody knows
    return replace(verdict, evidence=(), estimate=Estimate(trial.slack, math.nan), why=why, more=more)


def margin_text(slack: float) -> str:
    """'margin 0.12', 'margin 0 to rounding', 'off by a factor of 25' or 'of more than 10^11'."""
    if slack < -10.0:
        times = 1.0 - slack
        far = f"more than 10^{math.floor(math.log10(times))}" if times >= 1000 else f"{times:.0f}"
        return f"off by a factor of {far}"
    least = "0 to rounding" if abs(slack) <= 1e-9 else f"{slack:.2g}".replace("-", "−")
    return f"margin {least}"


def _cells(papers: Sequence[str], seed: int, amount: int | None = None) -> "list[StatementCell]":
    from posbias_papers.statements.trials import StatementCell

    return [StatementCell(statement, seed, amount) for statement in _statements(papers)]
