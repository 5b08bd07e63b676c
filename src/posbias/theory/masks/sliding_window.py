"""The sliding window, with streaming sinks."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool

from posbias.core.spec import Citation, Count, NaturalNumber, tag, value
from posbias.theory.masks.visible import Band, LooksBack


@value
class SlidingWindow(LooksBack):
    """Every token attends to itself and the `width` − 1 tokens before it, and to the first `sinks` tokens.

    i − width < j ≤ i (Wu et al. 2025, §4.1, their w), or j < sinks and j ≤ i (Xiao et al. 2024). A width of
    the whole text or more is the causal mask.
    """

    width: Count
    sinks: NaturalNumber = 0
    kind: Literal["sliding_window"] = tag(default="sliding_window")
    cites: ClassVar[Citation] = ("beltagy2020", "sliding-window attention")
    word: ClassVar[str] = "window"
    varied: ClassVar[str] = "width of the sliding window"

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        causal = np.tri(tokens, dtype=bool)
        near = causal & ~np.tri(tokens, k=-self.width, dtype=bool)
        near[:, : self.sinks] = causal[:, : self.sinks]
        return near

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return tokens - 1 if self.sinks else min(self.width, tokens) - 1

    def band(self) -> Band:
        """The window, and the sinks."""
        return Band(self.width - 1, self.sinks)

    @property
    def title(self) -> str:
        """What it is called above a picture."""
        sinks = f", {self.sinks} sink{'s' * (self.sinks > 1)}" if self.sinks else ""
        return f"sliding window, w = {self.width}{sinks}"
