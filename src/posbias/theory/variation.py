"""What if: one quantity of an architecture varied, and the profile at each of its values.

    for value, profile in vary(architecture, "depth", [1, 2, 4, 8], tokens=512):
        print(value, profile.summary.verdict)

`vary_two` varies two at once. A quantity is a row of `QUANTITIES`: how it changes an architecture, and how a range
of it is spaced.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posbias.core import machine
from posbias.core.errors import InvalidValueError, nearest, one_of, shortened, typed_integer, whole
from posbias.core.machine import cores
from posbias.core.spec import MOST_LAYERS
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture, Layer, gated, shortest_pattern
from posbias.theory.content import ConstantDiagonal, NoContent, ScalableSoftmax, StepScale
from posbias.theory.huggingface import is_attention
from posbias.theory.masks import MASKS, Causal, Full, LooksBack, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer, PowerDecay
from posbias.theory.positional import ALiBi, DecayBias, KerpleLog, KerplePower, NoPE, RoPE
from posbias.theory.prediction import predict

STEPS, MOST = 33, 10_000
"""Values that a range gives when it does not say how many, and that it may ask for at most."""


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
            raise InvalidValueError(f"{self.name}: expected {span} ({self.what}), got {value:,.12g}")


def _depth(architecture: Architecture, depth: int) -> Architecture:
    """The pattern repeated to another depth; measured mixing only as far as it goes."""
    stack = [architecture.layers[t % len(architecture.layers)] for t in range(depth)]
    mixing = architecture.mixing
    if isinstance(mixing, PerLayer):
        if depth > architecture.depth:
            raise InvalidValueError(
                f"depth: expected at most the {architecture.depth} layers whose λ is known, got {depth}"
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
                f"{cls.word}: expected a layer with the mask {cls.__name__} or Causal, got none"
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
            "full_period: expected one kind of layers under a window or chunks and at most one other, causal, "
            f"got {len(kinds)} kinds, {len(near)} under such a mask"
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
            "full_place: expected a pattern of one causal layer and at most one other kind, "
            f"got {len(full)} causal layers and {len(set(near))} kinds of others"
        )
    if place > len(near):
        raise InvalidValueError(
            f"full_place: expected at most {len(near)} in a pattern of {len(near) + 1} layers, got {place}"
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
        raise InvalidValueError(f"nope_period: expected layers with one encoding, got {len(kinds)}")
    [encoding] = kinds
    stack = [
        replace(layer, positional=encoding if (t + 1) % whole("nope_period", period, 1) else NoPE())
        for t, layer in enumerate(architecture.stack)
    ]
    return replace(architecture, layers=shortest_pattern(stack))


def _layers(
    change: Callable[[Layer, Any], Layer], among: Callable[[Layer], bool] | None = None, which: str = ""
) -> Callable[[Architecture, Any], Architecture]:
    """Change every layer, or those `among` them that have what `which` says, of which there must be one."""

    def changed(architecture: Architecture, given: Any) -> Architecture:
        chosen = [among is None or among(layer) for layer in architecture.layers]
        if not any(chosen):
            raise InvalidValueError(f"{which}, got none")
        parts = zip(architecture.layers, chosen, strict=True)
        return replace(
            architecture, layers=tuple(change(layer, given) if here else layer for layer, here in parts)
        )

    return changed


def _encoding(
    name: str, title: str, kinds: type | tuple[type, ...], change: Callable[[Any, Any], Any]
) -> Callable[[Architecture, Any], Architecture]:
    """Change the encoding of every layer that has one of these `kinds`."""
    return _layers(
        lambda layer, given: replace(layer, positional=change(layer.positional, given)),
        lambda layer: isinstance(layer.positional, kinds),
        f"{name}: expected a layer with {title}",
    )


def _rope_base(positional: RoPE, base: float) -> RoPE:
    """Another base, for frequencies that come from one."""
    if positional.frequencies is not None:
        raise InvalidValueError("rope_base: expected a base with a dimension, got frequencies one by one")
    return replace(positional, base=base)


def _rope_angle(positional: RoPE, angle: float) -> RoPE:
    """Another angle per token, of a single pair of dimensions (Wu et al. 2025, Lemma 4.6)."""
    if len(positional.angles) != 1:
        raise InvalidValueError(f"rope_angle: expected one pair of dimensions, got {len(positional.angles)}")
    return replace(positional, frequencies=(angle,), dimension=None)


def _scaled(layer: Layer) -> bool:
    return isinstance(layer.positional, RoPE) and layer.positional.scaling is not None


def _rope_factor(layer: Layer, factor: float) -> Layer:
    """Another factor of the rotary scaling."""
    positional: Any = layer.positional
    return replace(
        layer, positional=replace(positional, scaling=replace(positional.scaling, factor=float(factor)))
    )


def _kerple(positional: KerpleLog | KerplePower, factor: float) -> KerpleLog | KerplePower:
    """KERPLE's r₁ times a factor."""
    return replace(positional, scale=tuple(factor * scale for scale in positional.scale))


def _content(name: str) -> Callable[[Architecture, Any], Architecture]:
    """Another number for all heads in the content of every layer, the rest of it as it is."""

    def changed(layer: Layer, given: float) -> Layer:
        content = ConstantDiagonal((0.0,)) if isinstance(layer.content, NoContent) else layer.content
        if not isinstance(content, ConstantDiagonal):
            raise InvalidValueError(
                f"{name}: expected a constant diagonal as content, got {type(content).__name__}"
            )
        return replace(layer, content=replace(content, **{name: (float(given),)}))

    return _layers(changed)


def _scalable(layer: Layer, scale: float) -> Layer:
    """Another s of scalable softmax, the same for all heads; its b as it is."""
    held = layer.query_scale if isinstance(layer.query_scale, ScalableSoftmax) else ScalableSoftmax((0.0,))
    return replace(layer, query_scale=replace(held, scale=(float(scale),)))


def _step_scale(layer: Layer, beta: float) -> Layer:
    """Another β of logits that grow in steps."""
    assert isinstance(layer.query_scale, StepScale)
    return replace(layer, query_scale=replace(layer.query_scale, beta=float(beta)))


def _sinks(layer: Layer, sinks: int) -> Layer:
    """Another number of first tokens that all see."""
    assert isinstance(layer.mask, SlidingWindow)
    return replace(layer, mask=replace(layer.mask, sinks=sinks))


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
        Quantity("sinks", "number of first tokens that every window sees", True, False,
                 _layers(_sinks, lambda layer: isinstance(layer.mask, SlidingWindow),
                         "sinks: expected a layer with a window"), 0),
        Quantity("heads", "number of heads in every layer", True, True,
                 _layers(lambda layer, heads: replace(layer, heads=heads)), 1),
        Quantity("gate", "what every head's output is multiplied by", False, False,
                 lambda architecture, gate: gated(architecture, [gate])),
        Quantity("slopes", "factor on the slopes of ALiBi", False, True,
                 _encoding("slopes", "ALiBi", ALiBi,
                           lambda alibi, factor: replace(alibi, scale=factor * alibi.scale))),
        Quantity("rope_base", "base of the rotary angles", False, True,
                 _encoding("rope_base", "RoPE", RoPE, _rope_base)),
        Quantity("rope_angle", "angle per token of one rotary pair", False, True,
                 _encoding("rope_angle", "RoPE", RoPE, _rope_angle)),
        Quantity("rope_factor", "factor of the rotary scaling", False, True,
                 _layers(_rope_factor, _scaled, "rope_factor: expected a layer with RoPE and a scaling")),
        Quantity("kerple", "factor on the scale of KERPLE", False, True,
                 _encoding("kerple", "KERPLE", (KerpleLog, KerplePower), _kerple)),
        Quantity("diagonal", "content logit of a token on itself", False, False, _content("diagonal")),
        Quantity("first_column", "content logit of all tokens on the first", False, False,
                 _content("first_column")),
        Quantity("sink_logit", "logit of a sink next to the keys", False, False,
                 _layers(lambda layer, logit: replace(layer, sinks=(float(logit),)))),
        Quantity("decay", "rate of a decay mask in every layer", False, True,
                 _layers(lambda layer, rate: replace(layer, positional=DecayBias(rate)))),
        Quantity("nope_period", "every so many layers one without an encoding", True, False, _nope_period, 1),
        Quantity("temperature", "temperature of every softmax", False, True,
                 _layers(lambda layer, number: replace(layer, temperature=float(number)))),
        Quantity("scalable_softmax", "s of a softmax whose logits grow as s·ln(i + 1)", False, False,
                 _layers(_scalable)),
        Quantity("step_scale", "β of logits that grow in steps", False, False,
                 _layers(_step_scale, lambda layer: isinstance(layer.query_scale, StepScale),
                         "step_scale: expected a layer whose logits grow in steps")),
        Quantity("tokens", "length of the text", True, True, lambda architecture, tokens: architecture, 1),
    )
}  # fmt: skip
"""Name → quantity, for `vary` and the command line; where two are varied, the first of them is changed first."""


# --- profiles at their values ----------------------------------------------------------------------------------


def vary(
    architecture: Architecture,
    quantity: str,
    values: Sequence[float],
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
) -> list[tuple[float, Profile]]:
    """The profile at each value of a quantity of `QUANTITIES`, everything else as it is.

    `tokens`, `query`, `method` and `threads` as in `predict`; values are independent and share the cores.
    Raises `InvalidValueError` for an unknown quantity or a value that the architecture cannot take.
    """
    how: dict[str, Any] = {"method": method, "threads": threads}
    varied = _at_points(architecture, [{quantity: value} for value in values], tokens, query, **how)
    return [(_number_of(quantity, value), profile) for value, profile in zip(values, varied, strict=True)]


def vary_two(
    architecture: Architecture,
    axes: Sequence[tuple[str, Sequence[float]]],
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
) -> list[list[Profile]]:
    """The profile at each value of a quantity (rows) and each of another (columns), everything else as it is.

    `axes` holds both quantities of `QUANTITIES` with their values, the rest is as in `vary`. Raises
    `InvalidValueError` as `vary` does, for another number of axes, one quantity twice, more than `MOST` profiles,
    and more than memory holds.
    """
    names = [name for name, _ in axes]
    if len(axes) != 2 or names[0] == names[1]:
        raise InvalidValueError(f"vary: expected two different quantities, got {', '.join(names)}")
    (one, rows), (other, columns) = axes
    if not 1 <= len(rows) * len(columns) <= MOST:
        raise InvalidValueError(
            f"vary: expected 1 to {MOST:,} values in all, got {len(rows)} × {len(columns)}"
        )
    longest = max([tokens, *(max(map(int, values)) for name, values in axes if name == "tokens")])
    bands = 3 if architecture.mixing.assumed else 1
    machine.require(8 * bands * longest * len(rows) * len(columns), "tokens", longest)
    points = [{one: row, other: column} for row in rows for column in columns]
    varied = _at_points(architecture, points, tokens, query, method=method, threads=threads)
    return [varied[k : k + len(columns)] for k in range(0, len(varied), len(columns))]


def _at_points(
    architecture: Architecture,
    points: Sequence[Mapping[str, float]],
    tokens: int,
    query: int,
    *,
    method: str,
    threads: int | None,
) -> list[Profile]:
    """The profile where each quantity has its value, for each point; points share the cores."""
    for name in points[0] if points else ():
        one_of("vary", name, QUANTITIES)

    def at(point: Mapping[str, float]) -> Profile:
        variant, length = architecture, tokens
        for name in sorted(point, key=list(QUANTITIES).index):
            value = _number_of(name, point[name])
            variant = QUANTITIES[name].change(variant, value)
            length = int(value) if name == "tokens" else length
        return predict(variant, length, query, method=method, threads=1)

    with ThreadPoolExecutor(cores(threads)) as pool:
        return list(pool.map(at, points))


def _number_of(quantity: str, value: float) -> float:
    """A value as the quantity wants it: whole numbers as integers."""
    if not math.isfinite(value):
        raise InvalidValueError(f"values: expected finite numbers for {quantity}, got {value}")
    QUANTITIES[quantity].check(value)
    return int(value) if QUANTITIES[quantity].whole and float(value).is_integer() else value


def values_of(spelling: str) -> tuple[str, list[float]]:
    """Read `depth=1:64`, `mixing=0:1:11` (so many values) or `window=64,256,1024` into name and values.

    A range of integers with no number of values takes all up to 64 of them, else `STEPS` distinct ones.
    Raises `InvalidValueError` for another form, an unknown quantity, or a range that runs backwards.
    """
    name, equals, text = spelling.partition("=")
    if not equals or name not in QUANTITIES:
        raise InvalidValueError(
            f"vary: expected one of {', '.join(QUANTITIES)} with values, for instance depth=1:64, "
            f"got {shortened(spelling)}{nearest(name, QUANTITIES)}"
        )
    quantity = QUANTITIES[name]
    if "," in text or ":" not in text:
        return name, [_value(quantity, word) for word in text.split(",")]
    low, high, *rest = text.split(":")
    if len(rest) > 1:
        raise InvalidValueError(f"{name}: expected LOW:HIGH or LOW:HIGH:COUNT, got {shortened(text)}")
    first, last = _value(quantity, low), _value(quantity, high)
    if first > last:
        raise InvalidValueError(f"{name}: expected a range that rises, got {shortened(text)}")
    count = int(_number(name, rest[0], True)) if rest else STEPS
    if not 2 <= count <= MOST:
        raise InvalidValueError(f"{name}: expected 2 to {MOST:,} values, got {count}")
    if quantity.whole and not rest and last - first < 64:
        return name, list(range(int(first), int(last) + 1))
    if quantity.geometric and first <= 0:
        raise InvalidValueError(
            f"{name}: expected a number above zero (values are spaced by ratios), got {low}"
        )
    space = np.geomspace if quantity.geometric else np.linspace
    values = space(first, last, count)
    return name, np.unique(values.round().astype(int)).tolist() if quantity.whole else values.tolist()


def _value(quantity: Quantity, word: str) -> float:
    """A value as it was typed, if some architecture can take it."""
    value = _number(quantity.name, word, quantity.whole)
    quantity.check(value)
    return value


def _number(name: str, word: str, integer: bool) -> float:
    try:
        if integer and (number := typed_integer(word)) is not None:
            return number
        return int(word) if integer else float(word)
    except ValueError:
        kind = "an integer" if integer else "a number"
        raise InvalidValueError(f"{name}: expected {kind}, got {shortened(word)}") from None
