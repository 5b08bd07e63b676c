"""Decoder layers run again, and what a forward and backward pass need not keep because of it.

Keeping a layer's arguments costs tokens × hidden numbers (masks and rotations are shared by all layers); what it
made of them, its attention first of all, is had again by running it once more, one layer at a time. Autograd
remembers what every layer made: layers × heads × tokens² numbers. A layer can be computed again from its input
when the backward pass comes to it, so that one layer's is held at a time. The outputs of all tokens but the last
serve the loss alone: the module that holds the layers is made to hand on a few rows at a time, and the model's own
head, with all that it does, makes outputs of those. Modules' `forward` is replaced for the time being, on the
object; nothing is left behind.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from posbias.core.errors import ModelError, wrong
from posbias.measurement.capture.scores import Scores
from posbias.measurement.capture.tracer import Watch, stream_of


@dataclass(frozen=True)
class Call:
    """A layer and the arguments of one call of it, detached."""

    layer: Any
    positional: tuple[Any, ...]
    named: dict[str, Any]

    def scores(self) -> Scores:
        """The scores alone, without gradients. Raises as `again`."""
        scores = self.again(gradients=False).scores
        assert scores is not None
        return scores

    def again(self, gradients: bool = True) -> Watch:
        """Run the layer once more, with gradients to its stream.

        Raises `ModelError` when the stream is not one prompt's or no attention is seen.
        """
        watch = Watch(stream_of(self.positional, self.named).detach().requires_grad_(gradients))
        # the call goes past the layer's hooks: they belong to the forward pass
        with torch.set_grad_enabled(gradients), _Watching(watch):
            if self.positional:
                self.layer.forward(watch.stream, *self.positional[1:], **self.named)
            else:
                self.layer.forward(**self.named | {"hidden_states": watch.stream})
        if watch.scores is None or watch.update is None:
            raise ModelError(f"model: no attention was seen in {type(self.layer).__name__} when run again")
        return watch


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


@contextmanager
def outputs_of(modules: Sequence[Any]) -> Iterator[list[Any]]:
    """Keep what every call of `modules` inside the block gives, in the order of the calls."""
    kept: list[Any] = []
    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(lambda *given: kept.append(given[-1])))
        yield kept


class _Watching(TorchFunctionMode):
    """Lets `watch` see every operation until it is done."""

    def __init__(self, watch: Watch):
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self._watch.done:
            return func(*args, **(kwargs or {}))
        return self._watch.run(func, args, kwargs or {})


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
            what = "an embedding module that returns a tensor"
            raise wrong("model", what, got=f"a {type(output).__name__}", kind=ModelError)
        leaves.append(output.detach().requires_grad_(True))
        # what follows may write into it, which nothing may into a leaf
        return leaves[-1].clone()

    embeddings = model.get_input_embeddings()
    if not isinstance(embeddings, torch.nn.Module):
        raise wrong("model", "a module of embeddings", got=f"a {type(embeddings).__name__}", kind=ModelError)
    with embeddings.register_forward_hook(cut):
        yield leaves


@contextmanager
def recomputed(layers: Sequence[Any]) -> Iterator[None]:
    """Let each layer forget its intermediate results and compute them again in the backward pass.

    But for fused attention: its result is tokens × hidden numbers, and takes most of the time of a long prompt.
    `forward` is wrapped rather than the layer called anew, so that hooks on a layer fire once.
    """
    how = {"use_reentrant": False, "preserve_rng_state": False}
    with ExitStack() as stack:
        for layer in layers:
            again = partial(checkpoint, layer.forward, context_fn=_fused_contexts, **how)
            stack.enter_context(_with_forward(layer, again))
        yield


class _FusedRemembered(TorchDispatchMode):
    """Keeps what fused attention gives in `kept`, or gives that again in the same order, as often as entered.

    It is entered once in a layer's forward pass and once in its backward pass, and first hands back what the layer
    before has freed: between tensors that stay, each layer would else leave other pages behind.
    """

    def __init__(self, kept: list[Any], again: bool):
        super().__init__()
        self._kept, self._again, self._next = kept, again, 0

    def __enter__(self):
        self._next = 0
        with suppress(OSError, AttributeError):  # other systems have other allocators than glibc
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__
        if "_scaled_dot_product" not in name or "backward" in name:
            return func(*args, **(kwargs or {}))
        if not self._again:
            self._kept.append(tree_map(_detached, func(*args, **(kwargs or {}))))
        self._next += 1
        return tree_map(_detached, self._kept[self._next - 1])


def _fused_contexts() -> tuple[_FusedRemembered, _FusedRemembered]:
    kept: list[Any] = []
    return _FusedRemembered(kept, again=False), _FusedRemembered(kept, again=True)


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
