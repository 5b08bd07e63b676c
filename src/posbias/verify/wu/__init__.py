"""The statements of Wu et al. 2025 (§4, Appendices A to I), each as something that can be tried.

The theorems claim that constants exist; each reading takes those that its proof gives, and limits in t are
made concrete by the bound at every t. Positions and layers count from 0, `depth` is the paper's t + 1.
"""

from posbias.verify.statement import Statement
from posbias.verify.wu.collapse import COLLAPSE, PROOFS
from posbias.verify.wu.decay import DECAY
from posbias.verify.wu.distances import DECAY_DISTANCE, ROPE_DISTANCE
from posbias.verify.wu.extensions import EXTENSIONS
from posbias.verify.wu.floor import FLOOR
from posbias.verify.wu.normalisers import SOFTMAX
from posbias.verify.wu.rotary import PAIRS, ROPE
from posbias.verify.wu.windows import WINDOWS

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
