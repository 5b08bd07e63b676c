"""Every numbered statement of the three papers, tried on random and adversarial instances.

from posbias_papers.statements import STATEMENTS, verify

for finding in verify(STATEMENTS, instances=50):
    print(finding.statement.name, finding.verdict, finding.as_printed.slack)
"""

from posbias_papers.statements import herasimchyk2026, kim2026, wu2025
from posbias_papers.statements.record import Statement, find_statement, select
from posbias_papers.statements.trials import check, save_counterexamples, verify

STATEMENTS: tuple[Statement, ...] = tuple(
    one
    for paper in (wu2025, herasimchyk2026, kim2026)
    for one in vars(paper).values()
    if isinstance(one, Statement)
)
"""All statements, paper by paper and topic by topic."""

__all__ = ["STATEMENTS", "Statement", "check", "find_statement", "save_counterexamples", "select", "verify"]
