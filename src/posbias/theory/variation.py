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
from typing import Any, NamedTuple

import numpy as np

from posbias.core import machine
from posbias.core.errors import nearest, one_of, shortened, typed_integer, whole, wrong
from posbias.core.files import data_table
from posbias.core.machine import cores
from posbias.core.spec import MOST_LAYERS
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture, Layer, gated, shortest_pattern
from posbias.theory.configs import AnyArchitecture, load_architecture
from posbias.theory.content import ConstantDiagonal, NoContent, ScalableSoftmax, StepScale
from posbias.theory.huggingface import is_attention
from posbias.theory.masks import MASKS, Causal, Full, LooksBack, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer, PowerDecay
from posbias.theory.positional import ALiBi, DecayBias, KerpleLog, KerplePower, NeedsMeasurement, NoPE, RoPE
from posbias.theory.prediction import predict
from posbias.theory.rope_scaling import DynamicNTK, LinearScaling, Llama3Scaling, YaRN

STEPS, MOST = 33, 10_000
"""Values that a range gives when it does not say how many, and that it may ask for at most."""
MEASURED: dict[str, list[str]] = data_table(__file__)
"""What other values of a quantity did to models that were measured, a line for each model."""


class Span(NamedTuple):
    """What values may be: integers (`whole`), spaced by ratios (`geometric`), from `least` to `most`."""

    whole: bool = False
    geometric: bool = False
    least: float = -math.inf
    most: float = math.inf


ANY, RATIO, COUNT, SIZE = Span(), Span(geometric=True), Span(True, least=1), Span(True, True, 1)


@dataclass(frozen=True)
class Quantity:
    """Something of an architecture that can be varied.

    `make` makes the variant for a value, None of an architecture that has no such quantity.
    """

    name: str
    what: str
    span: Span
    make: Callable[[Architecture, Any], Architecture | None]

    def change(self, architecture: Architecture, value: float) -> Architecture:
        """The architecture with this value. Raises `InvalidValueError` as `typed`, and without such a quantity."""
        changed = self.make(architecture, self.typed(value))
        if changed is None:
            left_out = any(isinstance(layer.positional, NeedsMeasurement) for layer in architecture.layers)
            given = "none"
            if left_out and self.name.startswith("rope"):
                given = (
                    "rotary positions left out, whose amplitudes no configuration holds; a file of your own with "
                    "them has it (posbias.encodings.rope_of, docs/theory.md)"
                )
                given = "; ".join([given, *MEASURED.get(self.name, [])])
            raise wrong(self.name, f"a layer with one ({self.what})", got=given)
        return changed

    def typed(self, value: float) -> float:
        """A value, whole numbers as integers. Raises `InvalidValueError` for one that no architecture can take."""
        low, high = self.span.least, self.span.most
        if math.isinf(value):
            raise wrong(self.name, f"a finite number ({self.what})", got=str(value))
        if not low <= value <= high:
            span = f"at least {low:,g}" if math.isinf(high) else f"{low:,g} to {high:,g}"
            raise wrong(self.name, f"{span} ({self.what})", got=f"{value:,.12g}")
        return int(value) if self.span.whole and float(value).is_integer() else value


def _depth(architecture: Architecture, depth: int) -> Architecture:
    """The pattern repeated to another depth; measured mixing only as far as it goes."""
    stack = [architecture.layers[t % len(architecture.layers)] for t in range(depth)]
    mixing = architecture.mixing
    if isinstance(mixing, PerLayer):
        if depth > architecture.depth:
            raise wrong("depth", f"at most the {architecture.depth} layers whose λ is known", depth)
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
            raise wrong(cls.word, f"a layer with the mask {cls.__name__} or Causal", got="none")
        return replace(architecture, layers=tuple(resized.get(layer, layer) for layer in architecture.layers))

    return changed


def _full_period(architecture: Architecture, period: int) -> Architecture:
    """Every period-th layer full, the others under the window: the architecture's own layers of both kinds."""
    kinds = set(architecture.layers)
    full = {layer for layer in kinds if isinstance(layer.mask, Causal)}
    near = {layer for layer in kinds - full if not isinstance(layer.mask, Prefix | Full)}
    if len(near) != 1 or len(full) > 1 or kinds - near - full:
        wanted = "one kind of layers under a window or chunks and at most one other, causal"
        raise wrong("full_period", wanted, got=f"{len(kinds)} kinds, {len(near)} under such a mask")
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
        given = f"{len(full)} causal layers and {len(set(near))} kinds of others"
        raise wrong("full_place", "a pattern of one causal layer and at most one other kind", got=given)
    if place > len(near):
        raise wrong("full_place", f"at most {len(near)} in a pattern of {len(near) + 1} layers", place)
    return replace(architecture, layers=(*near[:place], *full, *near[place:]))


def _nope_period(architecture: Architecture, period: int) -> Architecture:
    """Every period-th layer without an encoding, the others with the one that there is."""
    kinds = {layer.positional for layer in architecture.layers} - {NoPE()}
    if len(kinds) != 1:
        raise wrong("nope_period", "layers with one encoding", len(kinds))
    [encoding] = kinds
    stack = [
        replace(layer, positional=encoding if (t + 1) % whole("nope_period", period, 1) else NoPE())
        for t, layer in enumerate(architecture.stack)
    ]
    return replace(architecture, layers=shortest_pattern(stack))


def _each(change: Callable[[Layer, Any], Layer | None]) -> Callable[[Architecture, Any], Architecture | None]:
    """Change every layer that has the quantity; None where none has."""

    def changed(architecture: Architecture, given: Any) -> Architecture | None:
        layers = [change(layer, given) for layer in architecture.layers]
        pairs = zip(layers, architecture.layers, strict=True)
        return replace(architecture, layers=tuple(new or old for new, old in pairs)) if any(layers) else None

    return changed


def _part(part: str, kinds: Any, change: Callable[..., Any], among: Any = lambda held: True) -> Any:
    """Other fields of a part of these `kinds` that is `among` those, as `change` makes them of part and value."""

    def changed(layer: Layer, given: float) -> Layer | None:
        held = getattr(layer, part)
        if not isinstance(held, kinds) or not among(held):
            return None
        return replace(layer, **{part: replace(held, **change(held, given))})

    return _each(changed)


def _number_in(name: str, factor: bool = False) -> Callable[[Any, float], dict[str, Any]]:
    """Another number in a field, or a `factor` on it; of a list the same for all heads."""

    def change(held: Any, given: float) -> dict[str, Any]:
        before = getattr(held, name)
        if not isinstance(before, tuple):
            return {name: given * before if factor else given}
        return {name: tuple(given * one for one in before) if factor else (given,)}

    return change


def _content(name: str) -> Callable[[Architecture, float], Architecture | None]:
    """Another content logit for all heads; where there was no content it is all there is."""
    begin = _each(lambda layer, held: replace(layer, content=held) if layer.content == NoContent() else None)
    change = _part("content", ConstantDiagonal, _number_in(name))

    def changed(architecture: Architecture, given: float) -> Architecture | None:
        return change(begin(architecture, ConstantDiagonal((0.0,))) or architecture, float(given))

    return changed


def _scalable(layer: Layer, scale: float) -> Layer:
    """Another s of scalable softmax, the same for all heads; its b as it is."""
    held = layer.query_scale if isinstance(layer.query_scale, ScalableSoftmax) else ScalableSoftmax((0.0,))
    return replace(layer, query_scale=replace(held, scale=(float(scale),)))


def _scaled(name: str) -> Callable[[Architecture, float], Architecture | None]:
    """Another rotary scaling, by its factor; what goes by the trained length takes that of the one before it."""

    def change(rope: RoPE, factor: float) -> dict[str, Any]:
        return {"scaling": SCALINGS[name](float(factor), getattr(rope.scaling, "trained", None))}

    fits = lambda rope: rope.dimension and (name in ("linear", "ntk") or hasattr(rope.scaling, "trained"))  # noqa: E731
    return _part("positional", RoPE, change, fits)


SCALINGS: dict[str, Callable[[float, Any], Any]] = {
    "linear": lambda factor, trained: LinearScaling(factor),
    # a base·factor^(d/(d − 2)), whatever the length of the text
    "ntk": lambda factor, trained: DynamicNTK(1.0, 10**6, tokens=round(10**6 * factor)),
    "yarn": YaRN,
    "llama3": Llama3Scaling,
}
"""Rotary scaling → what makes it of a factor and, where that counts, of the trained length."""
MEASURED |= {f"rope_{name}": MEASURED["rope_factor"] for name in SCALINGS}

_ROWS: tuple[tuple[str, str, Span, Callable[..., Architecture | None]], ...] = (
    ("depth", "number of layers", COUNT._replace(most=MOST_LAYERS), _depth),
    ("mixing", "weight of attention λ in every layer", Span(least=0, most=1),
     lambda held, lam: replace(held, mixing=ConstantMixing(lam))),
    ("mixing_exponent", "β of λ_t = λ_0/(t + 1)^β, λ_0 of the bottom layer", Span(least=0),
     lambda held, beta: replace(held, mixing=PowerDecay(float(held.coefficients[0]), float(beta)))),
    *((cls.word, cls.varied, SIZE, _mask(cls)) for cls in MASKS if issubclass(cls, LooksBack) and cls.varied),
    ("full_period", "every so many layers a full one, the others under the window", COUNT, _full_period),
    ("full_place", "place of the full layer in the pattern, from 0", COUNT._replace(least=0), _full_place),
    ("sinks", "number of first tokens that every window sees", COUNT._replace(least=0),
     _part("mask", SlidingWindow, _number_in("sinks"))),
    ("heads", "number of heads in every layer", SIZE, _each(lambda layer, heads: replace(layer, heads=heads))),
    ("gate", "what every head's output is multiplied by", ANY, lambda held, gate: gated(held, [gate])),
    ("slopes", "factor on the slopes of ALiBi", RATIO, _part("positional", ALiBi, _number_in("scale", True))),
    ("rope_base", "base of the rotary angles", RATIO,
     _part("positional", RoPE, _number_in("base"), lambda rope: rope.frequencies is None)),
    ("rope_angle", "angle per token of one rotary pair", RATIO,
     _part("positional", RoPE, lambda _, angle: {"frequencies": (angle,), "dimension": None},
           lambda rope: len(rope.angles) == 1)),
    ("rope_factor", "factor of the rotary scaling", RATIO,
     _part("positional", RoPE, lambda rope, factor: {"scaling": replace(rope.scaling, factor=float(factor))},
           lambda rope: rope.scaling is not None)),
    *((f"rope_{name}", f"factor of {name} scaling of rotary angles; yarn, llama3: in place of one with its "
       "trained length", RATIO._replace(least=1), _scaled(name)) for name in SCALINGS),
    ("kerple", "factor on the scale of KERPLE", RATIO,
     _part("positional", (KerpleLog, KerplePower), _number_in("scale", True))),
    ("diagonal", "content logit of a token on itself", ANY, _content("diagonal")),
    ("first_column", "content logit of all tokens on the first", ANY, _content("first_column")),
    ("sink_logit", "logit of a sink next to the keys", ANY,
     _each(lambda layer, logit: replace(layer, sinks=(float(logit),)))),
    ("decay", "rate of a decay mask in every layer", RATIO,
     _each(lambda layer, rate: replace(layer, positional=DecayBias(rate)))),
    ("nope_period", "every so many layers one without an encoding", COUNT, _nope_period),
    ("temperature", "temperature of every softmax", RATIO,
     _each(lambda layer, number: replace(layer, temperature=float(number)))),
    ("scalable_softmax", "s of a softmax whose logits grow as s·ln(i + 1)", ANY, _each(_scalable)),
    ("step_scale", "β of logits that grow in steps", ANY, _part("query_scale", StepScale, _number_in("beta"))),
    ("tokens", "length of the text", SIZE, lambda architecture, tokens: architecture),
)  # fmt: skip
QUANTITIES = {row[0]: Quantity(*row) for row in _ROWS}
"""Name → quantity, for `vary` and the command line; where two are varied, the first of them is changed first."""


# --- profiles at their values ----------------------------------------------------------------------------------


def vary(
    architecture: AnyArchitecture,
    quantity: str,
    values: Sequence[float],
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
) -> list[tuple[float, Profile]]:
    """The profile at each value of a quantity of `QUANTITIES`, everything else as it is.

    `architecture`, `tokens`, `query`, `method` and `threads` as in `predict`; values are independent and share the
    cores. Raises `InvalidValueError` for an unknown quantity or a value that the architecture cannot take.
    """
    typed = QUANTITIES[one_of("vary", quantity, QUANTITIES)].typed
    points = [{quantity: value} for value in values]
    profiles = _at_points(load_architecture(architecture), points, tokens, query, method, threads)
    return list(zip(map(typed, values), profiles, strict=True))


def vary_two(
    architecture: AnyArchitecture,
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
        raise wrong("vary", "two different quantities", got=", ".join(names))
    (one, rows), (other, columns) = axes
    if not 1 <= len(rows) * len(columns) <= MOST:
        raise wrong("vary", f"1 to {MOST:,} values in all", got=f"{len(rows)} × {len(columns)}")
    longest = max([tokens, *(max(map(int, values)) for name, values in axes if name == "tokens")])
    architecture = load_architecture(architecture)
    bands = 1 if architecture.mixing_given else 3
    machine.require(8 * bands * longest * len(rows) * len(columns), "tokens", longest)
    points = [{one: row, other: column} for row in rows for column in columns]
    varied = _at_points(architecture, points, tokens, query, method, threads)
    return [varied[k : k + len(columns)] for k in range(0, len(varied), len(columns))]


def _at_points(
    architecture: Architecture,
    points: Sequence[Mapping[str, float]],
    tokens: int,
    query: int,
    method: str,
    threads: int | None,
) -> list[Profile]:
    """The profile where each quantity has its value, for each point; points share the cores."""
    for name in points[0] if points else ():
        one_of("vary", name, QUANTITIES)

    def at(point: Mapping[str, float]) -> Profile:
        variant, length = architecture, tokens
        for name in sorted(point, key=list(QUANTITIES).index):
            variant = QUANTITIES[name].change(variant, point[name])
            length = int(point[name]) if name == "tokens" else length
        return predict(variant, length, query, method=method, threads=1)

    with ThreadPoolExecutor(cores(threads)) as pool:
        return list(pool.map(at, points))


def values_of(spelling: str) -> tuple[str, list[float]]:
    """Read `depth=1:64`, `mixing=0:1:11` (so many values) or `window=64,256,1024` into name and values.

    A range of integers with no number of values takes all up to 64 of them, else `STEPS` distinct ones.
    Raises `InvalidValueError` for another form, an unknown quantity, or a range that runs backwards.
    """
    name, equals, text = spelling.partition("=")
    if not equals or name not in QUANTITIES:
        wanted = f"one of {', '.join(QUANTITIES)} with values, for instance depth=1:64"
        raise wrong("vary", wanted, got=f"{shortened(spelling)}{nearest(name, QUANTITIES)}")
    whole, geometric, *_ = QUANTITIES[name].span
    if "," in text or ":" not in text:
        return name, [_number(name, word, whole) for word in text.split(",")]
    ends, count = text.split(":"), STEPS
    if len(ends) == 3 and ends[2].isdecimal():
        count = int(ends.pop())
    if len(ends) != 2:
        raise wrong(name, "LOW:HIGH or LOW:HIGH:COUNT", text)
    first, last = (_number(name, end, whole) for end in ends)
    if first > last or (geometric and first <= 0):
        wanted = "a range that rises" + " from above zero, as values are spaced by ratios" * geometric
        raise wrong(name, wanted, text)
    if not 2 <= count <= MOST:
        raise wrong(name, f"2 to {MOST:,} values", count)
    if whole and text.count(":") == 1 and last - first < 64:
        return name, list(range(int(first), int(last) + 1))
    values = (np.geomspace if geometric else np.linspace)(first, last, count)
    return name, np.unique(values.round().astype(int)).tolist() if whole else values.tolist()


def _number(name: str, word: str, integer: bool) -> float:
    """A value as it was typed, if some architecture can take it."""
    try:
        number = typed_integer(word) if integer else None
        number = (int(word) if integer else float(word)) if number is None else number
    except ValueError:
        kind = "an integer" if integer else "a number"
        raise wrong(name, kind, word) from None
    return QUANTITIES[name].typed(number)
