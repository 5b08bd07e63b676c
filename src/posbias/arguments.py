"""What is asked of an argument: each check returns it, or says what was given and what would be right."""

import math
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from numbers import Integral
from typing import Any, TypeVar

from posbias.errors import InvalidValueError, nearest

Name = TypeVar("Name", bound=str)


def whole(name: str, given: Any, least: int) -> int:
    """`given`, if it is a whole number ≥ `least`. Raises `InvalidValueError` naming the argument."""
    if not isinstance(given, Integral) or isinstance(given, bool) or given < least:
        raise InvalidValueError(f"{name}: {given!r} given, an integer ≥ {least} needed")
    return int(given)


def position(name: str, given: Any, tokens: int) -> int:
    """A position of a text, negative ones from its end, counted from 0. Raises `InvalidValueError`."""
    if not isinstance(given, Integral) or isinstance(given, bool) or not -tokens <= int(given) < tokens:
        raise InvalidValueError(
            f"{name}: {given!r} given, a position from {-tokens} to {tokens - 1} needed for {tokens} tokens"
        )
    return int(given) % tokens


def non_negative(name: str, given: float) -> float:
    """`given`, if it is finite and ≥ 0. Raises `InvalidValueError` naming the argument."""
    if not 0 <= given < math.inf:
        raise InvalidValueError(f"{name}: {given} given, a finite number ≥ 0 needed")
    return given


def positive(name: str, given: float) -> float:
    """`given`, if it is finite and above 0. Raises `InvalidValueError` naming the argument."""
    if not 0 < given < math.inf:
        raise InvalidValueError(f"{name}: {given} given, a finite number above 0 needed")
    return given


def one_of(name: str, given: Name, choices: Iterable[str]) -> Name:
    """`given`, if it is one of the choices. Raises `InvalidValueError` listing them, and naming the nearest."""
    if given not in choices:
        hint = nearest(str(given), choices)
        raise InvalidValueError(f"{name}: {given!r} given, one of {', '.join(choices)} needed{hint}")
    return given


def typed_integer(word: str) -> int | None:
    """An integer as people type it: 250000, 1e7, 2.5e6, 8k (8,000), 1M (1,000,000); None for anything else."""
    factor = {"k": 1_000, "M": 1_000_000}.get(word[-1:], 1)
    try:
        number = Decimal(word if factor == 1 else word[:-1]) * factor
    except InvalidOperation:
        return None
    if not number.is_finite() or number.adjusted() >= 30 or number != int(number):
        return None
    return int(number)
