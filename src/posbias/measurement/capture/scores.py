"""Logits and attention of one layer, a block of queries at a time.

A layer's attention is heads · tokens² numbers: 18 GB over the layers of a small model at 4,096 tokens. Nobody
needs them at once. Under eager attention the model makes them itself, one layer at a time, and `Given` hands
out slices. Otherwise `Factored` keeps what they are made of (queries and keys after rotation, the scale, the
additive bias, the mask, the soft cap: heads · tokens · channels numbers) and computes rows again on demand.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

BLOCK_BYTES = 64 * 2**20
Block = Float[Tensor, "head query key"]
"""Logits or attention of some queries."""


class Scores(ABC):
    """Logits [head query key] and attention [head query key] of one layer and prompt, row by row.

    Logits are in softmax units, float32 (float64 for a float64 model), −inf where a key is hidden; they may
    differ from the model's by a constant per row, which a softmax cannot notice. Attention sums to one over
    keys, or to less where learned sinks take a part.
    """

    _sized: ClassVar[str]
    """The field whose first two dimensions are heads and tokens."""

    @property
    def heads(self) -> int:
        """How many query heads there are."""
        return getattr(self, self._sized).shape[0]

    @property
    def tokens(self) -> int:
        """How many queries there are, and keys."""
        return getattr(self, self._sized).shape[1]

    @abstractmethod
    def logits_of(self, start: int, stop: int) -> Block:
        """Return the logits of the queries `start` … `stop` − 1, if causal to keys before `stop`."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> tuple[Block, Block]:
        """Return logits and attention of the queries `start` … `stop` − 1, to the keys of `logits_of`."""

    @abstractmethod
    def finite(self) -> bool:
        """Return whether all that the attention is made of is finite."""

    @abstractmethod
    def diagonal(self) -> Float[Tensor, "head query"]:
        """Return the logits of every token to itself, without forming any matrix."""

    def blocks(self, size: int) -> Iterator[tuple[slice, Block, Block]]:
        """Yield (queries, logits, attention) for blocks of `size` queries."""
        for start in range(0, self.tokens, size):
            stop = min(start + size, self.tokens)
            yield slice(start, stop), *self.rows(start, stop)

    def dense(self) -> tuple[Block, Block]:
        """Return logits and attention of all queries at once: for short prompts."""
        return self.rows(0, self.tokens)


def block_size(heads: int, tokens: int) -> int:
    """Return how many queries' logits and attention (float32, all heads) fit 64 MB; at least one."""
    return min(tokens, max(1, BLOCK_BYTES // (8 * heads * tokens)))


@dataclass(frozen=True)
class Given(Scores):
    """Scores that the model made itself: what entered its softmax and what left it.

    `shift` is subtracted from the logits of each row. Entries of half the type's lowest number or below are
    a mask's.
    """

    _sized = "logits"

    logits: Block
    attention: Block
    shift: Float[Tensor, "head query"] | None = None

    def finite(self) -> bool:
        return all_finite(self.attention)

    def diagonal(self) -> Float[Tensor, "head query"]:
        own = single(self.logits.diagonal(dim1=1, dim2=2))
        return own if self.shift is None else own - self.shift

    def logits_of(self, start: int, stop: int) -> Block:
        given = self.logits[:, start:stop]
        logits = single(given)
        if self.shift is not None:
            logits = logits - self.shift[:, start:stop, None]
        return logits.masked_fill(hidden_by(given), -torch.inf)

    def rows(self, start: int, stop: int) -> tuple[Block, Block]:
        return self.logits_of(start, stop), single(self.attention[:, start:stop])


@dataclass(frozen=True)
class Factored(Scores):
    """Scores as cap · tanh(scale · q·k / cap) + bias, masked.

    `key` may have fewer heads than `query`: each serves the next heads / key heads of them. `mask` is boolean
    (True: visible) or additive; with `only_hides` an additive one hides where it is very low and adds nothing.
    `causal` hides later keys.
    """

    _sized = "query"

    query: Float[Tensor, "head query channel"]
    key: Float[Tensor, "shared key channel"]
    scale: float
    mask: Float[Tensor, "#head #query key"] | Bool[Tensor, "#head #query key"] | None = None
    only_hides: bool = False
    causal: bool = False
    cap: float | None = None
    shift: Float[Tensor, "head query"] | None = None

    def finite(self) -> bool:
        return all_finite(self.query) and all_finite(self.key)

    @cached_property
    def _columns(self) -> Float[Tensor, "shared channel key"]:
        """Scaled keys as columns in memory: a product with the few rows of a block is twice as fast."""
        return (single(self.key) * self.scale).transpose(1, 2).contiguous()

    def unhidden(self, start: int, stop: int, keys: int) -> Block:
        """Return the logits of the queries `start` … `stop` − 1 to the first `keys` keys, before bias and mask."""
        # heads that share a key are rows of one product
        query = single(self.query[:, start:stop]).reshape(len(self.key), -1, self.query.shape[2])
        logits = self._capped((query @ self._columns[:, :, :keys]).view(self.heads, stop - start, keys))
        return logits if self.shift is None else logits - self.shift[:, start:stop, None]

    def logits_of(self, start: int, stop: int) -> Block:
        return self._masked(self.unhidden(start, stop, stop if self.causal else self.tokens), start, stop)

    def rows(self, start: int, stop: int) -> tuple[Block, Block]:
        logits = self.logits_of(start, stop)
        attention = logits.softmax(dim=2)
        # a row that sees nothing has attention zero, not NaN
        if self.mask is not None and bool(attention[:, :, 0].isnan().any()):
            attention.masked_fill_(logits.amax(dim=2, keepdim=True).isneginf(), 0)
        return logits, attention

    def _capped(self, logits: Tensor) -> Tensor:
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def _masked(self, logits: Tensor, start: int, stop: int) -> Tensor:
        if self.mask is not None:
            mask = self.mask if self.mask.shape[1] == 1 else self.mask[:, start:stop]
            mask = mask[..., : logits.shape[2]]
            if mask.dtype != torch.bool and not self.only_hides:
                logits = logits + single(mask)
            logits = logits.masked_fill(~mask if mask.dtype == torch.bool else hidden_by(mask), -torch.inf)
        if self.causal:
            # up to the first query nothing is hidden
            keys = torch.arange(start, logits.shape[2], device=logits.device)
            logits[..., start:].masked_fill_(keys > keys[: stop - start, None], -torch.inf)
        return logits

    def diagonal(self) -> Float[Tensor, "head query"]:
        key = self.key.repeat_interleave(self.heads // self.key.shape[0], dim=0)
        logits = self._capped((single(self.query) * single(key)).sum(dim=2) * self.scale)
        if self.mask is not None and self.mask.dtype != torch.bool and not self.only_hides:
            whole = self.mask.expand(-1, self.tokens, -1)
            logits = logits + single(whole.diagonal(dim1=1, dim2=2))
        return logits if self.shift is None else logits - self.shift


def single(values: Tensor) -> Tensor:
    """Return `values` in float32, or as they are when in float64."""
    return values if values.dtype == torch.float64 else values.float()


def all_finite(values: Tensor) -> bool:
    """Whether all numbers are finite: mostly by their sum, which is sooner had than a look at each."""
    total = values.sum(dtype=torch.promote_types(values.dtype, torch.float32))
    return bool(total.isfinite()) or bool(values.isfinite().all())


def hidden_by(values: Tensor) -> Tensor:
    """Return where additive masks have hidden something: at half the type's lowest number or below."""
    return values <= torch.finfo(values.dtype).min / 2
