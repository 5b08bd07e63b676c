"""The statements of Wu et al. 2025 (§4, Appendices A to I), each as something that can be tried.

The theorems claim that constants exist; each reading takes those that its proof gives, and limits in t are
made concrete by the bound at every t. Positions and layers count from 0, `depth` is the paper's t + 1.
"""

from posbias_papers.statements.statement import Statement
from posbias_papers.statements.wu.collapse import COLLAPSE, PROOFS
from posbias_papers.statements.wu.decay import DECAY
from posbias_papers.statements.wu.distances import DECAY_DISTANCE, ROPE_DISTANCE
from posbias_papers.statements.wu.extensions import EXTENSIONS
from posbias_papers.statements.wu.floor import FLOOR
from posbias_papers.statements.wu.normalisers import SOFTMAX
from posbias_papers.statements.wu.rotary import PAIRS, ROPE
from posbias_papers.statements.wu.windows import WINDOWS

WU: tuple[Statement, ...] = (
    *COLLAPSE,
    *DECAY,
    *DECAY_DISTANCE,
    *ROPE,
    *ROPE_DISTANCE,
    *FLOOR,
    *PROOFS,
    *PAIRS,
    *EXTENSIONS,
    *SOFTMAX,
    *WINDOWS,
)
"""The statements of the paper: main text, then appendices, then what is said without a number."""

__all__ = ["WU"]
