"""What a key gives, taken out of a model's attention while the model reads.

A sink draws attention and is said to give little. `kept_out` lets a key keep its share of the softmax and give
nothing: a place next to the keys takes its logit, as a learned sink does. `masked` hides it, so that its share
goes to the other keys. Which keys, each `Choice` says from the logits of a layer:

    with altered(model, kept_out(column(0))):
        measurement = measure(loaded, tokens=256)
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.errors import ModelError

Choice = Callable[[Float[Tensor, "batch head query key"]], Bool[Tensor, "#batch #head query key"]]
"""From logits to where a key is taken out: at most one key for each query, and never the only one it sees."""


def column(key: int) -> Choice:
    """One key, for all later queries."""

    def choose(logits: Tensor) -> Tensor:
        queries, keys = (torch.arange(size, device=logits.device) for size in logits.shape[-2:])
        return (keys == key) & (queries[:, None] > key)

    return choose


def strongest(logits: Float[Tensor, "batch head query key"]) -> Bool[Tensor, "batch head query key"]:
    """The key of the largest logit but key 0, for all queries but the first."""
    chosen = torch.zeros_like(logits, dtype=torch.bool)
    largest = logits[..., 1:, 1:].argmax(dim=-1, keepdim=True) + 1
    chosen[..., 1:, :].scatter_(-1, largest, True)
    return chosen


@dataclass(frozen=True)
class Alteration:
    """Keys taken out by `choice`; with `keeps_share` each still takes its share of the softmax.

    `layers` are the decoder layers (from 0) that are altered, None for all.
    """

    choice: Choice
    keeps_share: bool
    layers: Collection[int] | None = None

    def only(self, *layers: int) -> "Alteration":
        """The same in these layers alone."""
        return replace(self, layers=layers)

    def __call__(
        self,
        module: Any,
        query: Float[Tensor, "batch head query channel"],
        key: Float[Tensor, "batch shared key channel"],
        value: Float[Tensor, "batch shared key channel"],
        attention_mask: Float[Tensor, "batch #head query key"] | None,
        scaling: float,
        **others: Any,
    ) -> tuple[Float[Tensor, "batch query head channel"], Float[Tensor, "batch head query key"]]:
        """Eager attention of transformers, altered: to the bit the plain one where no key is taken out."""
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
        logits = torch.matmul(query, key.transpose(2, 3)) * scaling
        if attention_mask is not None:
            logits = logits + attention_mask
        if self.layers is None or module.layer_idx in self.layers:
            weights = self._weights(logits)
        else:
            weights = _softmax(logits)
        return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights

    def _weights(self, logits: Tensor) -> Tensor:
        out, lowest = self.choice(logits), torch.finfo(logits.dtype).min
        left = logits.masked_fill(out, lowest)
        if not self.keeps_share:
            return _softmax(left)
        # at most one key of a row is taken out, so its logit is the row's largest of those
        place = logits.masked_fill(~out, lowest).amax(dim=-1, keepdim=True)
        return _softmax(torch.cat([left, place], dim=-1))[..., :-1]


def kept_out(choice: Choice) -> Alteration:
    """What the chosen keys give is kept out; their share of the softmax stays theirs."""
    return Alteration(choice, keeps_share=True)


def masked(choice: Choice) -> Alteration:
    """The chosen keys are not seen."""
    return Alteration(choice, keeps_share=False)


@contextmanager
def altered(model: Any, alteration: Alteration | None) -> Iterator[None]:
    """Let a model of transformers, with eager attention, attend so inside the block; None alters nothing.

    All models with eager attention do meanwhile. Raises `ModelError` for a model with another attention, one whose
    attention cannot be exchanged, and one that has settings which this one leaves out (soft caps, learned sinks).
    """
    if alteration is None:
        yield
        return
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    used = model.config._attn_implementation
    if used != "eager":
        raise ModelError(f"model: expected attention 'eager' to take keys out, got {used!r}")
    seen: set[int] = set()

    def attend(module: Any, *given: Any, **named: Any) -> Any:
        if unknown := [name for name in ("softcap", "s_aux") if named.get(name) is not None]:
            raise ModelError(f"model: its attention has {unknown[0]!r}, from which keys are not taken out")
        seen.add(module.layer_idx)
        return alteration(module, *given, **named)

    ALL_ATTENTION_FUNCTIONS["eager"] = attend
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS["eager"]
    if not seen:
        raise ModelError(f"model: no attention of {type(model).__name__} could be altered")


def _softmax(logits: Tensor) -> Tensor:
    """As transformers' eager attention: in float32 at least, then as the logits are."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return torch.nn.functional.softmax(logits, dim=-1, dtype=wide).to(logits.dtype)
