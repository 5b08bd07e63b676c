"""What a cell found: named quantities, each a number or a list of numbers, with their standard errors.

    {"lost": {"value": 0.0, "se": null, "n": null},                              a number, exact
     "recency_probability": {"value": [0.5, 0.63], "se": [1e-4, 2e-4], "n": 1000000}}    a list, by layer

`se` is null where nothing is drawn, or where one draw says nothing about its error; `n` is how many independent
draws stand behind the numbers, null where they are exact. A value that is not defined is null.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest
from posbias.profiles.estimate import Estimate

Quantity = dict[str, Any]
Quantities = dict[str, Quantity]
Lengths = Mapping[str, int | None]
"""What quantities there are before anything is computed: name → how many numbers it lists, `SINGLE` for one that
is not a list, None for a list whose length is not known yet."""
SINGLE = -1
_PLACED = re.compile(r"(?P<name>\w+)(\.(?P<index>-?\d+))?")


def quantity(value: Any, se: Any = None, n: int | None = None) -> Quantity:
    """A quantity from a number or an array of them; what is not finite becomes null."""
    return {"value": _plain(value), "se": None if se is None else _plain(se), "n": n}


def estimated(estimates: Estimate | Sequence[Estimate]) -> Quantity:
    """A quantity from an estimate, or a list from several of equally many draws."""
    if isinstance(estimates, Estimate):
        return quantity(estimates.value, estimates.se, estimates.n)
    return quantity([one.value for one in estimates], [one.se for one in estimates], estimates[0].n)


def estimates_of(held: Quantity) -> list[Estimate]:
    """A quantity's numbers, one for a quantity that is no list; a value that is not defined is NaN."""
    values, errors, draws = held["value"], held["se"], held["n"] or None
    if not isinstance(values, list):
        values, errors = [values], [errors]
    errors = errors if isinstance(errors, list) else [errors] * len(values)
    return [
        Estimate(_number(value), 0.0 if draws is None else _number(se), draws)
        for value, se in zip(values, errors, strict=True)
    ]


def estimate_at(quantities: Quantities, place: str) -> Estimate:
    """The number called `name` or `name.index` (from 0; negative from the end).

    Raises `InvalidValueError` for a name or index that is not there (naming the nearest), and for a list without
    an index.
    """
    lengths = {
        name: len(one["value"]) if isinstance(one["value"], list) else SINGLE
        for name, one in quantities.items()
    }
    name, index = check_place(lengths, place)
    return estimates_of(quantities[name])[0 if index is None else index]


def check_place(lengths: Lengths, place: str) -> tuple[str, int | None]:
    """A quantity's name and index from 'name' or 'name.index'. Raises as `number_at`."""
    found = _PLACED.fullmatch(place)
    name = found["name"] if found else place
    if found is None or name not in lengths:
        raise InvalidValueError(
            f"quantity: {shortened(place)} given, one of {', '.join(lengths)} needed{nearest(name, lengths)}"
        )
    length, index = lengths[name], found["index"]
    if length == SINGLE:
        if index is not None:
            raise InvalidValueError(
                f"quantity: {shortened(place)} given, {name!r} without an index needed, one number"
            )
        return name, None
    if index is None:
        raise InvalidValueError(
            f"quantity: {shortened(place)} given, an index needed, it is a list: '{name}.0'"
        )
    if length is not None and not -length <= int(index) < length:
        raise InvalidValueError(
            f"quantity: {shortened(place)} given, an index from {-length} to {length - 1} needed"
        )
    return name, int(index)


def _number(given: float | None) -> float:
    return math.nan if given is None else float(given)


def _plain(given: Any) -> Any:
    if hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, list | tuple):
        return [_plain(one) for one in given]
    return float(given) if math.isfinite(given) else None
