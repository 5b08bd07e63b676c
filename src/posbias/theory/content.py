"""Logits that come from what tokens say, as far as an average over texts keeps them.

Averaged over prompts, content is close to a constant off the diagonal and another constant on it
(Herasimchyk et al. 2026, Proposition 4.5 and §6.1).

A temperature by position (`QueryScale`) multiplies the logits of query i, positional and content: over more keys a
softmax flattens, and logits that grow with the position hold against it. The logit of a learned sink is not
multiplied, since it is no product with the query.
"""

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field

from posbias.core.spec import Count, NaturalNumber, NonNegative, Numbers, Open, members, tag, value
from posbias.theory.positional import spread

PerHead = Float[np.ndarray, "head"]
Positions = Int[np.ndarray, "query"]
Factors = Float[np.ndarray, "head query"]


@value
class NoContent:
    """Every admissible pair has the same content logit, zero."""

    kind: Literal["none"] = tag(default="none")

    def diagonal_of(self, heads: int, groups: int | None = None) -> PerHead:
        """The logit that a token adds on itself: zero."""
        return np.zeros(heads)

    def first_column_of(self, heads: int, groups: int | None = None) -> PerHead:
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

    def diagonal_of(self, heads: int, groups: int | None = None) -> PerHead:
        """δ per head. Raises `InvalidValueError` if a count fits neither the heads nor their groups."""
        spread("constant", self.constant, heads, groups)
        return spread("diagonal", self.diagonal, heads, groups)

    def first_column_of(self, heads: int, groups: int | None = None) -> PerHead:
        """f per head. Raises `InvalidValueError` if the count fits neither the heads nor their groups."""
        return spread("first_column", self.first_column, heads, groups)


Content = Annotated[
    NoContent | ConstantDiagonal, Field(discriminator="kind"), Open("diagonal_of", "first_column_of")
]
"""The content models; one's own with these methods is one too."""

CONTENTS = members(Content)
"""Every class of the union, for tests, menus and tables."""


@value
class ScalableSoftmax:
    """b + s·ln(i + 1): scalable softmax, whose base is the number of keys that a causal query sees.

    `scale` is s and `bias` b, learned by layer and head; one number per head, one per group of heads, or one for
    all. Source: Nakanishi 2025, "Scalable-Softmax is superior for attention", where n^{s·z} = e^{(s·ln n)·z}.
    """

    scale: Numbers
    bias: Numbers = (0.0,)
    kind: Literal["scalable_softmax"] = tag(default="scalable_softmax")

    def factors_at(self, positions: Positions, heads: int, groups: int | None = None) -> Factors:
        """The factors of queries at these positions. Raises `InvalidValueError` if a count does not fit."""
        scale, bias = (spread(name, getattr(self, name), heads, groups) for name in ("scale", "bias"))
        return bias[:, None] + scale[:, None] * np.log1p(positions)


@value
class StepScale:
    """1 + β·ln(1 + ⌊(i + first)/period⌋): one up to about `period` tokens, then growing in steps.

    Llama 4's layers without an encoding have β = `attn_scale`, a period of `floor_scale` and `first` = 1; all
    layers of Ministral 3 have β = `llama_4_scaling_beta`, the trained length as period, and `first` = 0, so that
    their steps are one token later. Source: Meta 2025, Llama 4, and both models in transformers.
    """

    beta: NonNegative
    period: Count
    first: NaturalNumber = 1
    kind: Literal["step_scale"] = tag(default="step_scale")

    def factors_at(self, positions: Positions, heads: int, groups: int | None = None) -> Factors:
        """The factors of queries at these positions, the same for all heads."""
        factors = 1.0 + self.beta * np.log1p((positions + self.first) // self.period)
        return np.broadcast_to(factors, (heads, len(positions)))


QueryScale = Annotated[ScalableSoftmax | StepScale, Field(discriminator="kind"), Open("factors_at")]
"""The temperatures by position; one's own with this method is one too."""

QUERY_SCALES = members(QueryScale)
"""Every class of the union, for tests, menus and tables."""
