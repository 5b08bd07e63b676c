"""Chunked attention: the text cut into pieces that do not see each other."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool

from posbias.core.spec import Citation, Count, tag, value
from posbias.theory.masks.visible import LooksBack


@value
class Chunked(LooksBack):
    """Every token attends to itself and to the tokens before it in its own chunk of `width` tokens.

    j ≤ i and ⌊j/width⌋ = ⌊i/width⌋: block-diagonal and causal, as most layers of Llama 4 are (Meta 2025, its
    `attention_chunk_size`). A width of the whole text or more is the causal mask. Nothing passes from chunk to
    chunk but through other layers.
    """

    width: Count
    kind: Literal["chunked"] = tag(default="chunked")
    cites: ClassVar[Citation] = ("meta2025", "chunked attention")
    word: ClassVar[str] = "chunk"
    varied: ClassVar[str] = "width of the chunks"

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        chunk = np.arange(tokens) // self.width
        return np.tri(tokens, dtype=bool) & (chunk[:, None] == chunk)

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return min(self.width, tokens) - 1

    def pieces(self, tokens: int) -> tuple[int, ...]:
        """Where the chunks begin."""
        return tuple(range(0, tokens, self.width))

    @property
    def title(self) -> str:
        """What it is called above a picture."""
        return f"chunked, w = {self.width}"
