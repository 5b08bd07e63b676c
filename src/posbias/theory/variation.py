"""What if: one quantity of an architecture varied, and the profile at each of its values.

    for value, profile in vary(architecture, "depth", [1, 2, 4, 8], tokens=512):
        print(value, profile.summary.verdict)

A quantity is a row of `QUANTITIES`: how it changes an architecture, and how a range of it is spaced.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posbias.arguments import one_of, typed_integer
from posbias.errors import InvalidValueError, nearest
from posbias.profile import Profile
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.encodings import DecayBias
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PerLayer
from posbias.theory.rollout.dispatch import cores, influence

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
        Quantity("decay", "rate of a decay mask in every layer", False, True, _each_layer(positional=DecayBias)),
        Quantity("temperature", "temperature of every softmax", False, True, _each_layer(temperature=float)),
        Quantity("tokens", "length of the text", True, True, lambda architecture, tokens: architecture),
    )
}  # fmt: skip
"""Name → quantity, for `vary` and the command line."""


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

    `tokens`, `query`, `method` and `threads` as in `influence`; values are independent and share the cores.
    Raises `InvalidValueError` for an unknown quantity or a value that the architecture cannot take.
    """
    chosen = QUANTITIES[one_of("vary", quantity, QUANTITIES)]

    def at(value: float) -> tuple[float, Profile]:
        number = int(value) if chosen.whole and float(value).is_integer() else value
        variant = chosen.change(architecture, number)
        length = int(number) if quantity == "tokens" else tokens
        return number, influence(variant, length, query, method=method, threads=1)

    with ThreadPoolExecutor(cores(threads)) as pool:
        return list(pool.map(at, values))


def values_of(spelling: str) -> tuple[str, list[float]]:
    """Read `depth=1:64`, `mixing=0:1:11` (so many values) or `window=64,256,1024` into name and values.

    A range of integers with no number of values takes all up to 64 of them, else `STEPS` distinct ones.
    Raises `InvalidValueError` for another form, an unknown quantity, or a range that runs backwards.
    """
    name, equals, text = spelling.partition("=")
    if not equals or name not in QUANTITIES:
        raise InvalidValueError(
            f"vary: {spelling!r} given, for instance depth=1:64 needed, with one of {', '.join(QUANTITIES)}"
            f"{nearest(name, QUANTITIES)}"
        )
    quantity = QUANTITIES[name]
    if "," in text or ":" not in text:
        return name, [_number(name, word, quantity.whole) for word in text.split(",")]
    low, high, *rest = text.split(":")
    if len(rest) > 1:
        raise InvalidValueError(f"{name}: {text!r} given, LOW:HIGH or LOW:HIGH:COUNT needed")
    first, last = _number(name, low, quantity.whole), _number(name, high, quantity.whole)
    if first > last:
        raise InvalidValueError(f"{name}: {text!r} given, a range that rises needed")
    count = int(_number(name, rest[0], True)) if rest else STEPS
    if not 2 <= count <= MOST:
        raise InvalidValueError(f"{name}: {count} values given, at least 2 and at most {MOST:,} needed")
    if quantity.whole and not rest and last - first < 64:
        return name, list(range(int(first), int(last) + 1))
    if quantity.geometric and first <= 0:
        raise InvalidValueError(
            f"{name}: {low} given, a number above zero needed (values are spaced by ratios)"
        )
    space = np.geomspace if quantity.geometric else np.linspace
    values = space(first, last, count)
    return name, np.unique(values.round().astype(int)).tolist() if quantity.whole else values.tolist()


def _number(name: str, word: str, whole: bool) -> float:
    try:
        if whole and (number := typed_integer(word)) is not None:
            return number
        return int(word) if whole else float(word)
    except ValueError:
        kind = "an integer" if whole else "a number"
        raise InvalidValueError(f"{name}: {word!r} given, {kind} needed") from None
