"""What a cell of a study finds, as quantities: numbers and lists with standard errors, and how one is named.

A quantity is a number or a list of numbers with standard errors, in JSON's terms:

    {"lost": {"value": 0.0, "se": null, "n": null},                              a number, exact
     "recency_probability": {"value": [0.5, 0.63], "se": [1e-4, 2e-4], "n": 1000000}}    a list, by layer

`se` is null where nothing is drawn, or where one draw says nothing about its error; `n` is the number of
independent draws, null where the numbers are exact. A value that is not defined is null.
"""

import math
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from posbias.core.errors import nearest, shortened, wrong
from posbias.profiles.estimate import Estimate

if TYPE_CHECKING:
    from posbias.profiles.profile import Profile

Quantity = dict[str, Any]
Quantities = dict[str, Quantity]
_PLACE = re.compile(r"(?P<name>\w+)(\.(?P<index>-?\d+))?")
_SUMMARY = ("first_mass", "last_mass", "trough", "trough_depth", "effective_range", "entropy")
_RATIOS = ("ratio_first", "ratio_middle", "ratio_last")
SHAPE = (*_SUMMARY, *_RATIOS, "favours_first", "favours_last")
"""The statistics of a profile (`Summary`) that are quantities, and whether an end is favoured."""


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
    values = values if isinstance(values, list) else [values]
    errors = errors if isinstance(errors, list) else [errors] * len(values)
    return [
        Estimate(_number(value), 0.0 if draws is None else _number(se), draws)
        for value, se in zip(values, errors, strict=True)
    ]


def estimate_at(quantities: Quantities, place: str) -> Estimate:
    """The number called `name`, or `name.index` of a list (from 0; negative from the end).

    Raises `InvalidValueError` as `check_place`, and for an index that is missing, too many, or out of range.
    """
    name, index = check_place(quantities, place)
    held, expected = quantities[name]["value"], ""
    if not isinstance(held, list):
        expected = "" if index is None else f"{name} without an index, as it is one number"
    elif index is None or not -len(held) <= index < len(held):
        expected = f"an index from {-len(held)} to {len(held) - 1}, such as {name}.0"
    if expected:
        raise wrong("quantity", f"{expected}", place)
    return estimates_of(quantities[name])[index or 0]


def check_place(names: Collection[str], place: str) -> tuple[str, int | None]:
    """A quantity's name, one of `names`, and index from 'name' or 'name.index'. Raises `InvalidValueError`."""
    found = _PLACE.fullmatch(place)
    name = found["name"] if found else place
    if found is None or name not in names:
        raise wrong("quantity", f"one of {', '.join(names)}", got=f"{shortened(place)}{nearest(name, names)}")
    return name, None if found["index"] is None else int(found["index"])


def _number(given: float | None) -> float:
    return math.nan if given is None else float(given)


def _plain(given: Any) -> Any:
    if hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, list | tuple):
        return [_plain(one) for one in given]
    return float(given) if math.isfinite(given) else None


def shape(profile: "Profile") -> Quantities:
    """The statistics of a profile, as exact numbers."""
    summary = profile.summary
    numbers = {name: getattr(summary, name) for name in _SUMMARY}
    numbers |= dict(zip(_RATIOS, summary.ratio, strict=True))
    for end, alone in (("first", "primacy"), ("last", "recency")):
        numbers[f"favours_{end}"] = math.nan if summary.verdict is None else summary.verdict in ("U", alone)
    return {name: quantity(number) for name, number in numbers.items()}


def ends(profile: "Profile", prompts: int) -> Quantities:
    """What a measured profile's ends and trough hold, with their errors over prompts."""
    count, tokens = profile.summary.ends, profile.tokens
    first, last, trough = profile.share(0, count), profile.share(tokens - count, tokens), profile.trough_share
    scale = tokens / count
    return {
        "first_mass": estimated(first),
        "last_mass": estimated(last),
        "ratio_first": quantity(first.value * scale, first.se * scale, prompts),
        "ratio_last": quantity(last.value * scale, last.se * scale, prompts),
        "trough_depth": quantity(1 - trough.value * scale, trough.se * scale, prompts),
    }
