"""Every numbered statement of the three papers, tried on random and adversarial instances.

from posbias_papers.statements import STATEMENTS, verify

for finding in verify(STATEMENTS, instances=50):
    print(finding.statement.name, finding.verdict, finding.as_printed.slack)
"""

from posbias_papers.statements.herasimchyk import HERASIMCHYK
from posbias_papers.statements.kim import KIM
from posbias_papers.statements.run import (
    Finding,
    StatementCell,
    Trial,
    check,
    save_counterexamples,
    select,
    verify,
)
from posbias_papers.statements.statement import Instance, Reading, Statement
from posbias_papers.statements.wu import WU

STATEMENTS: tuple[Statement, ...] = (*WU, *HERASIMCHYK, *KIM)
"""All statements, paper by paper, in the order of the text."""

__all__ = [
    "STATEMENTS",
    "Finding",
    "Instance",
    "Reading",
    "Statement",
    "StatementCell",
    "Trial",
    "check",
    "save_counterexamples",
    "select",
    "verify",
]
