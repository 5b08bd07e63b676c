"""Decoder layers run again, and what a forward and backward pass need not keep because of it.

Keeping a layer's arguments costs tokens × hidden numbers (masks and rotations are shared by all layers); what it
made of them, its attention first of all, is had again by running it once more, one layer at a time. Autograd
remembers what every layer made: layers × heads × tokens² numbers. A layer can be computed again from its input
when the backward pass comes to it, so that one layer's is held at a time. The outputs of all tokens but the last
serve the loss alone: the module that holds the layers is made to hand on a few rows at a time, and the model's own
head, with all that it does, makes outputs of those. Modules' `forward` is replaced for the time being, on the
object; nothing is left behind.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

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
def recording(layers: Sequence[Any], calls: list[Call] | None = None) -> Iterator[list[Call]]:
    """Keep the arguments of every call of `layers` inside the block, in the order of the calls, in `calls`."""
    kept: list[Call] = [] if calls is None else calls

    def keep(module, positional, named):
        kept.append(Call(module, tree_map(_detached, positional), tree_map(_detached, named)))

    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    try:
        yield kept
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


@dataclass(frozen=True)
class Economy:
    """What a forward and backward pass need not keep; make one with `influence.economy`, which proves it.

    `recompute` are decoder layers to be computed again in the backward pass; `trunk` is the module whose
    output enters the head, when outputs may be made in blocks; `notes` say what a model would not allow.
    """

    recompute: tuple[Any, ...] = ()
    trunk: Any = None
    notes: tuple[str, ...] = ()


@contextmanager
def leaf(model: Any) -> Iterator[list[Tensor]]:
    """Make what the embedding module returns a leaf with gradients, and keep it."""
    leaves: list[Tensor] = []

    def cut(module, given, output):
        if not isinstance(output, Tensor):
            raise ModelError(
                f"model: expected an embedding module that returns a tensor, got a {type(output).__name__}"
            )
        leaves.append(output.detach().requires_grad_(True))
        # what follows may write into it, which nothing may into a leaf
        return leaves[-1].clone()

    embeddings = model.get_input_embeddings()
    if not isinstance(embeddings, torch.nn.Module):
        raise ModelError(f"model: expected a module of embeddings, got a {type(embeddings).__name__}")
    with embeddings.register_forward_hook(cut):
        yield leaves


@contextmanager
def recomputed(layers: Sequence[Any]) -> Iterator[None]:
    """Let each layer forget its intermediate results and compute them again in the backward pass.

    `forward` is wrapped rather than the layer called anew, so that hooks on a layer fire once.
    """
    with ExitStack() as stack:
        for layer in layers:
            again = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
            stack.enter_context(_with_forward(layer, again))
        yield


def answering(module: Any, output: Any) -> AbstractContextManager[None]:
    """Let `module` return `output`, whatever it is given."""
    return _with_forward(module, lambda *given, **named: output)


@contextmanager
def _with_forward(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Let `forward` take the place of the module's own."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def rows_of(output: Any, rows: slice) -> Any:
    """The same output for some positions alone."""
    if isinstance(output, tuple):
        return (output[0][:, rows], *output[1:])
    return type(output)(**(dict(output) | {"last_hidden_state": output["last_hidden_state"][:, rows]}))


def owner_of(model: Any, layers: Sequence[Any]) -> Any:
    """The module that holds the list of decoder layers: its output is what the head is given."""
    for module in model.modules():
        for child in module.children():
            if isinstance(child, torch.nn.ModuleList) and layers[0] in list(child):
                return module
    raise ModelError(f"model: {type(model).__name__} holds its decoder layers in no list")
