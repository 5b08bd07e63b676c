"""Fixed factorised attention: the own block, and the last tokens of every block before it."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int

from posbias.core.errors import InvalidValueError
from posbias.core.spec import Citation, Count, tag, value
from posbias.theory.masks.visible import LooksBack


@value
class Fixed(LooksBack):
    """Every token attends to its block of `block` tokens up to itself, and to the `last` ones of each before.

    j ≤ i, and ⌊i/l⌋ = ⌊j/l⌋ or j mod l ≥ l − c, with l = `block` and c = `last`: both sets of the fixed pattern of
    Child et al. 2019, §4.3, in one head. What a block holds goes on through its last tokens alone. Raises
    `InvalidValueError` where `last` is above `block`.

        Fixed(4).allowed(8)[5]   # True at 3 (the last of the first block), 4 and 5
    """

    block: Count
    last: Count = 1
    kind: Literal["fixed"] = tag(default="fixed")
    cites: ClassVar[Citation] = ("child2019", "fixed factorised attention")
    word: ClassVar[str] = "fixed"
    varied: ClassVar[str] = "tokens in a block of the fixed mask"

    def __post_init__(self):
        if self.last > self.block:
            raise InvalidValueError(
                f"last: {self.last} given, at most the block's {self.block} tokens needed"
            )

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        position = np.arange(tokens)
        own = np.equal.outer(position // self.block, position // self.block)
        return np.tri(tokens, dtype=bool) & (own | (position % self.block >= self.block - self.last))

    def keys(self, query: int, tokens: int) -> Int[np.ndarray, "key"]:
        """The keys that a query sees."""
        begins = query // self.block * self.block
        lasts = np.arange(self.block, begins + 1, self.block)[:, None] + np.arange(-self.last, 0)
        return np.concatenate([lasts.ravel(), np.arange(begins, query + 1)])

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        within = min(self.block, tokens) - 1
        return max(within, tokens - 1 - (self.block - self.last)) if tokens > self.block else within

    @property
    def title(self) -> str:
        """What it is called above a picture."""
        return f"fixed, blocks of {self.block}, last {self.last}"
