"""What of an architecture can be varied: how each quantity changes one, and how a range of it is spaced."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from posbias.arguments import whole
from posbias.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.encodings import ALiBi, DecayBias, NoPE
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer


@dataclass(frozen=True)
class Quantity:
    """Something of an architecture that can be varied: `change` makes the variant for a value."""

    name: str
    what: str
    whole: bool
    """Whether its values are integers."""
    geometric: bool
    """Whether a range is spaced by ratios."""
    change: Callable[[Architecture, Any], Architecture]


def _depth(architecture: Architecture, depth: int) -> Architecture:
    """The pattern repeated to another depth; measured mixing only as far as it goes."""
    replace(architecture.layers[0], heads=depth)  # a number of layers is bounded as one of heads is
    stack = [architecture.layers[t % len(architecture.layers)] for t in range(depth)]
    mixing = architecture.mixing
    if isinstance(mixing, PerLayer):
        if depth > architecture.depth:
            raise InvalidValueError(
                f"depth: {depth} given, at most the {architecture.depth} layers whose λ is known needed"
            )
        mixing = replace(mixing, coefficients=mixing.coefficients[:depth])
    return replace(architecture, depth=depth, layers=shortest_pattern(stack), mixing=mixing)


def _window(architecture: Architecture, width: int) -> Architecture:
    """Another width where the architecture has windows; a window in every causal layer where it has none."""
    sliding = any(isinstance(layer.mask, SlidingWindow) for layer in architecture.layers)

    def changed(layer: Layer) -> Layer:
        if isinstance(layer.mask, SlidingWindow):
            return replace(layer, mask=SlidingWindow(width, layer.mask.sinks))
        return (
            replace(layer, mask=SlidingWindow(width))
            if isinstance(layer.mask, Causal) and not sliding
            else layer
        )

    return replace(architecture, layers=tuple(changed(layer) for layer in architecture.layers))


def _full_period(architecture: Architecture, period: int) -> Architecture:
    """Every period-th layer full, the others under the window: the architecture's own layers of both kinds."""
    kinds = set(architecture.layers)
    near = {layer for layer in kinds if isinstance(layer.mask, SlidingWindow)}
    full = {layer for layer in kinds if isinstance(layer.mask, Causal)}
    if len(near) != 1 or len(full) > 1 or kinds - near - full:
        raise InvalidValueError(
            f"full_period: layers of {len(kinds)} kinds given, {len(near)} under a window; one kind under a "
            "window and at most one other, causal, needed"
        )
    [local] = near
    [last] = full or {replace(local, mask=Causal())}
    pattern = (local,) * (whole("full_period", period, 1) - 1) + (last,)
    return replace(architecture, layers=pattern[: architecture.depth])


def _nope_period(architecture: Architecture, period: int) -> Architecture:
    """Every period-th layer without an encoding, the others with the one that there is."""
    kinds = {layer.positional for layer in architecture.layers} - {NoPE()}
    if len(kinds) != 1:
        raise InvalidValueError(f"nope_period: {len(kinds)} encodings given, layers with one needed")
    [encoding] = kinds
    stack = [
        replace(layer, positional=encoding if (t + 1) % whole("nope_period", period, 1) else NoPE())
        for t, layer in enumerate(architecture.stack)
    ]
    return replace(architecture, layers=shortest_pattern(stack))


def _slopes(architecture: Architecture, factor: float) -> Architecture:
    """ALiBi's slopes times a factor, in every layer that has them."""
    layers = tuple(
        replace(layer, positional=replace(layer.positional, scale=factor * layer.positional.scale))
        if isinstance(layer.positional, ALiBi)
        else layer
        for layer in architecture.layers
    )
    if not any(isinstance(layer.positional, ALiBi) for layer in layers):
        raise InvalidValueError("slopes: no layer has ALiBi, at least one with it needed")
    return replace(architecture, layers=layers)


def _sinks(architecture: Architecture, sinks: int) -> Architecture:
    """Another number of first tokens that all see, in every layer under a window."""
    if not any(isinstance(layer.mask, SlidingWindow) for layer in architecture.layers):
        raise InvalidValueError("sinks: no layer has a window, at least one with it needed")
    layers = (
        replace(layer, mask=replace(layer.mask, sinks=sinks))
        if isinstance(layer.mask, SlidingWindow)
        else layer
        for layer in architecture.layers
    )
    return replace(architecture, layers=tuple(layers))


def _each_layer(**fields: Callable[[Any], Any]) -> Callable[[Architecture, Any], Architecture]:
    def change(architecture: Architecture, given: Any) -> Architecture:
        made = {name: make(given) for name, make in fields.items()}
        return replace(architecture, layers=tuple(replace(layer, **made) for layer in architecture.layers))

    return change


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("depth", "number of layers", True, False, _depth),
        Quantity("mixing", "weight of attention λ in every layer", False, False,
                 lambda architecture, lam: replace(architecture, mixing=ConstantMixing(lam))),
        Quantity("window", "width of the sliding window", True, True, _window),
        Quantity("full_period", "every so many layers a full one, the others under the window", True, False,
                 _full_period),
        Quantity("sinks", "number of first tokens that every window sees", True, False, _sinks),
        Quantity("heads", "number of heads in every layer", True, True, _each_layer(heads=lambda heads: heads)),
        Quantity("slopes", "factor on the slopes of ALiBi", False, True, _slopes),
        Quantity("decay", "rate of a decay mask in every layer", False, True, _each_layer(positional=DecayBias)),
        Quantity("nope_period", "every so many layers one without an encoding", True, False, _nope_period),
        Quantity("temperature", "temperature of every softmax", False, True, _each_layer(temperature=float)),
        Quantity("tokens", "length of the text", True, True, lambda architecture, tokens: architecture),
    )
}  # fmt: skip
"""Name → quantity, for `vary` and the command line; where two are varied, the first of them is changed first."""
