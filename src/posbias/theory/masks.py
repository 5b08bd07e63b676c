"""Who may attend to whom.

A mask is a relation between query i and key j. Each says with `allowed` which pairs it admits, and with
`reach` and `farthest` how far forward and back influence comes from. Adding one is one class here and its
name in the union.
"""

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from posbias.errors import InvalidValueError
from posbias.spec import Count, NaturalNumber, Open, tag, value


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


Mask = Annotated[
    Causal | SlidingWindow | Prefix | Full,
    Field(discriminator="kind"),
    Open("allowed", "reach", "farthest"),
]
"""The masks; one's own with these methods is one too."""

MASKS = (Causal, SlidingWindow, Prefix, Full)
"""Every class of the union, for tests, menus and tables."""
