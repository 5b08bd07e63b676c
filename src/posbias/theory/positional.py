"""Logits that depend only on where query and key stand.

With distance d = i − j, each class gives the logit that a head adds at d (`logits_at`; d < 0 is a key after
the query, which only prefix and full masks admit). Three of them are exponential families, −m·d for d ≥ 0:
no encoding is m = 0, ALiBi gives every head its slope, a decay mask gives all heads one rate; `slopes_of`
says their m, and None for the others. `exact` says whether that is the whole truth about the encoding, or
whether part of it acts through queries and keys, so that a prediction rests on measured or chosen numbers.
"""

import math
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import Field

from posbias.core import memory
from posbias.core.arguments import positive
from posbias.core.errors import InvalidValueError
from posbias.core.spec import (
    Citation,
    Count,
    NonNegative,
    NonNegatives,
    Open,
    Positive,
    Words,
    later,
    members,
    tag,
    value,
)
from posbias.theory.any_length import AnyLength
from posbias.theory.distance import (
    T5,
    DenseLogits,
    DistanceFunction,
    Distances,
    KerpleLog,
    KerplePower,
    Logits,
    RoPE,
    Tabulated,
    spread,
)
from posbias.theory.sandwich import Sandwich
from posbias.theory.selection import Selected

PerHead = Float[np.ndarray, "head"]


class _Exponential(AnyLength):
    """−m·|d| on both sides, from `slopes_of`."""

    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int, groups: int | None = None) -> PerHead:
        raise NotImplementedError

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        return -self.slopes_of(heads, groups)[:, None] * np.abs(distance)


@value
class NoPE(_Exponential):
    """No positional encoding: every admissible key gets the same logit."""

    kind: Literal["nope"] = tag(default="nope")

    def slopes_of(self, heads: int, groups: int | None = None) -> PerHead:
        """Decay of the logit per token of distance: zero."""
        return np.zeros(heads)


@value
class ALiBi(_Exponential):
    """Linear biases: head h adds −m_h·|i − j| to its logits (Press et al. 2022).

    `slopes` is one number ≥ 0 per head (or one for all) in the units of the softmax; left out, the standard
    ones of `alibi_slopes`. `scale` multiplies them, for models that divide by √d_head after adding the bias.
    """

    slopes: NonNegatives | None = None
    scale: Positive = 1.0
    kind: Literal["alibi"] = tag(default="alibi")
    cites: ClassVar[Citation] = ("press2022", "ALiBi")

    def slopes_of(self, heads: int, groups: int | None = None) -> PerHead:
        """Decay of the logit per token of distance. Raises `InvalidValueError` if the count does not fit."""
        if self.slopes is None:
            return self.scale * alibi_slopes(heads)
        return self.scale * spread("slopes", self.slopes, heads, groups)


@value
class DecayBias(_Exponential):
    """The decay mask: every head adds −m·(i − j), one rate m ≥ 0 for all, and 0 to keys after the query.

    Source: Wu et al. 2025, §3.3.
    """

    rate: NonNegative
    kind: Literal["decay"] = tag(default="decay")
    cites: ClassVar[Citation] = ("wu2025", "decay mask")

    def slopes_of(self, heads: int, groups: int | None = None) -> PerHead:
        """Decay of the logit per token of distance: the rate, for every head."""
        return np.full(heads, self.rate)

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head; 0 where the key comes after the query."""
        return -self.slopes_of(heads, groups)[:, None] * np.maximum(distance, 0)


@value
class NeedsMeasurement(_Exponential):
    """An encoding that acts through queries and keys; without a measured model its part is left out.

    Rotary and learned encodings have no logit by distance that the configuration alone would give. What is
    computed with this is mask and residual mixing only, and every output says so. `positions`: how many the model
    has a vector for or, where they are rotary, how many its configuration names; None where it is not known.
    `rope`: base and scaling of rotary positions in words, where they are known. `also`: what else decides the
    layer's weights by position and is not known, in words: how fast a linear attention forgets, which keys are
    selected; `encoding` may then be "", no encoding at all.
    """

    encoding: str
    positions: Count | None = later(default=None)
    rope: str = later(default="")
    also: Words = later(default=())
    kind: Literal["needs_measurement"] = tag(default="needs_measurement")
    exact: ClassVar[bool] = False

    def __post_init__(self):
        if not self.encoding and (self.positions is not None or not self.also):
            raise InvalidValueError("encoding: '' given, the name of an encoding needed, or `also` alone")

    def slopes_of(self, heads: int, groups: int | None = None) -> PerHead:
        """Decay of the logit per token of distance: zero, the part that is known."""
        return np.zeros(heads)

    def unknown_at(self, tokens: int) -> tuple[str, ...]:
        """What is not known of a text of so many tokens, in words."""
        if not self.encoding:
            return self.also
        beyond = self.positions is not None and tokens > self.positions
        has = "is configured for" if self.encoding == "rotary" else "has"
        ending = f" (the model {has} {self.positions:,}, {tokens:,} asked)" if beyond else ""
        return (f"{self.encoding} positions{ending}", *self.also)

    @property
    def caveat(self) -> str:
        """What a prediction leaves out."""
        said = [f"{self.encoding} acts through queries and keys and needs measurement"] * bool(self.encoding)
        said += [f"{part} needs measurement" for part in self.also]
        return f"{'; '.join(said)}; left out here, so this is mask and mixing only"


Positional = Annotated[
    NoPE
    | ALiBi
    | DecayBias
    | RoPE
    | T5
    | KerpleLog
    | KerplePower
    | Sandwich
    | Tabulated
    | DistanceFunction
    | DenseLogits
    | Selected
    | NeedsMeasurement,
    Field(discriminator="kind"),
    Open("slopes_of", "logits_at"),
]
"""The positional encodings; one's own, with these methods and `exact`, is one too, with `at` if a text's length
changes it."""

POSITIONALS = members(Positional)
"""Every class of the union, for tests, menus and tables."""


def alibi_slopes(heads: int, bias_max: float = 8.0) -> PerHead:
    """The slopes that BLOOM and MPT use for any number of heads.

    For H a power of two, 2^(−8h/H) with h = 1 … H (Press et al. 2022, §3). Otherwise the slopes of the next
    lower power of two, followed by every second one of the next higher. Raises `InvalidValueError` for heads < 1
    and for a `bias_max` that is not above 0.
    """
    memory.length("heads", heads, each=32)
    positive("bias_max", bias_max)
    lower = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-bias_max / lower * np.arange(1, lower + 1))
    between = 2.0 ** (-bias_max / (2 * lower) * np.arange(1, 2 * lower, 2))
    return np.concatenate([slopes, between])[:heads]


class Rotary(NamedTuple):
    """Angles of rotary positions in radians per token, one per rotated pair, and the gain on queries and keys."""

    angles: Float[np.ndarray, "pair"]
    gain: float
