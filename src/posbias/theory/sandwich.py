"""Sandwich: what is left of sinusoidal positions when only their product with each other is kept.

A query at i and a key at j that carry sinusoidal vectors p of D dimensions have the product

    p_i·p_j = Σ_{k=1}^{D/2} cos((i − j)/10000^(2k/D)),

which falls about as the logarithm of the distance: by D/(2·ln 10000) for each unit of ln d while 1 ≪ d ≪ 10000.
Each head divides it by a compression ratio of its own. Nothing is learned.
"""

from typing import ClassVar, Literal

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.core.spec import Citation, Count, Positive, Positives, tag, value
from posbias.theory.any_length import AnyLength
from posbias.theory.distance import Distances, Logits, RoPE


@value
class Sandwich(AnyLength):
    """Σ_{k=1}^{D/2} cos(d/base^(2k/D)) divided by the head's compression ratio, D the `dimension`.

    `ratios` is one number > 0 for all heads or each; left out, head h = 1 … H of H has 8h/H. Source: Chi et al.
    2023, where D is 128; code is met whose sums begin at k = 0. Raises `InvalidValueError` for an odd dimension.

        Sandwich().logits_at(np.array([0, 1, 100]), heads=1)   # 64/8 and what is left of it
    """

    ratios: Positives | None = None
    dimension: Count = 128
    base: Positive = 10_000.0
    kind: Literal["sandwich"] = tag(default="sandwich")
    cites: ClassVar[Citation] = ("chi2023", "Sandwich, biases by the product of sinusoidal positions")
    exact: ClassVar[bool] = True

    def __post_init__(self):
        if self.dimension % 2:
            raise InvalidValueError(f"dimension: {self.dimension} given, an even number needed")

    def slopes_of(self, heads: int, groups: int | None = None) -> None:
        """None: the logit is not linear in the distance."""

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        ratios = self.ratios or tuple(8.0 * head / heads for head in range(1, heads + 1))
        angles = self.base ** (-2.0 * np.arange(1, self.dimension // 2 + 1) / self.dimension)
        waves = RoPE(tuple((1.0 / ratio,) for ratio in ratios), frequencies=tuple(angles.tolist()))
        return waves.logits_at(distance, heads, groups)
