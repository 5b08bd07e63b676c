"""One decoder layer run again, after the forward pass, from the arguments it was called with.

Keeping a layer's arguments costs tokens × hidden numbers (masks and rotations are shared by all layers); what
it made of them, its attention first of all, is had again by running it once more, one layer at a time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from posbias.errors import ModelError
from posbias.measurement.capture.scores import Scores
from posbias.measurement.capture.tracer import Watch


@dataclass(frozen=True)
class Again:
    """What a second run showed: the stream [1 position hidden] entering, the scores, the update as added, the
    values and W_O as in `SeenLayer`. With `grad`, `live` are the values as part of the graph of `stream`."""

    stream: Tensor
    scores: Scores
    update: Tensor
    values: Tensor | None
    mixed: Tensor | None
    output_weight: Tensor | None
    live: Tensor | None


@dataclass(frozen=True)
class Call:
    """A layer and the arguments of one call of it, detached."""

    layer: Any
    positional: tuple[Any, ...]
    named: dict[str, Any]

    def scores(self) -> Scores:
        """Run the layer once more as far as its attention, without gradients. Raises as `again`."""
        stream = self._stream()
        with suppress(_EnoughSeenError), torch.no_grad(), _Watching(Watch(stream), scores_only=True) as seen:
            self.layer.forward(*self.positional, **self.named)
        if seen.watch.scores is None:
            raise self._unseen()
        return seen.watch.scores

    def again(self, grad: bool = False) -> Again:
        """Run the layer once more. Raises `ModelError` when its stream is not one prompt's or no attention is
        seen."""
        positional, named, stream = list(self.positional), dict(self.named), self._stream()
        if grad:
            stream = stream.detach().requires_grad_(True)
            if positional:
                positional[0] = stream
            else:
                named["hidden_states"] = stream
        # the call goes past the layer's hooks: they belong to the forward pass
        with torch.set_grad_enabled(grad), _Watching(Watch(stream)) as seen:
            self.layer.forward(*positional, **named)
        watch = seen.watch
        if watch.scores is None or watch.update is None:
            raise self._unseen()
        return Again(
            stream, watch.scores, watch.update, watch.values, watch.mixed, watch.output_weight, seen.live
        )

    def _stream(self) -> Tensor:
        stream = self.positional[0] if self.positional else self.named["hidden_states"]
        if stream.dim() != 3 or stream.shape[0] != 1:
            raise ModelError(
                f"model: a stream of shape {list(stream.shape)} given, one prompt at a time needed"
            )
        return stream

    def _unseen(self) -> ModelError:
        return ModelError(f"model: no attention was seen in {type(self.layer).__name__} when run again")


@contextmanager
def recording(layers: Sequence[Any]) -> Iterator[list[Call]]:
    """Keep the arguments of every call of `layers` inside the block, in the order of the calls."""
    calls: list[Call] = []

    def keep(module, positional, named):
        calls.append(Call(module, tree_map(_detached, positional), tree_map(_detached, named)))

    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


class _EnoughSeenError(Exception):
    """Ends a run of a layer: what was wanted has been seen."""


class _Watching(TorchFunctionMode):
    """Lets a `Watch` see every operation until it is done, and notes which tensor held the values.

    With `scores_only` the run ends, by an exception, as soon as the scores are seen.
    """

    def __init__(self, watch: Watch, scores_only: bool = False):
        super().__init__()
        self.watch = watch
        self._scores_only = scores_only
        self.live: Tensor | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.watch.done:
            return func(*args, **kwargs)
        result = self.watch.run(func, args, kwargs)
        if self._scores_only and self.watch.scores is not None:
            raise _EnoughSeenError
        if self.live is None and self.watch.values is not None:
            # that was attention · values, or a fused attention of queries, keys and values
            tensors = [item for item in args if isinstance(item, Tensor)]
            self.live = kwargs["value"] if "value" in kwargs else tensors[min(2, len(tensors) - 1)]
        return result


def _detached(item: Any) -> Any:
    return item.detach() if isinstance(item, Tensor) else item
