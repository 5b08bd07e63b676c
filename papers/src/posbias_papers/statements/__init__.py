"""Every numbered statement of the three papers, tried on random and adversarial instances.

from posbias_papers.statements import STATEMENTS, verify

for finding in verify(STATEMENTS, instances=50):
    print(finding.statement.name, finding.verdict, finding.as_printed.slack)
"""

from posbias_papers.statements import (
    herasimchyk2026_depth,
    herasimchyk2026_order,
    kim2026_layernorm,
    kim2026_variants,
    wu2025_encodings,
    wu2025_masks,
)
from posbias_papers.statements.record import Reading, Statement, select
from posbias_papers.statements.trials import check, save_counterexamples, verify

TOPICS = (
    wu2025_masks,
    wu2025_encodings,
    herasimchyk2026_order,
    herasimchyk2026_depth,
    kim2026_layernorm,
    kim2026_variants,
)
STATEMENTS: tuple[Statement, ...] = tuple(
    one for topic in TOPICS for one in vars(topic).values() if isinstance(one, Statement)
)
"""All statements, paper by paper and topic by topic."""

__all__ = ["STATEMENTS", "Reading", "Statement", "check", "save_counterexamples", "select", "verify"]
