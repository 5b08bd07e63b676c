"""Logits that depend only on where query and key stand.

With distance d = i − j, each class gives the logit that a head adds at d (`logits_at`; d < 0 is a key after
the query, which only prefix and full masks admit). Three of them are exponential families, −m·d for d ≥ 0:
no encoding is m = 0, ALiBi gives every head its slope, a decay mask gives all heads one rate; `slopes_of`
says their m, and None for the others. `exact` says whether that is the whole truth about the encoding, or
whether part of it acts through queries and keys, so that a prediction rests on measured or chosen numbers.
"""

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from pydantic import Field

from posbias.core import machine
from posbias.core.errors import positive, whole, wrong
from posbias.core.spec import (
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
from posbias.theory.custom import Biases, OfDistance
from posbias.theory.rope_scaling import RopeScaling, plain_angles

Even = Annotated[int, Field(ge=2, multiple_of=2)]
"""An even number of dimensions."""
Distances = Num[np.ndarray, "distance"]
"""Distances i − j: integers in a text, any number in a formula."""
Logits = Float[np.ndarray, "head distance"]
PerHead = Float[np.ndarray, "head"]


def spread(
    name: str, given: tuple | np.ndarray, heads: int, groups: int | None = None
) -> Float[np.ndarray, "head *entries"]:
    """One entry (a number or a row of them) per head, from one for all, one per group of heads, or one each.

    Raises `InvalidValueError` naming `name` for any other count.
    """
    numbers = np.array(given, dtype=np.float64)
    if len(numbers) == heads:
        return numbers
    if groups is not None and len(numbers) == groups:
        return np.repeat(numbers, heads // groups, axis=0)
    if len(numbers) == 1:
        return np.repeat(numbers, heads, axis=0)
    some = f"one, {groups} (one per group of heads)" if groups not in (None, 1, heads) else "one"
    raise wrong(name, f"{some} or {heads} (one per head)", len(numbers))


class _Exponential:
    """−m·|d| on both sides, from `slopes_of`."""

    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int, groups: int | None = None) -> PerHead:
        """Decay of the logit per token of distance: zero, unless its class says otherwise."""
        return np.zeros(heads)

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        return -self.slopes_of(heads, groups)[:, None] * np.abs(distance)


@value
class NoPE(_Exponential):
    """No positional encoding: every admissible key gets the same logit."""

    kind: Literal["nope"] = tag(default="nope")


@value
class ALiBi(_Exponential):
    """Linear biases: head h adds −m_h·|i − j| to its logits (Press et al. 2022).

    `slopes` is one number ≥ 0 per head (or one for all) in the units of the softmax; left out, the standard
    ones of `alibi_slopes`. `scale` multiplies them, for models that divide by √d_head after adding the bias.
    """

    slopes: NonNegatives | None = None
    scale: Positive = 1.0
    kind: Literal["alibi"] = tag(default="alibi")

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

    def slopes_of(self, heads: int, groups: int | None = None) -> PerHead:
        """Decay of the logit per token of distance: the rate, for every head."""
        return np.full(heads, self.rate)

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head; 0 where the key comes after the query."""
        return -self.slopes_of(heads, groups)[:, None] * np.maximum(distance, 0)


class NotExponential:
    """An encoding that is no exponential family."""

    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int, groups: int | None = None) -> None:
        """None: the logit is not linear in the distance."""


@value
class RoPE(NotExponential):
    """Rotary encoding as a bias by distance: Σ_l a_l·cos(d·θ_l + φ_l), one row of a and φ for all heads or each.

    Rotating queries and keys by their positions turns their product, for fixed content, into this sum over
    the pairs of dimensions (Wu et al. 2025, Appendix I; Lemma 4.6 is the case of one pair and φ = 0).
    `amplitudes` a_l = |q_l|·|k_l| in softmax units and `phases` φ_l belong to content: they are chosen or
    measured. θ_l are `frequencies` when given, else base^(−2l/dimension) for the `dimension`/2 pairs, or what a
    `scaling` (`rope_scaling`) makes of these; YaRN multiplies all a_l too. Raises `InvalidValueError` for an odd
    dimension, counts that do not fit and a scaling of frequencies given one by one.
    """

    amplitudes: Rows
    phases: Rows = ((0.0,),)
    base: Positive = 10_000.0
    dimension: Even | None = None
    frequencies: NonNegatives | None = None
    scaling: RopeScaling | None = later(default=None)
    kind: Literal["rope"] = tag(default="rope")
    exact: ClassVar[bool] = False
    caveat: ClassVar[str] = (
        "rope's amplitudes and phases come from queries and keys; the prediction is as good as the ones given"
    )

    def __post_init__(self):
        if (self.dimension is None) == (self.frequencies is None):
            raise wrong("dimension, frequencies", "exactly one of the two", got="both or none")
        if self.scaling is not None and self.dimension is None:
            raise wrong("scaling", "a dimension with it", got="frequencies")
        pairs = len(self.angles)
        for name, rows in (("amplitudes", self.amplitudes), ("phases", self.phases)):
            for row in rows:
                if len(row) not in (1, pairs):
                    raise wrong(name, f"one or {pairs} (one per pair)", len(row))

    @property
    def angles(self) -> Float[np.ndarray, "pair"]:
        """θ_l, in radians per token."""
        if self.frequencies is not None:
            return np.array(self.frequencies, dtype=np.float64)
        assert self.dimension is not None
        if self.scaling is not None:
            return self.scaling.angles_of(self.base, self.dimension)
        return plain_angles(self.base, self.dimension)

    @property
    def gain(self) -> float:
        """What multiplies every amplitude: YaRN's factor on logits, else one."""
        return 1.0 if self.scaling is None else self.scaling.gain

    def waves_of(self, heads: int, groups: int | None = None) -> Float[np.ndarray, "2 head pair"]:
        """a_l, without the gain, and φ_l of every head."""
        pairs, named = len(self.angles), {"amplitudes": self.amplitudes, "phases": self.phases}
        whole = {name: tuple(row * (pairs // len(row)) for row in rows) for name, rows in named.items()}
        return np.array([spread(name, rows, heads, groups) for name, rows in whole.items()])

    def at(self, tokens: int) -> "RoPE":
        """The same for a text of so many tokens: a dynamic scaling goes by its length."""
        scaling = None if self.scaling is None else self.scaling.at(tokens)
        return self if scaling is self.scaling else replace(self, scaling=scaling)

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        amplitudes, phases = self.waves_of(heads, groups)
        # cos(s + r) = cos s·cos r − sin s·sin r for d = 256·step + rest: few cosines and one matrix product
        steps, rests = np.divmod(np.asarray(distance), 256)
        known, place = np.unique(steps, return_inverse=True)
        turned = phases[:, None, :] + known[None, :, None] * (256 * self.angles)
        swung = self.gain * amplitudes[:, None, :] * np.stack([np.cos(turned), -np.sin(turned)])
        inner = np.outer(self.angles, np.arange(256))
        table = swung[0] @ np.cos(inner) + swung[1] @ np.sin(inner)
        return table[:, place, rests]


@value
class T5(NotExponential):
    """Learned biases for buckets of distances (Raffel et al. 2020, §2.1), one row for all heads or each.

    Distances below buckets/2 have a bucket each, larger ones share logarithmic buckets up to `max_distance`,
    beyond which all fall into the last. Each row holds one bias per bucket; `max_distance` must exceed half the
    buckets of a side. `bidirectional` decides keys after the query, and is needed where a mask shows them: True
    is an encoder's table, whose second half of buckets is for them, as the first is for keys before (an even
    number of at least 4); False a decoder's, where they fall into the bucket of distance 0. None: no key after
    the query.

    The bias of a transformers model is `T5(embedding.weight.T.tolist(), max_distance, bidirectional)`.
    """

    biases: Rows
    max_distance: Count = 128
    bidirectional: bool | None = later(default=None)
    kind: Literal["t5"] = tag(default="t5")

    def __post_init__(self):
        sizes, least = {len(row) for row in self.biases}, 4 if self.bidirectional else 2
        if len(sizes) > 1 or min(sizes) < least:
            raise wrong("biases", f"equal rows of at least {least}", got=f"rows of {sorted(sizes)}")
        if self.bidirectional and min(sizes) % 2:
            raise wrong("biases", "as many buckets after as before", got=f"{min(sizes)} in all")
        if self.max_distance <= self._buckets // 2:
            raise wrong("max_distance", f"more than half the {self._buckets} buckets", self.max_distance)

    @property
    def _buckets(self) -> int:
        """Buckets of one side."""
        return len(self.biases[0]) // (2 if self.bidirectional else 1)

    def bucket_of(self, distance: Distances) -> Distances:
        """The bucket of each distance i − j. Raises `InvalidValueError` for d < 0 without `bidirectional`."""
        if self.bidirectional is None and distance.min(initial=0) < 0:
            wanted = "True (an encoder's table) or False (a decoder's) where a mask shows later keys"
            raise wrong("bidirectional", wanted, got="None")
        buckets = self._buckets
        exact = buckets // 2
        size = np.abs(distance) if self.bidirectional else np.maximum(distance, 0)
        ratio = np.log(np.maximum(size, exact) / exact) / math.log(self.max_distance / exact)
        far = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
        side = buckets * (distance < 0) if self.bidirectional else 0
        return np.where(size < exact, size, far) + side

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head. Raises as `bucket_of`."""
        return spread("biases", self.biases, heads, groups)[:, self.bucket_of(np.asarray(distance))]


@value
class KerpleLog(NotExponential):
    """KERPLE's logarithmic kernel: −r₁·ln(1 + r₂·|d|), one r₁ ≥ 0 and r₂ > 0 for all heads or each.

    Source: Chi et al. 2022.
    """

    scale: NonNegatives
    rate: Positives = (1.0,)
    kind: Literal["kerple_log"] = tag(default="kerple_log")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        scale, rate = spread("scale", self.scale, heads, groups), spread("rate", self.rate, heads, groups)
        return -scale[:, None] * np.log1p(rate[:, None] * np.abs(distance))


@value
class KerplePower(NotExponential):
    """KERPLE's power kernel: −r₁·|d|^r₂ with r₁ ≥ 0 and 0 < r₂ ≤ 2, one for all heads or each.

    Source: Chi et al. 2022. An exponent of 1 is ALiBi.
    """

    scale: NonNegatives
    exponent: Positives = (1.0,)
    kind: Literal["kerple_power"] = tag(default="kerple_power")

    def __post_init__(self):
        if max(self.exponent) > 2:
            raise wrong("exponent", "a number from 0 to 2", max(self.exponent))

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        scale = spread("scale", self.scale, heads, groups)
        exponent = spread("exponent", self.exponent, heads, groups)
        return -scale[:, None] * np.abs(np.asarray(distance, dtype=np.float64)) ** exponent[:, None]


@value
class Tabulated(NotExponential):
    """Any logits by distance: `table` holds them for d = 0, 1, 2, …, one row for all heads or each.

    `after` holds those of keys after the query, d = −1, −2, …, which prefix and full masks need. For logits
    fitted to a measured model, or an encoding that has no class here.
    """

    table: Rows
    after: Rows | None = None
    kind: Literal["tabulated"] = tag(default="tabulated")

    def __post_init__(self):
        for name, rows in (("table", self.table), ("after", self.after or ((0.0,),))):
            if len({len(row) for row in rows}) > 1:
                raise wrong(name, "rows of one length", got="several lengths")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head.

        Raises `InvalidValueError` for a distance beyond the table, or after the query without `after`.
        """
        distance = np.asarray(distance)
        farthest, latest = int(distance.max(initial=0)), int(-distance.min(initial=0))
        table = spread("table", self.table, heads, groups)
        after = spread("after", self.after or ((),), heads, groups)
        if farthest >= table.shape[1]:
            raise wrong("table", f"at least {farthest + 1} distances for this text", table.shape[1])
        if latest > after.shape[1]:
            wanted = f"at least {latest} distances where keys after the query are seen"
            raise wrong("after", wanted, after.shape[1])
        return np.concatenate([after[:, ::-1], table], axis=1)[:, distance + after.shape[1]]


@value
class DistanceFunction(NotExponential):
    """Any logits by distance: `function` of an integer array of distances, or its name "module:name".

    It gives one logit per distance for all heads, or a row of them per head (or group of heads); it is called with
    the distances of the text at hand, d < 0 (keys after the query) only under masks that look ahead.

        DistanceFunction(lambda distance: -0.5 * np.log1p(distance))
    """

    function: OfDistance
    kind: Literal["function"] = tag(default="function")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head. Raises `InvalidValueError` for another shape."""
        logits = self.function.at("function", np.asarray(distance))
        if logits.ndim > 2 or logits.shape[-1:] not in ((), (len(distance),)):
            wanted = f"logits of shape ({len(distance)},), or so per head"
            raise wrong("function", wanted, got=f"{logits.shape}")
        rows = logits if logits.ndim == 2 else np.broadcast_to(logits, (1, len(distance)))
        return spread("function", rows, heads, groups)


@value
class DenseLogits(NotExponential):
    """Any logits by query and key: `matrix` [query, key] for all heads or [head, query, key], −∞ allowed.

    An array (which may be larger than the text), a function of two integer arrays of positions, or its name
    "module:name". A function is called for one query at a time, in O(tokens) memory, and what it gives for a pair
    may depend on nothing else. For measured or invented logits that follow no law of distance.

        DenseLogits(lambda query, key: -0.1 * abs(query - key) + 2.0 * (key % 16 == 0))
    """

    matrix: Biases
    kind: Literal["dense"] = tag(default="dense")

    def logits_of(
        self,
        query: Int[np.ndarray, "query"],
        key: Int[np.ndarray, "key"],
        heads: int,
        groups: int | None = None,
    ) -> Float[np.ndarray, "head query key"]:
        """The logits of these queries and keys. Raises `InvalidValueError` for a matrix too small."""
        logits = self.matrix.over("matrix", query, key)
        return spread("matrix", logits if logits.ndim == 3 else logits[None], heads, groups)


@value
class Sandwich(NotExponential):
    """Σ_{k=1}^{D/2} cos(d/base^(2k/D)) divided by the head's compression ratio, D the `dimension`.

    Sinusoidal positions of which only their product with each other is kept. It falls about as the logarithm of
    the distance, by D/(2·ln base) for each unit of ln d while 1 ≪ d ≪ base, and nothing is learned.

    `ratios` is one number > 0 for all heads or each; left out, head h = 1 … H of H has 8h/H. Source: Chi et al.
    2023, where D is 128; code is met whose sums begin at k = 0. Raises `InvalidValueError` for an odd dimension.

        Sandwich().logits_at(np.array([0, 1, 100]), heads=1)   # 64/8 and what is left of it
    """

    ratios: Positives | None = None
    dimension: Even = 128
    base: Positive = 10_000.0
    kind: Literal["sandwich"] = tag(default="sandwich")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        ratios = self.ratios or tuple(8.0 * head / heads for head in range(1, heads + 1))
        angles = self.base ** (-2.0 * np.arange(1, self.dimension // 2 + 1) / self.dimension)
        waves = RoPE(tuple((1.0 / ratio,) for ratio in ratios), frequencies=tuple(angles.tolist()))
        return waves.logits_at(distance, heads, groups)


@value
class Selected(NotExponential):
    """ln s(d): logits of the rate at which a key at distance d is selected, measured or given.

    `rates` holds s for d = 0, 1, 2, …, above 0 and at most 1, one row for all heads or each (`selection_rates`). A
    text must not be longer. `after` holds those of keys after the query, d = −1, −2, …, as in `Tabulated`. For
    DeepSeek's sparse attention and others like it.
    """

    rates: Rows
    after: Rows | None = None
    kind: Literal["selected"] = tag(default="selected")
    exact: ClassVar[bool] = False
    caveat: ClassVar[str] = (
        "selected tokens count by their rates; the mean of a softmax over what is selected is not the softmax of "
        "the means, unless always as many are selected and their logits are equal"
    )

    def __post_init__(self):
        numbers = [rate for row in (*self.rates, *(self.after or ())) for rate in row]
        if not 0 < min(numbers) <= max(numbers) <= 1:
            given = f"from {min(numbers):g} to {max(numbers):g}"
            raise wrong("rates", "numbers above 0 and at most 1", got=given)
        Tabulated(self.rates, self.after)

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head. Raises `InvalidValueError` as `Tabulated`."""
        return np.log(Tabulated(self.rates, self.after).logits_at(distance, heads, groups))


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
            raise wrong("encoding", "the name of an encoding, or `also` alone", got="''")

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
        raise wrong("selected", "booleans [text, query, key] of one length", got="others")
    texts, tokens, _ = selected.shape
    start = min(whole("first", first, 0), tokens - 1)
    times = np.array([selected[:, range(max(d, start), tokens), range(max(d, start) - d, tokens - d)].sum()
                      for d in range(tokens)])  # fmt: skip
    seen = texts * (tokens - np.maximum(np.arange(tokens), start))
    return (times + 0.5) / (seen + 1.0)
