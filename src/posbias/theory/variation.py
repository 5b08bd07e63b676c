"""What if: one quantity of an architecture varied, and the profile at each of its values.

    for value, profile in vary(architecture, "depth", [1, 2, 4, 8], tokens=512):
        print(value, profile.summary.verdict)

`vary_two` varies two at once. A quantity is a row of `QUANTITIES`: how it changes an architecture, and how a range
of it is spaced.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from posbias.core import memory
from posbias.core.arguments import one_of, shortened, typed_integer
from posbias.core.errors import InvalidValueError, nearest
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture
from posbias.theory.prediction import predict
from posbias.theory.quantities import QUANTITIES, Quantity
from posbias.theory.rollout.dispatch import cores

STEPS, MOST = 33, 10_000
"""Values that a range gives when it does not say how many, and that it may ask for at most."""


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
        raise InvalidValueError(f"vary: {', '.join(names)} given, two different quantities needed")
    (one, rows), (other, columns) = axes
    if not 1 <= len(rows) * len(columns) <= MOST:
        raise InvalidValueError(
            f"vary: {len(rows)} × {len(columns)} values given, 1 to {MOST:,} in all needed"
        )
    longest = max([tokens, *(max(map(int, values)) for name, values in axes if name == "tokens")])
    bands = 3 if architecture.mixing.assumed else 1
    memory.require(8 * bands * longest * len(rows) * len(columns), "tokens", longest)
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
        raise InvalidValueError(f"values: {value} given for {quantity}, finite numbers needed")
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
            f"vary: {shortened(spelling)} given, "
            f"for instance depth=1:64 needed, with one of {', '.join(QUANTITIES)}"
            f"{nearest(name, QUANTITIES)}"
        )
    quantity = QUANTITIES[name]
    if "," in text or ":" not in text:
        return name, [_value(quantity, word) for word in text.split(",")]
    low, high, *rest = text.split(":")
    if len(rest) > 1:
        raise InvalidValueError(f"{name}: {shortened(text)} given, LOW:HIGH or LOW:HIGH:COUNT needed")
    first, last = _value(quantity, low), _value(quantity, high)
    if first > last:
        raise InvalidValueError(f"{name}: {shortened(text)} given, a range that rises needed")
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


def _value(quantity: Quantity, word: str) -> float:
    """A value as it was typed, if some architecture can take it."""
    value = _number(quantity.name, word, quantity.whole)
    quantity.check(value)
    return value


def _number(name: str, word: str, whole: bool) -> float:
    try:
        if whole and (number := typed_integer(word)) is not None:
            return number
        return int(word) if whole else float(word)
    except ValueError:
        kind = "an integer" if whole else "a number"
        raise InvalidValueError(f"{name}: {shortened(word)} given, {kind} needed") from None
