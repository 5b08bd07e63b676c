"""Logits that come from what tokens say, as far as an average over texts keeps them.

Averaged over prompts, content is close to a constant off the diagonal and another constant on it
(Herasimchyk et al. 2026, Proposition 4.5 and §6.1).
"""

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from posbias.errors import InvalidValueError
from posbias.spec import Numbers, tag, value


@value
class NoContent:
    """Every admissible pair has the same content logit, zero."""

    kind: Literal["none"] = tag(default="none")

    def diagonal_of(self, heads: int) -> Float[np.ndarray, "head"]:
        """The logit that a token adds on itself: zero."""
        return np.zeros(heads)


@value
class ConstantDiagonal:
    """s_ij = u_h + δ_h·1[i = j], per head, in the units of the softmax (Proposition 4.5).

    `diagonal` holds δ, `constant` u, each one number per head or one for all. The constant shifts a whole
    row and so cancels in the softmax; it is kept because it is part of what was measured.
    """

    diagonal: Numbers
    constant: Numbers = (0.0,)
    kind: Literal["constant_diagonal"] = tag(default="constant_diagonal")

    def diagonal_of(self, heads: int) -> Float[np.ndarray, "head"]:
        """δ per head. Raises `InvalidValueError` if either count is neither one nor `heads`."""
        for name, numbers in (("diagonal", self.diagonal), ("constant", self.constant)):
            if len(numbers) not in (1, heads):
                raise InvalidValueError(f"{name}: {len(numbers)} given, one or {heads} (one per head) needed")
        return np.broadcast_to(np.array(self.diagonal, dtype=np.float64), heads)


Content = Annotated[NoContent | ConstantDiagonal, Field(discriminator="kind")]
"""The content models."""

CONTENTS = (NoContent, ConstantDiagonal)
"""Every class of the union, for tests, menus and tables."""
