"""`posbias verify`: the papers' numbered statements, tried."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.cli.terminal import COLUMNS
from posbias.core.files import need_writable
from posbias.core.terminal import table

if TYPE_CHECKING:
    from posbias_papers.statements.trials import Finding


@shared.options
class Options:
    """What is tried, and how often.

    Parameters
    ----------
    effort
        Random instances per reading of a statement, every fourth at the edge of the hypotheses: quick (200), full
        (1,000) or any number.
    out
        Folder of verify.json and of counterexamples.
    """

    effort: shared.Effort = "full"
    seed: shared.Seed = 0
    out: shared.Out = Path("results/verify")
    json: shared.Json = False


def verify(*statements: str, options: Options = Options()) -> None:
    """Try the papers' numbered statements on random and adversarial instances.

    Each is read as printed and, where that does not survive, as amended. A counterexample is saved as a file
    that can be tried again. The table is saved as verify.json.

    Parameters
    ----------
    statements
        Keys of statements, such as wu-4.1, or of papers: wu2025, herasimchyk2026, kim2026. Default: all.
    """
    from posbias_papers.cli.answers import Verify
    from posbias_papers.statements import STATEMENTS, save_counterexamples, select
    from posbias_papers.statements import verify as try_all
    from posbias_papers.theorems import INSTANCES

    need_writable(options.out)
    chosen = select(STATEMENTS, statements)
    instances = shared.amount(options.effort, INSTANCES)
    with progress() as on_event:
        findings = try_all(chosen, instances=instances, seed=options.seed, on_event=on_event)
    saved = save_counterexamples(findings, options.out)
    rows = [finding.as_dict() for finding in findings]
    answer = Verify.of(statements=rows, seed=options.seed, counterexamples=saved)
    file = options.out / "verify.json"
    answer_with(answer, lambda: [*findings_table(findings), "", f"table: {file}"], options.json, file)


def findings_table(findings: "list[Finding]") -> list[str]:
    """What trying the statements gave: a line each, then notes, and the counterexample to each that fails."""
    rows, notes = [], []
    for finding in findings:
        row = finding.as_dict()
        name, trial = f"{row['source']} {row['statement']}", [str(row["instances"]), f"{row['slack']:.2g}"]
        if finding.asserted:
            rows.append([f"{row['source']} {finding.statement.name}", finding.asserted, *trial])
        rows.append([name, finding.mark, *trial])
        notes += [f"{name}: {row['note']}"] if row["note"] else []
        if (compared := finding.compared) is not None:
            notes.append(f"  counterexample: {compared.words}")
            notes += _matrix(compared.matrix)
    marks = [row[1] for row in rows]
    counts = "; ".join(f"{marks.count(mark)} {mark}" for mark in dict.fromkeys(marks))
    lines = table(["statement", "verdict", "instances", "slack"], rows)
    return [*lines, "", counts, *(["", *notes] if notes else [])]


def _matrix(matrix: Any) -> list[str]:
    """The matrix in which the printed claim is refuted, a line a row, if it fits."""
    if matrix is None or matrix.shape[-1] > COLUMNS:
        return []
    rows = [[f"{number:.3g}" for number in row] for row in matrix]
    width = max(len(number) for row in rows for number in row)
    return ["    " + "  ".join(number.rjust(width) for number in row) for row in rows]
