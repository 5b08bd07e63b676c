"""The model of LayerNorm-induced recency: random embeddings, attention without parameters, a norm.

    x_i = ε_i + √(α/(1−α))·v,  with ε_i and v from N(0, I/d)         (Kim et al. 2026, Eq. 6)
    Y = norm(X),  S = YYᵀ/√d,  A = softmax(S) under the causal mask,  X ← A·Y (+ X)      (Eqs. 1, 2, 20)

That is the order "pre" (norm, then attention). With "post", S = XXᵀ/√d and X ← norm(A·X (+ X)), so that the
first layer sees the embeddings as they were drawn. A norm may have constant affine vectors: Y = gain·Ŷ + bias.
Another mask than the causal one changes what a token attends to, not how it is scored.
"""

import math
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from posbias.core.errors import wrong
from posbias.core.spec import Count, Positive, Size, later, value
from posbias.theory.masks import Causal, Mask

Anisotropy = Annotated[FiniteFloat, Field(ge=0, lt=1)]
NormName = Literal["layernorm", "rmsnorm", "none"]
NORMS: tuple[NormName, ...] = ("layernorm", "rmsnorm", "none")
"""What may stand before attention."""


@value
class RecencyModel:
    """Tokens of random embeddings in a stack of attention layers without parameters.

    `dimension` is d, `anisotropy` α, `temperature` divides the scores in addition to √d, `gain` and `bias` are the
    entries of constant affine vectors (LayerNorm's bias adds bias²·√d to every score and nothing else).
    Raises `InvalidValueError` for α outside [0, 1), counts below 1, gain or bias without a norm that has them, a
    bias that adds 1e150 or more to scores, a norm of too few dimensions (1 for RMSNorm, 2 for LayerNorm: all its
    vectors are ± one vector), and a mask that leaves a query no key. Source: Kim et al. 2026, Sections 2 and 3,
    whose simulations have 10 tokens, 4 layers and the causal mask.
    """

    tokens: Annotated[int, Field(ge=2, le=1000)] = 10
    dimension: Count = 16
    anisotropy: Anisotropy = 0.5
    norm: NormName = "layernorm"
    residual: bool = False
    depth: Size = 4
    order: Literal["pre", "post"] = "pre"
    temperature: Positive = 1.0
    gain: Positive = 1.0
    bias: FiniteFloat = 0.0
    mask: Mask = later(default=Causal())

    def __post_init__(self):
        if self.norm == "none" and self.gain != 1.0:
            raise wrong("gain", "1 with norm 'none'", got=f"{self.gain}")
        if self.norm != "layernorm" and self.bias != 0.0:
            raise wrong("bias", f"0 with norm {self.norm!r}", got=f"{self.bias}")
        if self.bias * self.bias * self.dimension * self.scale >= 1e150:
            raise wrong("bias", "one that adds less than 1e150 to scores", got=f"{self.bias}")
        least = {"layernorm": 3, "rmsnorm": 2, "none": 1}[self.norm]
        if self.dimension < least:
            raise wrong("dimension", f"at least {least} with norm {self.norm!r}", self.dimension)
        if not self.mask.allowed(self.tokens).any(axis=1).all():
            raise wrong("mask", "one that leaves every query a key", got=f"{self.mask}")

    @property
    def shared(self) -> float:
        """√(α/(1−α)), the weight of the shared direction v (Eq. 6)."""
        return math.sqrt(self.anisotropy / (1.0 - self.anisotropy))

    @property
    def scale(self) -> float:
        """What inner products are multiplied with: 1/(√d·temperature)."""
        return 1.0 / (math.sqrt(self.dimension) * self.temperature)

    @property
    def freedom(self) -> int:
        """Dimensions in which directions differ: LayerNorm takes one away."""
        return self.dimension - (self.norm == "layernorm")

    @property
    def triples(self) -> int:
        """How many triples of positions i > j > k there are, whatever the mask."""
        return math.comb(self.tokens, 3)
