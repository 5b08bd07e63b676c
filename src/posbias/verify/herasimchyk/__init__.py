"""The statements of Herasimchyk et al. 2026 (§4, §5, Appendix A), each as something that can be tried.

Finite depth: kernels are drawn stochastically monotone (`draws`) and the claim is a margin of first-order
dominance (`margins`). Infinite depth: made concrete by the bound at every finite depth (`infinite`).
Statements about a network run one (`network`). Positions and layers count from 0 here, bottom layer first.
"""

from posbias.verify.herasimchyk.bounded import BOUNDED
from posbias.verify.herasimchyk.forces import FORCES
from posbias.verify.herasimchyk.heads import HEADS
from posbias.verify.herasimchyk.induction import STEPS
from posbias.verify.herasimchyk.infinite import INFINITE
from posbias.verify.herasimchyk.lemmas import ORDER
from posbias.verify.statement import Statement

HERASIMCHYK: tuple[Statement, ...] = (*FORCES, *ORDER, *STEPS, *BOUNDED, *INFINITE, *HEADS)
"""The statements of the paper: §4, Appendix A.1 with two steps of its proofs, §5."""

__all__ = ["HERASIMCHYK"]
