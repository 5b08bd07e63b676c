"""Logits that depend only on where query and key stand.

With distance d = i − j, each class gives the logit that a head adds at d (`logits_at`; d < 0 is a key after
the query, which only prefix and full masks admit). Three of them are exponential families, −m·d for d ≥ 0:
no encoding is m = 0, ALiBi gives every head its slope, a decay mask gives all heads one rate; `slopes_of`
says their m, and None for the others. `exact` says whether that is the whole truth about the encoding, or
whether part of it acts through queries and keys, so that a prediction rests on measured or chosen numbers.
"""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field

from posbias.core import machine
from posbias.core.errors import InvalidValueError, positive, whole
from posbias.core.spec import (
    Citation,
    Count,
    NonNegative,
    NonNegatives,
    Open,
    Positive,
    Positives,
    Rows,
    Words,
    later,
    members,
    tag,
    value,
)
from posbias.theory.distance import (
    T5,
    ByDistance,
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

PerHead = Float[np.ndarray, "head"]


class _Exponential:
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
class Sandwich(ByDistance):
    """Σ_{k=1}^{D/2} cos(d/base^(2k/D)) divided by the head's compression ratio, D the `dimension`.

    Sinusoidal positions of which only their product with each other is kept. It falls about as the logarithm of
    the distance, by D/(2·ln base) for each unit of ln d while 1 ≪ d ≪ base, and nothing is learned.

    `ratios` is one number > 0 for all heads or each; left out, head h = 1 … H of H has 8h/H. Source: Chi et al.
    2023, where D is 128; code is met whose sums begin at k = 0. Raises `InvalidValueError` for an odd dimension.

        Sandwich().logits_at(np.array([0, 1, 100]), heads=1)   # 64/8 and what is left of it
    """

    ratios: Positives | None = None
    dimension: Count = 128
    base: Positive = 10_000.0
    kind: Literal["sandwich"] = tag(default="sandwich")
    cites: ClassVar[Citation] = ("chi2023", "Sandwich, biases by the product of sinusoidal positions")

    def __post_init__(self):
        if self.dimension % 2:
            raise InvalidValueError(f"dimension: expected an even number, got {self.dimension}")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        ratios = self.ratios or tuple(8.0 * head / heads for head in range(1, heads + 1))
        angles = self.base ** (-2.0 * np.arange(1, self.dimension // 2 + 1) / self.dimension)
        waves = RoPE(tuple((1.0 / ratio,) for ratio in ratios), frequencies=tuple(angles.tolist()))
        return waves.logits_at(distance, heads, groups)


@value
class Selected(ByDistance):
    """ln s(d): logits of the rate at which a key at distance d is selected, measured or given.

    `rates` holds s for d = 0, 1, 2, …, above 0 and at most 1, one row for all heads or each (`selection_rates`). A
    text must not be longer. `after` holds those of keys after the query, d = −1, −2, …, as in `Tabulated`. For
    DeepSeek's sparse attention and others like it.
    """

    rates: Rows
    after: Rows | None = None
    kind: Literal["selected"] = tag(default="selected")
    cites: ClassVar[Citation] = ("deepseek2025", "sparse selection of keys")
    exact: ClassVar[bool] = False
    caveat: ClassVar[str] = (
        "selected tokens count by their rates; the mean of a softmax over what is selected is not the softmax of "
        "the means, unless always as many are selected and their logits are equal"
    )

    def __post_init__(self):
        numbers = [rate for row in (*self.rates, *(self.after or ())) for rate in row]
        if not 0 < min(numbers) <= max(numbers) <= 1:
            raise InvalidValueError(
                f"rates: expected numbers above 0 and at most 1, got from {min(numbers):g} to {max(numbers):g}"
            )
        Tabulated(self.rates, self.after)

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head. Raises `InvalidValueError` as `Tabulated`."""
        logits, after = (
            None if rows is None else tuple(tuple(np.log(row).tolist()) for row in rows)
            for rows in (self.rates, self.after)
        )
        assert logits is not None
        return Tabulated(logits, after).logits_at(distance, heads, groups)


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
            raise InvalidValueError("encoding: expected the name of an encoding, or `also` alone, got ''")

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
    machine.length("heads", heads, each=32)
    positive("bias_max", bias_max)
    lower = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-bias_max / lower * np.arange(1, lower + 1))
    between = 2.0 ** (-bias_max / (2 * lower) * np.arange(1, 2 * lower, 2))
    return np.concatenate([slopes, between])[:heads]


def selection_rates(
    selected: Bool[np.ndarray, "text query key"], first: int = 0
) -> Float[np.ndarray, "distance"]:
    """How often a key at each distance is selected, over texts and queries: (times + ½)/(queries + 1).

    `first` is the first query that counts: earlier ones, which select all they see, say nothing. The half keeps a
    distance that was never selected above 0. Raises `InvalidValueError` for another shape.
    """
    selected = np.asarray(selected)
    if selected.dtype != bool or selected.ndim != 3 or selected.shape[1] != selected.shape[2]:
        raise InvalidValueError("selected: expected booleans [text, query, key] of one length, got others")
    texts, tokens, _ = selected.shape
    start = min(whole("first", first, 0), tokens - 1)
    times = np.array([selected[:, range(max(d, start), tokens), range(max(d, start) - d, tokens - d)].sum()
                      for d in range(tokens)])  # fmt: skip
    seen = texts * (tokens - np.maximum(np.arange(tokens), start))
    return (times + 0.5) / (seen + 1.0)
