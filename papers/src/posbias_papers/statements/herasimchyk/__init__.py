"""The statements of Herasimchyk et al. 2026 (§4, §5, Appendix A), each as something that can be tried.

Finite depth: kernels are drawn stochastically monotone (`draws`) and the claim is a margin of first-order
dominance (`margins`). Infinite depth: made concrete by the bound at every finite depth (`infinite`).
Statements about a network run one (`network`). Positions and layers count from 0 here, bottom layer first.
"""

from posbias_papers.statements.herasimchyk.bounded import BOUNDED
from posbias_papers.statements.herasimchyk.forces import FORCES
from posbias_papers.statements.herasimchyk.heads import HEADS
from posbias_papers.statements.herasimchyk.induction import STEPS
from posbias_papers.statements.herasimchyk.infinite import INFINITE
from posbias_papers.statements.herasimchyk.lemmas import ORDER
from posbias_papers.statements.statement import Statement

HERASIMCHYK: tuple[Statement, ...] = (*FORCES, *ORDER, *STEPS, *BOUNDED, *INFINITE, *HEADS)
"""The statements of the paper: §4, Appendix A.1 with two steps of its proofs, §5."""

__all__ = ["HERASIMCHYK"]
