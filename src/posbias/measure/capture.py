"""Seeing inside a forward pass without changing it.

A torch function mode watches every operation inside a decoder layer. The first four-dimensional softmax gives
the logits and the attention weights the model really uses. Its result is tagged, the tag follows every
operation, and at the first addition with an untagged tensor of the stream's shape the tagged operand is
Attn(X) as really added: after output projections, norms and multipliers, whatever the family has there (a
hook on the attention module gets that wrong in several families). Queries and keys before rotation come from
hooks on the modules that the family's row names. One layer is held at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from posbias.errors import ModelError
from posbias.measure.families import Family, decoder_layers, part

_SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax}
_ADDITIONS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
_QUESTIONS = {"__get__", "size", "dim"}
_TAG = "_posbias_from_attention"


@dataclass(frozen=True)
class SeenLayer:
    """What one decoder layer did with one prompt; tensors are detached, in the model's own precision.

    `stream` is the residual stream X entering the layer, `update` is Attn(X) as added to it; `logits` are
    what enters the softmax (scaled as the model scales them; masked entries hold its mask value),
    `attention` what leaves it; `query` and `key` are taken before any rotation.
    """

    layer: int
    stream: Float[Tensor, "position hidden"]
    update: Float[Tensor, "position hidden"]
    logits: Float[Tensor, "head query key"]
    attention: Float[Tensor, "head query key"]
    query: Float[Tensor, "head query channel"]
    key: Float[Tensor, "head key channel"]

    def check_finite(self, prompt: str) -> None:
        """Raise `ModelError`, naming layer and `prompt`, when stream, update or attention is not finite."""
        for name in ("stream", "attention", "update"):
            if not bool(torch.isfinite(getattr(self, name)).all()):
                raise ModelError(f"model: the {name} of layer {self.layer} is not finite in {prompt}")


class Capture(TorchFunctionMode):
    """Calls `see(SeenLayer)` once for each decoder layer while the block runs one forward pass.

    The model must run with eager attention and batch size 1. On leaving the block, raises `ModelError` when a
    layer was not seen. Use a new one for each forward pass.
    """

    def __init__(self, model: Any, family: Family, see: Callable[[SeenLayer], None]):
        super().__init__()
        self._layers = decoder_layers(model, family)
        self._family = family
        self._heads = model.config.num_attention_heads
        self._see = see
        self._seen: list[int] = []
        self._hooks: list[Any] = []
        self._layer: int | None = None
        self._parts: dict[str, Tensor] = {}

    def __enter__(self):
        for index, layer in enumerate(self._layers):
            attention = part(layer, self._family.attention)
            self._hooks += [
                layer.register_forward_pre_hook(self._entering(index), with_kwargs=True),
                layer.register_forward_hook(self._leaving),
                part(attention, self._family.query).register_forward_hook(self._keeping("query")),
                part(attention, self._family.key).register_forward_hook(self._keeping("key")),
            ]
        return super().__enter__()

    def __exit__(self, kind, error, trace):
        for hook in self._hooks:
            hook.remove()
        super().__exit__(kind, error, trace)
        if error is None and self._seen != list(range(len(self._layers))):
            raise ModelError(
                f"model: attention was seen in {len(self._seen)} of {len(self._layers)} layers; a softmax "
                "attention run with attn_implementation='eager' is needed in each"
            )

    def _entering(self, index: int):
        def hook(module, positional, named):
            self._layer = index
            self._parts = {"stream": positional[0] if positional else named["hidden_states"]}

        return hook

    def _leaving(self, module, positional, output):
        self._layer, self._parts = None, {}

    def _keeping(self, name: str):
        def hook(module, positional, output):
            if self._layer is not None:
                self._parts[name] = output

        return hook

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._layer is None or getattr(func, "__name__", "") in _QUESTIONS:
            return func(*args, **kwargs)
        operands = [item for item in _flat([*args, *kwargs.values()]) if isinstance(item, Tensor)]
        tagged = [operand for operand in operands if hasattr(operand, _TAG)]
        if tagged and self._is_the_update(func, operands, tagged):
            self._finish(tagged[0])
        result = func(*args, **kwargs)
        if self._layer is not None:
            if func in _SOFTMAX and "attention" not in self._parts and operands[0].dim() == 4:
                self._parts |= {"logits": operands[0], "attention": result}
                setattr(result, _TAG, True)
            elif tagged:
                for item in _flat([result]):
                    if isinstance(item, Tensor):
                        setattr(item, _TAG, True)
        return result

    def _is_the_update(self, func, operands: list[Tensor], tagged: list[Tensor]) -> bool:
        return (
            getattr(func, "__name__", "") in _ADDITIONS
            and len(operands) == 2
            and len(tagged) == 1
            and operands[0].shape == operands[1].shape == self._parts["stream"].shape
        )

    def _finish(self, update: Tensor) -> None:
        """Hand over the layer just completed, then look no further until the next one begins."""
        index, parts = self._layer, self._parts
        self._layer, self._parts = None, {}
        if index is None or not {"query", "key"} <= parts.keys():
            raise ModelError(
                f"model: layer {index} made no queries or keys where its family's table row says"
            )
        with torch.no_grad():
            self._see(
                SeenLayer(
                    layer=index,
                    stream=parts["stream"].detach()[0],
                    update=update.detach()[0],
                    logits=parts["logits"].detach()[0],
                    attention=parts["attention"].detach()[0],
                    query=self._by_head(parts["query"]),
                    key=self._by_head(parts["key"]),
                )
            )
        self._seen.append(index)

    def _by_head(self, projected: Tensor) -> Tensor:
        """[1, position, kv-heads · channels] → [head, position, channel], shared key heads repeated."""
        channels = part(self._layers[0], f"{self._family.attention}.head_dim")
        split = projected.detach()[0].unflatten(-1, (-1, channels)).transpose(0, 1)
        return split.repeat_interleave(self._heads // split.shape[0], dim=0)


def _flat(items: list) -> list:
    """Open lists and tuples one level: operands and results of torch functions nest no deeper."""
    return [inner for item in items for inner in (item if isinstance(item, (list, tuple)) else [item])]
