"""An architecture as a value: what the theory needs to know of a transformer, and nothing else.

Depth, a pattern of layers that repeats up the stack, and the mixing of each layer. The number of tokens is
an argument of the computation, not of the architecture.

    Architecture(depth=24, layers=(Layer(heads=16, positional=ALiBi()),), mixing=Constant(0.2))
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from posbias.errors import InvalidValueError
from posbias.spec import Count, Fractions, Positive, value
from posbias.theory.content import Content, NoContent
from posbias.theory.masks import Causal, Mask
from posbias.theory.mixing import AtInitialisation, Mixing
from posbias.theory.positional import NoPE, Positional


@dataclass(frozen=True, eq=False)
class HeadLogits:
    """A layer's logits per head in softmax units: δ_h·1[i = j] − m_h·(i − j), and the weight of each head."""

    slopes: Float[np.ndarray, "head"]
    diagonal: Float[np.ndarray, "head"]
    weights: Float[np.ndarray, "head"]


@value
class Layer:
    """One attention layer: mask, positional logits, content logits, heads.

    `head_weights` (one per head, summing to one) replace the uniform mean over heads of Herasimchyk et al.
    2026, Eq. (4); `temperature` divides the logits. Raises `InvalidValueError` where counts do not fit.
    """

    heads: Count = 1
    mask: Mask = field(default_factory=Causal)
    positional: Positional = field(default_factory=NoPE)
    content: Content = field(default_factory=NoContent)
    head_weights: Fractions | None = None
    temperature: Positive = 1.0

    def __post_init__(self):
        self.head_logits()
        if self.head_weights is not None:
            if len(self.head_weights) != self.heads:
                raise InvalidValueError(
                    f"head_weights: {len(self.head_weights)} given, {self.heads} (one per head) needed"
                )
            total = float(np.sum(self.head_weights))
            if abs(total - 1.0) > 1e-9:
                raise InvalidValueError(f"head_weights: sum to {total:.9g}, a sum of 1 needed")

    def head_logits(self) -> HeadLogits:
        """The layer's logits per head, divided by the temperature, with the weights of the heads."""
        weights = (
            np.full(self.heads, 1.0 / self.heads)
            if self.head_weights is None
            else np.array(self.head_weights)
        )
        return HeadLogits(
            self.positional.slopes_of(self.heads) / self.temperature,
            self.content.diagonal_of(self.heads) / self.temperature,
            weights,
        )


@value
class Architecture:
    """`depth` layers, bottom first: the pattern `layers` repeated, with the mixing coefficient of each.

    Without `mixing` the schedule of a pre-norm network at initialisation is assumed and said. `remarks` are
    what a reader of configurations has to say about the choice. Raises `InvalidValueError` if the pattern
    does not divide the depth or the mixing does not fit it.
    """

    depth: Count
    layers: tuple[Layer, ...] = (Layer(),)
    mixing: Mixing = field(default_factory=AtInitialisation)
    name: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.layers or self.depth % len(self.layers):
            raise InvalidValueError(
                f"layers: a pattern of {len(self.layers)} given, one that divides the depth {self.depth} needed"
            )
        self.mixing.values(self.depth)

    @property
    def stack(self) -> tuple[Layer, ...]:
        """All layers, bottom first."""
        return self.layers * (self.depth // len(self.layers))

    @property
    def coefficients(self) -> Float[np.ndarray, "layer"]:
        """λ of every layer, bottom first."""
        return self.mixing.values(self.depth)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a prediction from this architecture takes for granted, in words; empty when all was given."""
        said = list(self.remarks)
        if self.mixing.assumed:
            said.append(self.mixing.assumed)
        unmeasured = sorted(
            {layer.positional.encoding for layer in self.layers if not layer.positional.exact}  # type: ignore[union-attr]
        )
        said.extend(
            f"positional: {name} acts through queries and keys and needs measurement; left out here, "
            "so this is mask and mixing only"
            for name in unmeasured
        )
        return tuple(said)
