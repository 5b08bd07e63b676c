"""What of an architecture can be varied: how each quantity changes one, and how a range of it is spaced."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from posbias.core.arguments import whole
from posbias.core.errors import InvalidValueError
from posbias.core.spec import MOST_LAYERS
from posbias.theory.architecture import Architecture, Layer, gated, shortest_pattern
from posbias.theory.content import ConstantDiagonal, NoContent, ScalableSoftmax, StepScale
from posbias.theory.huggingface import is_attention
from posbias.theory.masks import MASKS, Causal, Full, LooksBack, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer, PowerDecay
from posbias.theory.positional import ALiBi, DecayBias, KerpleLog, KerplePower, NoPE, RoPE


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
    least: float = -math.inf
    most: float = math.inf
    """The least and the most that a value may be, whatever the architecture."""

    def check(self, value: float) -> None:
        """Raise `InvalidValueError` for a value that no architecture can take."""
        if not self.least <= value <= self.most:
            span = (
                f"at least {self.least:,g}" if math.isinf(self.most) else f"{self.least:,g} to {self.most:,g}"
            )
            raise InvalidValueError(f"{self.name}: {value:,.12g} given, {span} needed ({self.what})")


def _depth(architecture: Architecture, depth: int) -> Architecture:
    """The pattern repeated to another depth; measured mixing only as far as it goes."""
    stack = [architecture.layers[t % len(architecture.layers)] for t in range(depth)]
    mixing = architecture.mixing
    if isinstance(mixing, PerLayer):
        if depth > architecture.depth:
            raise InvalidValueError(
                f"depth: {depth} given, at most the {architecture.depth} layers whose λ is known needed"
            )
        mixing = replace(mixing, coefficients=mixing.coefficients[:depth])
    return replace(architecture, depth=depth, layers=shortest_pattern(stack), mixing=mixing)


def _mask(cls: Any) -> Callable[[Architecture, int], Architecture]:
    """Another size where attention has such masks; such a mask in all causal attention where it has none."""
    size = next(iter(cls.__dataclass_fields__))

    def changed(architecture: Architecture, given: int) -> Architecture:
        attention = [layer for layer in set(architecture.layers) if is_attention(layer)]
        wanted = cls if any(isinstance(layer.mask, cls) for layer in attention) else Causal
        resized = {
            layer: replace(layer, mask=replace(layer.mask, **{size: given}) if wanted is cls else cls(given))
            for layer in attention
            if isinstance(layer.mask, wanted)
        }
        if not resized:
            raise InvalidValueError(
                f"{cls.word}: no attention has the mask {cls.__name__} or Causal, at least one layer needed"
            )
        return replace(architecture, layers=tuple(resized.get(layer, layer) for layer in architecture.layers))

    return changed


def _full_period(architecture: Architecture, period: int) -> Architecture:
    """Every period-th layer full, the others under the window: the architecture's own layers of both kinds."""
    kinds = set(architecture.layers)
    full = {layer for layer in kinds if isinstance(layer.mask, Causal)}
    near = {layer for layer in kinds - full if not isinstance(layer.mask, Prefix | Full)}
    if len(near) != 1 or len(full) > 1 or kinds - near - full:
        raise InvalidValueError(
            f"full_period: layers of {len(kinds)} kinds given, {len(near)} under a window or chunks; one kind "
            "under such a mask and at most one other, causal, needed"
        )
    [local] = near
    [last] = full or {replace(local, mask=Causal())}
    pattern = (local,) * (whole("full_period", period, 1) - 1) + (last,)
    return replace(architecture, layers=pattern[: architecture.depth])


def _full_place(architecture: Architecture, place: int) -> Architecture:
    """The one full layer of the pattern at another place of it, counted from 0 at the bottom."""
    pattern = shortest_pattern(architecture.layers)
    near = [layer for layer in pattern if not isinstance(layer.mask, Causal)]
    full = [layer for layer in pattern if isinstance(layer.mask, Causal)]
    if len(full) != 1 or len(set(near)) > 1:
        raise InvalidValueError(
            f"full_place: a pattern of {len(full)} causal layers and {len(set(near))} kinds of others given, "
            "one causal layer and at most one other kind needed"
        )
    if place > len(near):
        raise InvalidValueError(
            f"full_place: {place} given, at most {len(near)} needed in a pattern of {len(near) + 1} layers"
        )
    return replace(architecture, layers=(*near[:place], *full, *near[place:]))


def _mixing_exponent(architecture: Architecture, exponent: float) -> Architecture:
    """λ falling with depth from that of the bottom layer, as λ_t = λ_0/(t + 1)^β."""
    mixing = PowerDecay(float(architecture.coefficients[0]), float(exponent))
    return replace(architecture, mixing=mixing)


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


def _encoding(
    name: str, needed: str, kinds: type | tuple[type, ...], change: Callable[[Any, float], Any]
) -> Callable[[Architecture, Any], Architecture]:
    """Change the encoding of every layer that has one of these `kinds`, of which there must be a layer."""

    def changed(architecture: Architecture, given: float) -> Architecture:
        if not any(isinstance(layer.positional, kinds) for layer in architecture.layers):
            raise InvalidValueError(f"{name}: no layer has {needed}, at least one with it needed")
        layers = (
            replace(layer, positional=change(layer.positional, given))
            if isinstance(layer.positional, kinds)
            else layer
            for layer in architecture.layers
        )
        return replace(architecture, layers=tuple(layers))

    return changed


def _slopes(positional: ALiBi, factor: float) -> ALiBi:
    """ALiBi's slopes times a factor."""
    return replace(positional, scale=factor * positional.scale)


def _rope_base(positional: RoPE, base: float) -> RoPE:
    """Another base, for frequencies that come from one."""
    if positional.frequencies is not None:
        raise InvalidValueError("rope_base: frequencies given one by one, a base with a dimension needed")
    return replace(positional, base=base)


def _rope_angle(positional: RoPE, angle: float) -> RoPE:
    """Another angle per token, of a single pair of dimensions (Wu et al. 2025, Lemma 4.6)."""
    if len(positional.angles) != 1:
        raise InvalidValueError(f"rope_angle: {len(positional.angles)} pairs of dimensions given, one needed")
    return replace(positional, frequencies=(angle,), dimension=None)


def _rope_factor(architecture: Architecture, factor: float) -> Architecture:
    """Another factor of every rotary scaling; layers without one as they are."""
    encodings = [layer.positional for layer in architecture.layers]
    scaled = [isinstance(one, RoPE) and one.scaling is not None for one in encodings]
    if not any(scaled):
        raise InvalidValueError("rope_factor: no layer has RoPE with a scaling, at least one needed")

    def changed(positional: Any) -> Any:
        return replace(positional, scaling=replace(positional.scaling, factor=float(factor)))

    layers = (
        replace(layer, positional=changed(layer.positional)) if is_scaled else layer
        for layer, is_scaled in zip(architecture.layers, scaled, strict=True)
    )
    return replace(architecture, layers=tuple(layers))


def _kerple(positional: KerpleLog | KerplePower, factor: float) -> KerpleLog | KerplePower:
    """KERPLE's r₁ times a factor."""
    return replace(positional, scale=tuple(factor * scale for scale in positional.scale))


def _content(name: str) -> Callable[[Architecture, Any], Architecture]:
    """Another number for all heads in the content of every layer, the rest of it as it is."""

    def changed(layer: Layer, given: float) -> Layer:
        content = ConstantDiagonal((0.0,)) if isinstance(layer.content, NoContent) else layer.content
        if not isinstance(content, ConstantDiagonal):
            raise InvalidValueError(
                f"{name}: content {type(content).__name__} given, a constant diagonal needed"
            )
        return replace(layer, content=replace(content, **{name: (float(given),)}))

    def change(architecture: Architecture, given: float) -> Architecture:
        return replace(architecture, layers=tuple(changed(layer, given) for layer in architecture.layers))

    return change


def _scalable(architecture: Architecture, scale: float) -> Architecture:
    """Another s of scalable softmax, the same for all heads, in every layer; its b as it is."""

    def changed(layer: Layer) -> Layer:
        held = (
            layer.query_scale if isinstance(layer.query_scale, ScalableSoftmax) else ScalableSoftmax((0.0,))
        )
        return replace(layer, query_scale=replace(held, scale=(float(scale),)))

    return replace(architecture, layers=tuple(map(changed, architecture.layers)))


def _step_scale(architecture: Architecture, beta: float) -> Architecture:
    """Another β in every layer whose logits grow in steps."""
    if not any(isinstance(layer.query_scale, StepScale) for layer in architecture.layers):
        raise InvalidValueError("step_scale: no layer's logits grow in steps, at least one needed")
    layers = (
        replace(layer, query_scale=replace(layer.query_scale, beta=float(beta)))
        if isinstance(layer.query_scale, StepScale)
        else layer
        for layer in architecture.layers
    )
    return replace(architecture, layers=tuple(layers))


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
        Quantity("depth", "number of layers", True, False, _depth, 1, MOST_LAYERS),
        Quantity("mixing", "weight of attention λ in every layer", False, False,
                 lambda architecture, lam: replace(architecture, mixing=ConstantMixing(lam)), 0, 1),
        Quantity("mixing_exponent", "β of λ_t = λ_0/(t + 1)^β, λ_0 that of the bottom layer", False, False,
                 _mixing_exponent, 0),
        *(
            Quantity(cls.word, cls.varied, True, True, _mask(cls), 1)
            for cls in MASKS
            if issubclass(cls, LooksBack) and cls.varied
        ),
        Quantity("full_period", "every so many layers a full one, the others under the window", True, False,
                 _full_period, 1),
        Quantity("full_place", "place of the full layer in the pattern, from 0", True, False, _full_place, 0),
        Quantity("sinks", "number of first tokens that every window sees", True, False, _sinks, 0),
        Quantity("heads", "number of heads in every layer", True, True, _each_layer(heads=lambda heads: heads), 1),
        Quantity("gate", "what every head's output is multiplied by", False, False,
                 lambda architecture, gate: gated(architecture, [gate])),
        Quantity("slopes", "factor on the slopes of ALiBi", False, True,
                 _encoding("slopes", "ALiBi", ALiBi, _slopes)),
        Quantity("rope_base", "base of the rotary angles", False, True,
                 _encoding("rope_base", "RoPE", RoPE, _rope_base)),
        Quantity("rope_angle", "angle per token of one rotary pair", False, True,
                 _encoding("rope_angle", "RoPE", RoPE, _rope_angle)),
        Quantity("rope_factor", "factor of the rotary scaling", False, True, _rope_factor),
        Quantity("kerple", "factor on the scale of KERPLE", False, True,
                 _encoding("kerple", "KERPLE", (KerpleLog, KerplePower), _kerple)),
        Quantity("diagonal", "content logit of a token on itself", False, False, _content("diagonal")),
        Quantity("first_column", "content logit of all tokens on the first", False, False,
                 _content("first_column")),
        Quantity("sink_logit", "logit of a sink beside the keys", False, False,
                 _each_layer(sinks=lambda logit: (float(logit),))),
        Quantity("decay", "rate of a decay mask in every layer", False, True, _each_layer(positional=DecayBias)),
        Quantity("nope_period", "every so many layers one without an encoding", True, False, _nope_period, 1),
        Quantity("temperature", "temperature of every softmax", False, True, _each_layer(temperature=float)),
        Quantity("scalable_softmax", "s of a softmax whose logits grow as s·ln(i + 1)", False, False, _scalable),
        Quantity("step_scale", "β of logits that grow in steps", False, False, _step_scale),
        Quantity("tokens", "length of the text", True, True, lambda architecture, tokens: architecture, 1),
    )
}  # fmt: skip
"""Name → quantity, for `vary` and the command line; where two are varied, the first of them is changed first."""
