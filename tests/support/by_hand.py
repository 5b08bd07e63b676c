"""What a tiny model does with a prompt, computed plainly: own attention, λ by switching parts off, gradients.

Nothing here uses the capture. λ needs what attention adds to the stream, and families have that in many places.
So each layer is run again on its own input, once without its feed-forward block and once without its
attention too (weights set to nought). Where the stream then comes through unchanged, the difference of the two is
what attention adds, whatever norms and multipliers lie between: at the layer's end, or, in models that norm after
the addition, where the norm begins.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posbias.measurement.models.families import decoder_layers

ATTENTION = re.compile(r"attn|attention|multi_head")
NORM = re.compile(r"Norm(1P|Gated)?$")
OTHER = re.compile(r"encoder_att|cross|norm|linear_att", re.IGNORECASE)
MIXER = re.compile(r"linear_attn|mamba|conv")
CLOSE = 1e-5
"""Of the stream's size: so far may a stream that comes through unchanged be off."""


@dataclass(frozen=True)
class Layer:
    """λ of one layer, or why there is none."""

    mixing: float = float("nan")
    reason: str = ""


def own_attention(model: Any, ids: Tensor) -> list[Tensor] | None:
    """Attention [head, query, key] of each layer, as the model itself returns it; None where it does not."""
    with torch.no_grad():
        given = model(ids[None], output_attentions=True, **uncached(model))
    found = getattr(given, "attentions", None)
    if not found or any(not isinstance(one, Tensor) or one.dim() != 4 for one in found):
        return None
    return [one[0].double() for one in found]


def influence(model: Any, ids: Tensor, query: int = -1) -> Tensor:
    """‖∂ P(y | x) / ∂ e_j‖₂ of the likeliest token y at `query`, by one plain backward pass."""
    leaves: list[Tensor] = []

    def cut(module: Any, given: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1].clone()

    with model.get_input_embeddings().register_forward_hook(cut), torch.enable_grad():
        said = model(ids[None], **uncached(model)).logits[0, query].double().softmax(-1).max()
    (gradient,) = torch.autograd.grad(said, leaves[0])
    return gradient[0].double().norm(dim=-1)


def mixings(model: Any, ids: Tensor) -> list[Layer]:
    """λ of every layer by hand, bottom first."""
    layers = decoder_layers(model)
    found: dict[int, Layer] = {}
    busy = [False]

    def after(number: int):
        def hook(layer: Any, given: tuple, named: dict, output: Any) -> None:
            if busy[0]:
                return
            busy[0] = True
            try:
                found[number] = _mixing(layer, given, named)
            finally:
                busy[0] = False

        return hook

    hooks = [
        layer.register_forward_hook(after(number), with_kwargs=True) for number, layer in enumerate(layers)
    ]
    try:
        with torch.no_grad():
            model(ids[None], **uncached(model))
    finally:
        for hook in hooks:
            hook.remove()
    return [found.get(number, Layer(reason="the layer is not run")) for number in range(len(layers))]


def uncached(model: Any) -> dict[str, Any]:
    """What keeps a model from making a cache, which some make only for models with attention."""
    return {"use_cache": False} if hasattr(model.config.get_text_config(), "use_cache") else {}


def _mixing(layer: Any, given: tuple, named: dict) -> Layer:
    stream = (given[0] if given else named["hidden_states"]).double()
    attention, rest = parts(layer)
    if not attention:
        return Layer(reason="no attention among its parts")
    with nought(rest):
        on = _places(layer, given, named)
        with nought(attention):
            off = _places(layer, given, named)
    size = float(stream.abs().max())
    updates = []
    for one, other in zip(on, off, strict=True):
        left = one - other
        if one.shape != stream.shape or float(left.abs().max()) < CLOSE * size:
            continue
        through = other - stream
        # a norm with a bias turns nothing into a vector of its own, the same at each position
        if float((through - through[:, :1]).abs().max()) < CLOSE * size:
            updates.append(left + through)
    if not updates:
        return Layer(reason="without attention the stream does not come through unchanged")
    ratios = [float(one.norm() / (stream.norm() + one.norm())) for one in updates]
    if max(ratios) - min(ratios) > 1e-4 * max(ratios):
        return Layer(reason=f"what attention adds is not one thing: λ {min(ratios):.4f} to {max(ratios):.4f}")
    return Layer(ratios[-1])


def parts(layer: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The weights of a layer's attention, and those of all else; norms belong to neither."""
    attention, rest = [], []
    names = {
        name
        for name, part in layer.named_children()
        if (ATTENTION.search(name) or "Attention" in type(part).__name__) and not OTHER.search(name)
    }
    # a layer without attention has another mixer
    names = names or {name for name, _ in layer.named_children() if MIXER.fullmatch(name)}
    # a norm may hold a gate with weights of its own
    norms = tuple(path for path, module in layer.named_modules() if NORM.search(type(module).__name__))
    for path, module in layer.named_modules():
        if any(path == norm or path.startswith(f"{norm}.") for norm in norms):
            continue
        (attention if path.split(".")[0] in names else rest).extend(module.parameters(recurse=False))
    return attention, rest


@contextmanager
def nought(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Set weights to nought for the block."""
    kept = [one.detach().clone() for one in parameters]
    try:
        for one in parameters:
            one.data.zero_()
        yield
    finally:
        for one, values in zip(parameters, kept, strict=True):
            one.data.copy_(values)


def _places(layer: nn.Module, given: tuple, named: dict) -> list[Tensor]:
    """What enters each norm of a layer, in order, and what leaves the layer."""
    seen: list[Tensor] = []
    norms = [module for module in layer.modules() if NORM.search(type(module).__name__)]
    hooks = [
        norm.register_forward_pre_hook(lambda module, args: seen.append(args[0].double())) for norm in norms
    ]
    try:
        output = layer(*given, **named)
    finally:
        for hook in hooks:
            hook.remove()
    return [*seen, (output if isinstance(output, Tensor) else output[0]).double()]
