"""Block-sparse attention with a fixed pattern: near blocks, the first ones, and every so many-th."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int

from posbias.core.spec import Citation, Count, NaturalNumber, tag, value
from posbias.theory.masks.visible import LooksBack


@value
class BlockSparse(LooksBack):
    """Every token attends, among itself and those before it, to whole blocks of `block` tokens.

    With the query in block b, block c is seen where b − c < `local` (its own is the first), where c < `first`, and
    where c + 1 is a multiple of `stride`, if there is one. `first` are the global blocks of BigBird (Zaheer et al.
    2020, §2; without its random ones), `stride` the vertical ones of Phi-3-small (Abdin et al. 2024, §2; its
    `blocksparse_vert_stride`, all heads alike).
    """

    block: Count
    local: Count = 1
    first: NaturalNumber = 0
    stride: Count | None = None
    kind: Literal["block_sparse"] = tag(default="block_sparse")
    cites: ClassVar[Citation] = ("zaheer2020", "block-sparse attention")
    word: ClassVar[str] = "blocks"
    varied: ClassVar[str] = "tokens in a block of the block-sparse mask"

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        block = np.arange(tokens) // self.block
        return np.tri(tokens, dtype=bool) & self._seen(block[:, None], block)

    def keys(self, query: int, tokens: int) -> Int[np.ndarray, "key"]:
        """The keys that a query sees."""
        own = query // self.block
        blocks = np.flatnonzero(self._seen(np.array(own), np.arange(own + 1)))
        keys = (self.block * blocks[:, None] + np.arange(self.block)).ravel()
        return keys[keys <= query]

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        if self.first:
            return tokens - 1
        near = min(self.local * self.block, tokens) - 1
        return near if self.stride is None else max(near, tokens - 1 - (self.stride - 1) * self.block)

    def _seen(
        self, query: Int[np.ndarray, "*query"], key: Int[np.ndarray, "key"]
    ) -> Bool[np.ndarray, "*query key"]:
        """Whether blocks of queries see blocks of keys that are not after them."""
        seen = (query - key < self.local) | (key < self.first)
        return seen if self.stride is None else seen | ((key + 1) % self.stride == 0)

    @property
    def title(self) -> str:
        """What it is called above a picture."""
        others = [f"first {self.first}"] if self.first else []
        others += [] if self.stride is None else [f"every {self.stride}."]
        return ", ".join([f"blocks of {self.block}", f"{self.local} near", *others])
