"""Encodings whose logits are not linear in the distance: rotary, bucketed, logarithmic, power, any table.

Each gives the logit that a head adds at distance d = i − j (`logits_at`; d < 0 is a key after the query).
They are members of the union `posbias.theory.positional.Positional`.
"""

import math
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from posbias.core.errors import InvalidValueError
from posbias.core.spec import Citation, Count, NonNegatives, Positive, Positives, Rows, later, tag, value
from posbias.theory.custom import Biases, OfDistance
from posbias.theory.rope_scaling import RopeScaling, plain_angles

Distances = Int[np.ndarray, "distance"]
Logits = Float[np.ndarray, "head distance"]


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
    raise InvalidValueError(f"{name}: expected {some} or {heads} (one per head), got {len(numbers)}")


class ByDistance:
    """An encoding that is no exponential family."""

    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int, groups: int | None = None) -> None:
        """None: the logit is not linear in the distance."""


@value
class RoPE(ByDistance):
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
    dimension: Count | None = None
    frequencies: NonNegatives | None = None
    scaling: RopeScaling | None = later(default=None)
    kind: Literal["rope"] = tag(default="rope")
    cites: ClassVar[Citation] = ("su2024", "rotary encoding")
    exact: ClassVar[bool] = False
    caveat: ClassVar[str] = (
        "rope's amplitudes and phases come from queries and keys; the prediction is as good as the ones given"
    )

    def __post_init__(self):
        if (self.dimension is None) == (self.frequencies is None):
            raise InvalidValueError(
                "dimension, frequencies: expected exactly one of the two, got both or none"
            )
        if self.dimension is not None and self.dimension % 2:
            raise InvalidValueError(f"dimension: expected an even number, got {self.dimension}")
        if self.scaling is not None and self.dimension is None:
            raise InvalidValueError("scaling: expected a dimension with it, got frequencies")
        pairs = len(self.angles)
        for name, rows in (("amplitudes", self.amplitudes), ("phases", self.phases)):
            for row in rows:
                if len(row) not in (1, pairs):
                    raise InvalidValueError(f"{name}: expected one or {pairs} (one per pair), got {len(row)}")

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

    def at(self, tokens: int) -> "RoPE":
        """The same for a text of so many tokens: a dynamic scaling goes by its length."""
        scaling = None if self.scaling is None else self.scaling.at(tokens)
        return self if scaling is self.scaling else replace(self, scaling=scaling)

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        pairs = len(self.angles)
        amplitudes, phases = (
            spread(name, tuple(row if len(row) == pairs else row * pairs for row in rows), heads, groups)
            for name, rows in (("amplitudes", self.amplitudes), ("phases", self.phases))
        )
        # cos(s + r) = cos s·cos r − sin s·sin r for d = 256·step + rest: few cosines and one matrix product
        steps, rests = np.divmod(np.asarray(distance), 256)
        known, place = np.unique(steps, return_inverse=True)
        turned = phases[:, None, :] + known[None, :, None] * (256 * self.angles)
        swung = self.gain * amplitudes[:, None, :] * np.stack([np.cos(turned), -np.sin(turned)])
        inner = np.outer(self.angles, np.arange(256))
        table = swung[0] @ np.cos(inner) + swung[1] @ np.sin(inner)
        return table[:, place, rests]


@value
class T5(ByDistance):
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
    cites: ClassVar[Citation] = ("raffel2020", "relative biases by bucket")

    def __post_init__(self):
        sizes, least = {len(row) for row in self.biases}, 4 if self.bidirectional else 2
        if len(sizes) > 1 or min(sizes) < least:
            raise InvalidValueError(
                f"biases: expected equal rows of at least {least}, got rows of {sorted(sizes)}"
            )
        if self.bidirectional and min(sizes) % 2:
            raise InvalidValueError(
                f"biases: expected as many buckets after as before, got {min(sizes)} in all"
            )
        if self.max_distance <= self._buckets // 2:
            raise InvalidValueError(
                f"max_distance: expected more than half the {self._buckets} buckets, got {self.max_distance}"
            )

    @property
    def _buckets(self) -> int:
        """Buckets of one side."""
        return len(self.biases[0]) // (2 if self.bidirectional else 1)

    def bucket_of(self, distance: Distances) -> Distances:
        """The bucket of each distance i − j. Raises `InvalidValueError` for d < 0 without `bidirectional`."""
        if self.bidirectional is None and distance.min(initial=0) < 0:
            raise InvalidValueError(
                "bidirectional: expected True (an encoder's table) or False (a decoder's) for T5 under a mask "
                "that shows keys after the query, got None"
            )
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
class KerpleLog(ByDistance):
    """KERPLE's logarithmic kernel: −r₁·ln(1 + r₂·|d|), one r₁ ≥ 0 and r₂ > 0 for all heads or each.

    Source: Chi et al. 2022.
    """

    scale: NonNegatives
    rate: Positives = (1.0,)
    kind: Literal["kerple_log"] = tag(default="kerple_log")
    cites: ClassVar[Citation] = ("chi2022", "logarithmic KERPLE kernel")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        scale, rate = spread("scale", self.scale, heads, groups), spread("rate", self.rate, heads, groups)
        return -scale[:, None] * np.log1p(rate[:, None] * np.abs(distance))


@value
class KerplePower(ByDistance):
    """KERPLE's power kernel: −r₁·|d|^r₂ with r₁ ≥ 0 and 0 < r₂ ≤ 2, one for all heads or each.

    Source: Chi et al. 2022. An exponent of 1 is ALiBi.
    """

    scale: NonNegatives
    exponent: Positives = (1.0,)
    kind: Literal["kerple_power"] = tag(default="kerple_power")
    cites: ClassVar[Citation] = ("chi2022", "KERPLE power kernel")

    def __post_init__(self):
        if max(self.exponent) > 2:
            raise InvalidValueError(f"exponent: expected a number from 0 to 2, got {max(self.exponent)}")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head."""
        scale = spread("scale", self.scale, heads, groups)
        exponent = spread("exponent", self.exponent, heads, groups)
        return -scale[:, None] * np.abs(np.asarray(distance, dtype=np.float64)) ** exponent[:, None]


@value
class Tabulated(ByDistance):
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
                raise InvalidValueError(f"{name}: expected rows of one length, got several lengths")

    def logits_at(self, distance: Distances, heads: int, groups: int | None = None) -> Logits:
        """Logits at the given distances i − j, one row per head.

        Raises `InvalidValueError` for a distance beyond the table, or after the query without `after`.
        """
        distance = np.asarray(distance)
        farthest, latest = int(distance.max(initial=0)), int(-distance.min(initial=0))
        if farthest >= len(self.table[0]):
            raise InvalidValueError(
                f"table: expected at least {farthest + 1} distances for this text, got {len(self.table[0])}"
            )
        if latest and (self.after is None or latest > len(self.after[0])):
            known = 0 if self.after is None else len(self.after[0])
            raise InvalidValueError(
                f"after: expected at least {latest} distances where keys after the query are seen, got {known}"
            )
        logits = spread("table", self.table, heads, groups)[:, np.maximum(distance, 0)]
        if latest:
            assert self.after is not None
            later = spread("after", self.after, heads, groups)[:, np.maximum(-distance - 1, 0)]
            logits = np.where(distance < 0, later, logits)
        return logits


@value
class DistanceFunction(ByDistance):
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
            raise InvalidValueError(
                f"function: expected logits of shape ({len(distance)},), or so per head, got {logits.shape}"
            )
        rows = logits if logits.ndim == 2 else np.broadcast_to(logits, (1, len(distance)))
        return spread("function", rows, heads, groups)


@value
class DenseLogits:
    """Any logits by query and key: `matrix` [query, key] for all heads or [head, query, key], −∞ allowed.

    An array (which may be larger than the text), a function of two integer arrays of positions, or its name
    "module:name". A function is called for one query at a time, in O(tokens) memory, and what it gives for a pair
    may depend on nothing else. For measured or invented logits that follow no law of distance.

        DenseLogits(lambda query, key: -0.1 * abs(query - key) + 2.0 * (key % 16 == 0))
    """

    matrix: Biases
    kind: Literal["dense"] = tag(default="dense")
    exact: ClassVar[bool] = True

    def slopes_of(self, heads: int, groups: int | None = None) -> None:
        """None: the logit is not linear in the distance."""

    def logits_of(
        self,
        query: Int[np.ndarray, "query"],
        key: Int[np.ndarray, "key"],
        heads: int,
        groups: int | None = None,
    ) -> Float[np.ndarray, "head query key"]:
        """The logits of these queries and keys. Raises `InvalidValueError` for a matrix too small."""
        logits = self.matrix.at("matrix", query[:, None], key[None, :])
        shape = (logits.shape[0] if logits.ndim == 3 else 1, len(query), len(key))
        try:
            return spread("matrix", np.broadcast_to(logits, shape), heads, groups)
        except ValueError as error:
            if isinstance(error, InvalidValueError):
                raise
            raise InvalidValueError(
                f"matrix: expected logits of shape {shape[1:]} (query, key), or so per head, got {logits.shape}"
            ) from None
