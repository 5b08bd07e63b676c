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

from posbias.core.errors import ModelError
from posbias.measurement.capture.scores import Scores
from posbias.measurement.capture.tracer import Watch, stream_of


@dataclass(frozen=True)
class Call:
    """A layer and the arguments of one call of it, detached."""

    layer: Any
    positional: tuple[Any, ...]
    named: dict[str, Any]

    def scores(self) -> Scores:
        """Run the layer once more as far as its attention, without gradients. Raises as `again`."""
        watch = Watch(stream_of(self.positional, self.named))
        with suppress(_EnoughSeenError), torch.no_grad(), _Watching(watch, scores_only=True):
            self.layer.forward(*self.positional, **self.named)
        if watch.scores is None:
            raise self._unseen()
        return watch.scores

    def again(self) -> Watch:
        """Run the layer once more, with gradients to its stream.

        Raises `ModelError` when the stream is not one prompt's or no attention is seen.
        """
        watch = Watch(stream_of(self.positional, self.named).detach().requires_grad_(True))
        # the call goes past the layer's hooks: they belong to the forward pass
        with torch.enable_grad(), _Watching(watch):
            if self.positional:
                self.layer.forward(watch.stream, *self.positional[1:], **self.named)
            else:
                self.layer.forward(**self.named | {"hidden_states": watch.stream})
        if watch.scores is None or watch.update is None:
            raise self._unseen()
        return watch

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
    """Lets `watch` see every operation until it is done.

    With `scores_only` the run ends, by an exception, as soon as the scores are seen.
    """

    def __init__(self, watch: Watch, scores_only: bool = False):
        super().__init__()
        self._watch, self._scores_only = watch, scores_only

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self._watch.done:
            return func(*args, **(kwargs or {}))
        result = self._watch.run(func, args, kwargs or {})
        if self._scores_only and self._watch.scores is not None:
            raise _EnoughSeenError
        return result


def _detached(item: Any) -> Any:
    return item.detach() if isinstance(item, Tensor) else item
