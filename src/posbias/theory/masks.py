"""Who may attend to whom.

A mask is a relation between query i and key j. Adding one is one class here and its name in the union.
"""

from typing import Literal

import numpy as np
from jaxtyping import Bool

from posbias.spec import tag, value


@value
class Causal:
    """Every token attends to itself and to all earlier ones: j ≤ i (Herasimchyk et al. 2026, §3)."""

    kind: Literal["causal"] = tag(default="causal")

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        return np.tri(tokens, dtype=bool)


Mask = Causal
"""The masks; more join by union."""

MASKS = (Causal,)
"""Every class of the union, for tests, menus and tables."""
