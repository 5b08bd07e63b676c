"""Temperature by position: what the logits of query i are multiplied by, beside the layer's constant temperature.

Over more keys a softmax flattens; logits that grow with the query's position hold against it. The factor is one
for a whole row of logits, positional and content, and not for the logit of a learned sink, which is no product
with the query.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field

from posbias.core.spec import Citation, Count, NaturalNumber, NonNegative, Numbers, Open, members, tag, value
from posbias.theory.distance import spread

Positions = Int[np.ndarray, "query"]
Factors = Float[np.ndarray, "head query"]


@value
class ScalableSoftmax:
    """b + s·ln(i + 1): scalable softmax, whose base is the number of keys that a causal query sees.

    `scale` is s and `bias` b, learned by layer and head; one number per head, one per group of heads, or one for
    all. Source: Nakanishi 2025, "Scalable-Softmax is superior for attention", where n^{s·z} = e^{(s·ln n)·z}.
    """

    scale: Numbers
    bias: Numbers = (0.0,)
    kind: Literal["scalable_softmax"] = tag(default="scalable_softmax")
    cites: ClassVar[Citation] = ("nakanishi2025", "a softmax that scales with the number of keys")

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
    cites: ClassVar[Citation] = ("meta2025", "logits that grow with the position of the query")

    def factors_at(self, positions: Positions, heads: int, groups: int | None = None) -> Factors:
        """The factors of queries at these positions, the same for all heads."""
        factors = 1.0 + self.beta * np.log1p((positions + self.first) // self.period)
        return np.broadcast_to(factors, (heads, len(positions)))


QueryScale = Annotated[
    ScalableSoftmax | StepScale,
    Field(discriminator="kind"),
    Open("factors_at"),
]
"""The temperatures by position; one's own with this method is one too."""

QUERY_SCALES = members(QueryScale)
"""Every class of the union, for tests, menus and tables."""
