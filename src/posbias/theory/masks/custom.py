"""Masks that are one's own function or array."""

import functools
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

from posbias.core.errors import InvalidValueError
from posbias.core.spec import tag, value
from posbias.theory.custom import Booleans


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
