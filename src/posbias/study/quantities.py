"""What a cell found: named quantities, each a number or a list of numbers, with their standard errors.

    {"lost": {"value": 0.0, "se": null, "n": null},                              a number, exact
     "recency_probability": {"value": [0.5, 0.63], "se": [1e-4, 2e-4], "n": 1000000}}    a list, by layer

`se` is null where nothing is drawn, or where one draw says nothing about its error; `n` is how many independent
draws stand behind the numbers, null where they are exact. A value that is not defined is null.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posbias.errors import InvalidValueError, nearest
from posbias.estimate import Estimate

Quantity = dict[str, Any]
Quantities = dict[str, Quantity]
Lengths = Mapping[str, int | None]
"""What quantities there are before anything is computed: name → how many numbers it lists, `SINGLE` for one that
is not a list, None for a list whose length is not known yet."""
SINGLE = -1
_TINY = 1e-9
"""Errors below this are not written out."""
_PLACED = re.compile(r"(?P<name>\w+)(\.(?P<index>-?\d+))?")


@dataclass(frozen=True)
class Number:
    """One number of a cell: its value (NaN where it is not defined), standard error and draws.

    `se` is NaN and `n` 0 for an exact number; with `n` > 0 and `se` NaN the error is not known.
    """

    value: float
    se: float = math.nan
    n: int = 0

    @property
    def exact(self) -> bool:
        """Whether nothing was drawn for it."""
        return self.n == 0

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "–"
        if 0 < self.se < _TINY:
            return f"{self.value:.3g} ± {self.se:.1g}" if abs(self.value) < _TINY else f"{self.value:.8g}"
        return str(Estimate(self.value, self.se, max(1, self.n)))


def quantity(value: Any, se: Any = None, n: int | None = None) -> Quantity:
    """A quantity from a number or an array of them; what is not finite becomes null."""
    return {"value": _plain(value), "se": None if se is None else _plain(se), "n": n}


def estimated(estimates: Estimate | Sequence[Estimate]) -> Quantity:
    """A quantity from an estimate, or a list from several of equally many draws."""
    if isinstance(estimates, Estimate):
        return quantity(estimates.value, estimates.se, estimates.n)
    return quantity([one.value for one in estimates], [one.se for one in estimates], estimates[0].n)


def numbers_of(given: Quantity) -> list[Number]:
    """A quantity's numbers, one for a quantity that is no list."""
    values, errors = given["value"], given["se"]
    if not isinstance(values, list):
        values, errors = [values], [errors]
    errors = errors if isinstance(errors, list) else [errors] * len(values)
    count = given["n"] or 0
    return [Number(_number(value), _number(se), count) for value, se in zip(values, errors, strict=True)]


def number_at(quantities: Quantities, place: str) -> Number:
    """The number called `name` or `name.index` (from 0; negative from the end).

    Raises `InvalidValueError` for a name or index that is not there (naming the nearest), and for a list without
    an index.
    """
    lengths = {
        name: len(one["value"]) if isinstance(one["value"], list) else SINGLE
        for name, one in quantities.items()
    }
    name, index = check_place(lengths, place)
    return numbers_of(quantities[name])[0 if index is None else index]


def check_place(lengths: Lengths, place: str) -> tuple[str, int | None]:
    """A quantity's name and index from 'name' or 'name.index'. Raises as `number_at`."""
    found = _PLACED.fullmatch(place)
    name = found["name"] if found else place
    if found is None or name not in lengths:
        raise InvalidValueError(
            f"quantity: {place!r} given, one of {', '.join(lengths)} needed{nearest(name, lengths)}"
        )
    length, index = lengths[name], found["index"]
    if length == SINGLE:
        if index is not None:
            raise InvalidValueError(
                f"quantity: {place!r} given, {name!r} without an index needed, one number"
            )
        return name, None
    if index is None:
        raise InvalidValueError(f"quantity: {place!r} given, an index needed, it is a list: '{name}.0'")
    if length is not None and not -length <= int(index) < length:
        raise InvalidValueError(f"quantity: {place!r} given, an index from {-length} to {length - 1} needed")
    return name, int(index)


def _number(given: float | None) -> float:
    return math.nan if given is None else float(given)


def _plain(given: Any) -> Any:
    if hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, list | tuple):
        return [_plain(one) for one in given]
    return float(given) if math.isfinite(given) else None
