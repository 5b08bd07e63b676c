"""Every numbered statement of the three papers, tried on random and adversarial instances.

from posbias.verify import STATEMENTS, verify

for finding in verify(STATEMENTS, instances=50):
    print(finding.statement.name, finding.verdict, finding.as_printed.slack)
"""

from posbias.verify.herasimchyk import HERASIMCHYK
from posbias.verify.kim import KIM
from posbias.verify.run import Finding, StatementCell, Trial, check, save_counterexamples, select, verify
from posbias.verify.statement import Instance, Reading, Statement
from posbias.verify.wu import WU

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
