"""Who may attend to whom.

A mask is a relation between query i and key j. Each says with `allowed` which pairs it admits, and with
`reach` and `farthest` how far forward and back influence comes from. Adding one is one class here and its
name in the union.
"""

import functools
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Bool, Int
from pydantic import Field

from posbias.errors import InvalidValueError
from posbias.spec import Count, NaturalNumber, Open, tag, value
from posbias.theory.custom import Booleans


class _LooksBack:
    """A mask under which a query sees every token before it and none after it, unless its class says otherwise."""

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query` through any number of layers."""
        return query

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return tokens - 1


@value
class Causal(_LooksBack):
    """Every token attends to itself and to all earlier ones: j ≤ i (Wu et al. 2025, §4.1)."""

    kind: Literal["causal"] = tag(default="causal")

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        return np.tri(tokens, dtype=bool)


@value
class SlidingWindow(_LooksBack):
    """Every token attends to itself and the `width` − 1 tokens before it, and to the first `sinks` tokens.

    i − width < j ≤ i (Wu et al. 2025, §4.1, their w), or j < sinks and j ≤ i (Xiao et al. 2024). A width of
    the whole text or more is the causal mask.
    """

    width: Count
    sinks: NaturalNumber = 0
    kind: Literal["sliding_window"] = tag(default="sliding_window")

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        causal = np.tri(tokens, dtype=bool)
        near = causal & ~np.tri(tokens, k=-self.width, dtype=bool)
        near[:, : self.sinks] = causal[:, : self.sinks]
        return near

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return tokens - 1 if self.sinks else min(self.width, tokens) - 1


@value
class Prefix(_LooksBack):
    """The first `length` tokens attend to each other, the rest causally (Wu et al. 2025, §4.1, their K)."""

    length: Count
    kind: Literal["prefix"] = tag(default="prefix")

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j. Raises `InvalidValueError` for a prefix beyond the text."""
        self.reach(0, tokens)
        allowed = np.tri(tokens, dtype=bool)
        allowed[: self.length, : self.length] = True
        return allowed

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query`. Raises `InvalidValueError` as `allowed` does."""
        if self.length > tokens:
            raise InvalidValueError(
                f"length: a prefix of {self.length} tokens given, at most the text's {tokens} needed"
            )
        return max(query, self.length - 1)


@value
class Full(_LooksBack):
    """Every token attends to every token, as in an encoder."""

    kind: Literal["full"] = tag(default="full")

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j: everywhere."""
        return np.ones((tokens, tokens), dtype=bool)

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query` through any number of layers."""
        return tokens - 1


@value
class CustomMask:
    """Any mask: `rule` is booleans [query, key], a function of both, or its name "module:name".

    A function takes two integer arrays of positions and gives True where the query may attend to the key; it is
    called for a few queries at a time, in O(tokens) memory, and what it gives for a pair may depend on nothing
    else. An array may be larger than the text.

        CustomMask(lambda query, key: (key <= query) & (key // 64 == query // 64))
    """

    rule: Booleans
    kind: Literal["custom"] = tag(default="custom")

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        return self._rows(np.arange(tokens), tokens)

    def keys(self, query: int, tokens: int) -> Int[np.ndarray, "key"]:
        """The keys that a query sees."""
        return np.flatnonzero(self._rows(np.array([query]), tokens)[0])

    def reach(self, query: int, tokens: int) -> int:
        """A position beyond which nothing influences `query` through any number of layers."""
        return int(_extent(self, tokens)[0][query])

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return _extent(self, tokens)[1]

    def _rows(self, queries: Int[np.ndarray, "query"], tokens: int) -> Bool[np.ndarray, "query key"]:
        rows = self.rule.at("rule", queries[:, None], np.arange(tokens)[None, :])
        try:
            return np.broadcast_to(rows, (len(queries), tokens))
        except ValueError:
            raise InvalidValueError(
                f"rule: values of shape {rows.shape} given, {(len(queries), tokens)} (query, key) needed"
            ) from None


@functools.lru_cache(maxsize=8)
def _extent(mask: CustomMask, tokens: int) -> tuple[Int[np.ndarray, "query"], int]:
    """`reach` of every query, and `farthest`. Raises `InvalidValueError` for a query that sees no key."""
    reach, farthest = np.arange(tokens), 0
    step = max(1, 2**18 // tokens)
    for start in range(0, tokens, step):
        queries = np.arange(start, min(start + step, tokens))
        rows = mask._rows(queries, tokens)
        if not rows.any(axis=1).all():
            blind = queries[np.argmin(rows.any(axis=1))]
            raise InvalidValueError(f"rule: query {blind} may attend to no key, at least one needed")
        farthest = max(farthest, int((queries - rows.argmax(axis=1)).max()))
        last = tokens - 1 - rows[:, ::-1].argmax(axis=1)
        reach[queries] = np.maximum(queries, last)
    # what any earlier query sees may be passed on
    reach = np.maximum.accumulate(reach)
    for query in range(tokens - 1, -1, -1):
        if reach[query] > query:
            reach[query] = reach[reach[query]]
    return reach, farthest


Mask = Annotated[
    Causal | SlidingWindow | Prefix | Full | CustomMask,
    Field(discriminator="kind"),
    Open("allowed", "reach", "farthest"),
]
"""The masks; one's own with these methods is one too."""

INTERVALS = (Causal, SlidingWindow, Prefix, Full)
"""The masks under which a query sees one run of keys, and perhaps the first few of the text."""
MASKS = (*INTERVALS, CustomMask)
"""Every class of the union, for tests, menus and tables."""


def lookahead(mask: Mask, tokens: int) -> int:
    """A distance j − i beyond which no query sees a key after it."""
    if isinstance(mask, INTERVALS):
        return mask.reach(0, tokens)
    return max(mask.reach(query, tokens) - query for query in range(tokens))
