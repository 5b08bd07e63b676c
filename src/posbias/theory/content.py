"""Logits that come from what tokens say, as far as an average over texts keeps them.

Averaged over prompts, content is close to a constant off the diagonal and another constant on it
(Herasimchyk et al. 2026, Proposition 4.5 and §6.1).
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from posbias.core.spec import Citation, Numbers, Open, members, tag, value
from posbias.theory.distance import spread


@value
class NoContent:
    """Every admissible pair has the same content logit, zero."""

    kind: Literal["none"] = tag(default="none")

    def diagonal_of(self, heads: int, groups: int | None = None) -> Float[np.ndarray, "head"]:
        """The logit that a token adds on itself: zero."""
        return np.zeros(heads)

    def first_column_of(self, heads: int, groups: int | None = None) -> Float[np.ndarray, "head"]:
        """The logit that every token adds on the first: zero."""
        return np.zeros(heads)


@value
class ConstantDiagonal:
    """s_ij = u_h + δ_h·1[i = j] + f_h·1[j = 0], per head, in the units of the softmax (Proposition 4.5).

    `diagonal` holds δ, `first_column` f (an attention sink on the first token, not in the paper), `constant`
    u; each one number per head, one per group of heads, or one for all. The constant shifts a whole row and
    so cancels in the softmax, unless there is a learned sink; it is kept because it is part of what was measured.
    """

    diagonal: Numbers
    constant: Numbers = (0.0,)
    first_column: Numbers = (0.0,)
    kind: Literal["constant_diagonal"] = tag(default="constant_diagonal")
    cites: ClassVar[Citation] = (
        "herasimchyk2026",
        "mean content as a constant and a diagonal (Proposition 4.5)",
    )

    def diagonal_of(self, heads: int, groups: int | None = None) -> Float[np.ndarray, "head"]:
        """δ per head. Raises `InvalidValueError` if a count fits neither the heads nor their groups."""
        spread("constant", self.constant, heads, groups)
        return spread("diagonal", self.diagonal, heads, groups)

    def first_column_of(self, heads: int, groups: int | None = None) -> Float[np.ndarray, "head"]:
        """f per head. Raises `InvalidValueError` if the count fits neither the heads nor their groups."""
        return spread("first_column", self.first_column, heads, groups)


Content = Annotated[
    NoContent | ConstantDiagonal,
    Field(discriminator="kind"),
    Open("diagonal_of", "first_column_of"),
]
"""The content models; one's own with these methods is one too."""

CONTENTS = members(Content)
"""Every class of the union, for tests, menus and tables."""
