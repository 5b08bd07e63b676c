"""Dilated attention: every so many-th key back."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int

from posbias.core.spec import Citation, Count, tag, value
from posbias.theory.masks.visible import LooksBack


@value
class Dilated(LooksBack):
    """Every token attends to itself and to every `stride`-th token before it, to at most `width` keys in all.

    j ≤ i, i − j a multiple of `stride`, and (i − j)/`stride` < `width`, where there is one: the strided pattern
    of Child et al. 2019, §4.3, and the dilated window of Beltagy et al. 2020, §3.1. A stride of 1 is a sliding
    window.
    """

    stride: Count
    width: Count | None = None
    kind: Literal["dilated"] = tag(default="dilated")
    cites: ClassVar[Citation] = ("beltagy2020", "dilated attention")
    word: ClassVar[str] = "dilated"
    varied: ClassVar[str] = "stride of the dilated mask"

    def allowed(self, tokens: int) -> Bool[np.ndarray, "query key"]:
        """True where query i may attend to key j."""
        distance = np.subtract.outer(np.arange(tokens), np.arange(tokens))
        return (distance >= 0) & (distance % self.stride == 0) & (distance <= self.farthest(tokens))

    def keys(self, query: int, tokens: int) -> Int[np.ndarray, "key"]:
        """The keys that a query sees."""
        seen = query // self.stride + 1 if self.width is None else min(query // self.stride + 1, self.width)
        return query - self.stride * np.arange(seen)[::-1]

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        most = (tokens - 1) // self.stride
        return self.stride * (most if self.width is None else min(most, self.width - 1))

    @property
    def title(self) -> str:
        """What it is called above a picture."""
        return f"dilated, stride {self.stride}" + ("" if self.width is None else f", w = {self.width}")
