"""What a forward and backward pass need not keep, and the means to make a model do without.

Autograd remembers what every layer made, its attention above all: layers × heads × tokens² numbers. A decoder
layer can be computed again from its input when the backward pass comes to it, so that one layer's is held at a
time. The outputs of all tokens but the last serve the loss alone: the module that holds the layers is made to
hand on a few rows at a time, and the model's own head, with all that it does, makes outputs of those.
Modules' `forward` is replaced for the time being, on the object; nothing is left behind.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posbias.core.errors import ModelError


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
                f"model: its embedding module returns a {type(output).__name__}, "
                "a tensor is needed to differentiate by"
            )
        leaves.append(output.detach().requires_grad_(True))
        # what follows may write into it, which nothing may into a leaf
        return leaves[-1].clone()

    embeddings = model.get_input_embeddings()
    if not isinstance(embeddings, torch.nn.Module):
        raise ModelError(
            f"model: its embeddings are a {type(embeddings).__name__}, a module of them is needed"
        )
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
