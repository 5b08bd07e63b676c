"""The causal mask and the full one: every earlier token, every token."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool

from posbias.core.spec import tag, value
from posbias.theory.masks.visible import ALL, Band, LooksBack


@value
class Causal(LooksBack):
    """Every token attends to itself and to all earlier ones: j ≤ i (Wu et al. 2025, §4.1)."""

    kind: Literal["causal"] = tag(default="causal")
    word: ClassVar[str] = "causal"

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        return np.tri(tokens, dtype=bool)

    def band(self) -> Band:
        """All tokens before a query."""
        return Band(ALL)


@value
class Full(LooksBack):
    """Every token attends to every token, as in an encoder."""

    kind: Literal["full"] = tag(default="full")
    word: ClassVar[str] = "full"

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j: everywhere."""
        return np.ones((tokens, tokens), dtype=bool)

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query` through any number of layers."""
        return tokens - 1

    def lookahead(self, tokens: int) -> int:
        """A distance j − i beyond which no query sees a key after it."""
        return tokens - 1

    def band(self) -> Band:
        """A prefix of the whole text."""
        return Band(ALL, prefix=ALL)
