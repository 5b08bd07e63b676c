"""What engines ask of a mask: the keys that a query sees, in a form that can be swept.

A mask under which a query sees one run of keys of constant width, and perhaps the first few of the text, has
`band()`. One that cuts the text into causal texts of their own has `pieces(tokens)`. Any other is read query by
query: from `keys(query, tokens)`, else from the rows of `allowed`. Each is a method that a class has or has not,
so that a new mask, or a user's own, chooses its engines by what it can say of itself.
"""

import sys
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

ALL = sys.maxsize
"""As many tokens as there are."""
Positions = Int[np.ndarray, "query"]


class Band(NamedTuple):
    """A query sees itself and the `behind` tokens before it, the first `always`, and all before `prefix`.

    Of the first `always` tokens and of those before it, it sees none after itself. Where `prefix` is not 0,
    `always` is.
    """

    behind: int
    always: int = 0
    prefix: int = 0

    def at(self, tokens: int) -> "Band":
        """The same for a text of `tokens` tokens, no number beyond it."""
        return Band(min(self.behind, tokens - 1), min(self.always, tokens), min(self.prefix, tokens))

    @property
    def looks_back(self) -> bool:
        """Whether no query sees a key after it."""
        return self.prefix <= 1

    def is_causal(self, tokens: int) -> bool:
        """Whether a query sees every token before it and none after it."""
        return self.looks_back and self.behind >= tokens - 1


class Bounds(NamedTuple):
    """The keys that each query sees as a run low … high, and how many first tokens all later ones see."""

    low: Positions
    high: Positions
    always: int


@runtime_checkable
class Banded(Protocol):
    """A mask that is a band."""

    def band(self) -> Band: ...


@runtime_checkable
class Split(Protocol):
    """A mask that cuts the text into pieces, each a causal text of its own."""

    def pieces(self, tokens: int) -> tuple[int, ...]: ...


class LooksBack:
    """A mask under which a query sees every token before it and none after it, unless its class says otherwise.

    `word` is what commands call it, its first field the number behind the word; `varied` says what that is, for
    a number that can be varied.
    """

    word: ClassVar[str] = ""
    varied: ClassVar[str] = ""

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query` through any number of layers."""
        return query

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return tokens - 1

    def lookahead(self, tokens: int) -> int:
        """A distance j − i beyond which no query sees a key after it."""
        return 0

    @property
    def title(self) -> str:
        """What it is called above a picture."""
        return type(self).__name__.lower()


def is_causal(mask: Any, tokens: int) -> bool:
    """Whether a mask is the causal one for a text of `tokens` tokens, as far as it says so itself."""
    return isinstance(mask, Banded) and mask.band().is_causal(tokens)


def lookahead(mask: Any, tokens: int) -> int:
    """A distance j − i beyond which no query sees a key after it; of a mask that does not say, by its reach."""
    if isinstance(mask, LooksBack):
        return mask.lookahead(tokens)
    return max(mask.reach(query, tokens) - query for query in range(tokens))


def bounds(mask: Any, tokens: int) -> Bounds | None:
    """The keys of every query where they are one run and the first few; None of another mask.

    Raises `InvalidValueError` for a mask that does not fit the text.
    """
    position = np.arange(tokens)
    if isinstance(mask, Banded):
        lookahead(mask, tokens)
        band = mask.band().at(tokens)
        return Bounds(
            np.maximum(position - band.behind, 0), np.maximum(position, band.prefix - 1), band.always
        )
    if isinstance(mask, Split):
        starts = np.array(mask.pieces(tokens))
        return Bounds(starts[np.searchsorted(starts, position, side="right") - 1], position, 0)
    return None
