"""The prefix mask: causal but for a beginning that sees itself whole."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool

from posbias.core.errors import InvalidValueError
from posbias.core.spec import Citation, Count, tag, value
from posbias.theory.masks.visible import ALL, Band, LooksBack


@value
class Prefix(LooksBack):
    """The first `length` tokens attend to each other, the rest causally (Wu et al. 2025, §4.1, their K)."""

    length: Count
    kind: Literal["prefix"] = tag(default="prefix")
    cites: ClassVar[Citation] = ("wu2025", "prefix mask")
    word: ClassVar[str] = "prefix"
    varied: ClassVar[str] = "length of the prefix"

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

    def lookahead(self, tokens: int) -> int:
        """A distance j − i beyond which no query sees a key after it. Raises as `allowed` does."""
        return self.reach(0, tokens)

    def band(self) -> Band:
        """All tokens before a query or in the prefix."""
        return Band(ALL, prefix=self.length)

    @property
    def title(self) -> str:
        """What it is called above a picture."""
        return f"prefix, K = {self.length}"
