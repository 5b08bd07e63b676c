"""Rotary scalings: other angles than a base gives, so that a model reads longer texts than it was trained on.

θ_l = base^(−2l/d) turns pair l of d dimensions by θ_l per token; a wavelength is 2π/θ_l tokens. Each class here
makes the angles of a base and a dimension (`angles_of`), as transformers does under the same name, and says by how
much the rotary part of the logits grows (`gain`). Two depend on the length of the text (`at`).
"""

import math
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field

from posbias.core.errors import wrong
from posbias.core.spec import Count, Fraction, Positive, Positives, members, tag, value

Angles = Float[np.ndarray, "pair"]


class Rotary(NamedTuple):
    """Angles of rotary positions in radians per token, one per rotated pair, and the gain on queries and keys."""

    angles: Float[np.ndarray, "pair"]
    gain: float


def plain_angles(base: float, dimension: int) -> Angles:
    """θ_l = base^(−2l/dimension) in radians per token, without a scaling (Su et al. 2024)."""
    return base ** (-np.arange(0, dimension, 2) / dimension)


class _Scaling:
    """A scaling that leaves the size of logits alone and is the same for texts of any length."""

    @property
    def gain(self) -> float:
        """What the rotary part of the logits is multiplied by."""
        return 1.0

    def at(self, tokens: int) -> Self:
        """The same for a text of so many tokens."""
        return self


@value
class LinearScaling(_Scaling):
    """θ_l/factor: positions pressed together (Chen et al. 2023, "position interpolation")."""

    factor: Positive
    kind: Literal["linear_scaling"] = tag(default="linear_scaling")

    def angles_of(self, base: float, dimension: int) -> Angles:
        """Angles in radians per token, one per pair."""
        return plain_angles(base, dimension) / self.factor


@value
class DynamicNTK(_Scaling):
    """A larger base for a text of n > `trained` tokens: base·(factor·n/trained − factor + 1)^(d/(d − 2)).

    `tokens` is n; left out it is the length that is asked for, and up to `trained` tokens nothing changes. Source:
    Peng et al. 2024, as in transformers; needs more than one pair.
    """

    factor: Positive
    trained: Count
    tokens: Count | None = None
    kind: Literal["dynamic_ntk"] = tag(default="dynamic_ntk")

    def at(self, tokens: int) -> Self:
        """The same for a text of so many tokens, where none was given."""
        return self if self.tokens is not None else replace(self, tokens=tokens)

    def angles_of(self, base: float, dimension: int) -> Angles:
        """Angles in radians per token, one per pair. Raises `InvalidValueError` for a single pair."""
        if dimension < 4:
            raise wrong("dimension", "at least 4 for dynamic NTK scaling", dimension)
        stretch = max(self.tokens or self.trained, self.trained) / self.trained
        grown = self.factor * stretch - (self.factor - 1.0)
        return plain_angles(base * grown ** (dimension / (dimension - 2)), dimension)


@value
class YaRN(_Scaling):
    """θ_l as it is for fast pairs, θ_l/factor for slow ones, a ramp between; logits grow by `attention_factor`².

    The ramp over l runs from where a pair turns `fast` times within the `trained` tokens to where it turns `slow`
    times, in whole pairs if `truncate`. `attention_factor`, on queries and keys each, is 0.1·ln(factor) + 1 if
    left out (1 for a factor of at most 1). Source: Peng et al. 2024. Raises `InvalidValueError` for slow ≥ fast.
    """

    factor: Positive
    trained: Count
    fast: Positive = 32.0
    slow: Positive = 1.0
    truncate: bool = True
    attention_factor: Positive | None = None
    kind: Literal["yarn"] = tag(default="yarn")

    def __post_init__(self):
        if not self.slow < self.fast:
            raise wrong("fast", f"a number above slow = {self.slow:g}", got=f"{self.fast:g}")

    @property
    def gain(self) -> float:
        """What the rotary part of the logits is multiplied by, 1/t of the paper's softmax temperature t."""
        return (self.attention_factor or 0.1 * math.log(max(self.factor, 1.0)) + 1.0) ** 2

    def angles_of(self, base: float, dimension: int) -> Angles:
        """Angles in radians per token, one per pair. Raises `InvalidValueError` for base ≤ 1, odd dimension."""
        if dimension % 2:
            raise wrong("dimension", "an even number for YaRN", dimension)
        if base <= 1:
            raise wrong("base", "a number above 1 for YaRN", got=f"{base:g}")
        logs = (math.log(self.trained / (2 * math.pi * turns)) for turns in (self.fast, self.slow))
        low, high = (dimension * log / (2 * math.log(base)) for log in logs)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dimension - 1)
        slowed = np.clip((np.arange(dimension // 2) - low) / (high - low or 0.001), 0.0, 1.0)
        return plain_angles(base, dimension) * (1.0 - slowed + slowed / self.factor)


@value
class Llama3Scaling(_Scaling):
    """θ_l for wavelengths below trained/`high`, θ_l/factor above trained/`low`, between them in proportion.

    `low` and `high` are turns within the `trained` tokens, `low` ≤ `high`, transformers' `low_freq_factor` and
    `high_freq_factor`. Source: Llama 3.1 (Dubey et al. 2024), as in transformers.
    """

    factor: Positive
    trained: Count
    low: Positive = 1.0
    high: Positive = 4.0
    kind: Literal["llama3"] = tag(default="llama3")

    def __post_init__(self):
        if not self.low <= self.high:
            raise wrong("high", f"a number from low = {self.low:g}", got=f"{self.high:g}")

    def angles_of(self, base: float, dimension: int) -> Angles:
        """Angles in radians per token, one per pair."""
        angles = plain_angles(base, dimension)
        turns = self.trained * angles / (2 * math.pi)
        span = self.high - self.low
        kept = np.clip((turns - self.low) / span, 0.0, 1.0) if span else np.where(turns > self.low, 1.0, 0.0)
        return angles * (kept + (1.0 - kept) / self.factor)


@value
class LongRoPE(_Scaling):
    """θ_l/short_l for a text of at most `trained` tokens, θ_l/long_l for a longer one.

    `short` and `long` have a number for each pair. Logits grow by `attention_factor`², which is
    1 + ln(factor)/ln(trained) if left out (1 for a factor of at most 1). `tokens` is the length of the text; left
    out, that which is asked for. Source: Ding et al. 2024, as in transformers. Raises `InvalidValueError` for a
    single trained token.
    """

    short: Positives
    long: Positives
    factor: Positive
    trained: Annotated[int, Field(ge=2)]
    attention_factor: Positive | None = None
    tokens: Count | None = None
    kind: Literal["longrope"] = tag(default="longrope")

    @property
    def gain(self) -> float:
        """What the rotary part of the logits is multiplied by."""
        if self.attention_factor is not None:
            return self.attention_factor**2
        return 1.0 + math.log(max(self.factor, 1.0)) / math.log(self.trained)

    def at(self, tokens: int) -> Self:
        """The same for a text of so many tokens, where none was given."""
        return self if self.tokens is not None else replace(self, tokens=tokens)

    def angles_of(self, base: float, dimension: int) -> Angles:
        """Angles in radians per token, one per pair. Raises `InvalidValueError` for another number of pairs."""
        for name, factors in (("short", self.short), ("long", self.long)):
            if len(factors) != dimension // 2:
                raise wrong(name, f"{dimension // 2} (one per pair)", len(factors))
        factors = self.long if (self.tokens or 0) > self.trained else self.short
        return plain_angles(base, dimension) / np.array(factors)


@value
class ProportionalRoPE(_Scaling):
    """θ_l/factor for the first `share` of the pairs; the others do not turn, and know no position.

    The angles are those of all dimensions, unlike where a part of them is left out of `RoPE.dimension`. Source:
    Gemma 4, as in transformers.
    """

    share: Fraction
    factor: Positive = 1.0
    kind: Literal["proportional"] = tag(default="proportional")

    def angles_of(self, base: float, dimension: int) -> Angles:
        """Angles in radians per token, one per pair."""
        turning = np.arange(dimension // 2) < int(self.share * dimension // 2)
        return np.where(turning, plain_angles(base, dimension) / self.factor, 0.0)


RopeScaling = Annotated[
    LinearScaling | DynamicNTK | YaRN | Llama3Scaling | LongRoPE | ProportionalRoPE,
    Field(discriminator="kind"),
]
"""The rotary scalings."""

ROPE_SCALINGS = members(RopeScaling)
"""Every class of the union, for tests, menus and tables."""
