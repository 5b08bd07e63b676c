"""Sweeps: every combination of lists of values, put into a base at paths such as `network.depth`.

expand({"depth": 2}, {"network.heads": [1, 4]})    # [({"network.heads": 1}, {"depth": 2, "network": {…}}), …]
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from posbias.core.errors import InvalidValueError, PosbiasError, nearest, shortened, wrong

T = TypeVar("T")
Chosen = dict[str, Any]
"""What a combination puts at which path."""
Combinations = list[tuple[Chosen, dict[str, Any]]]

MOST = 10_000
"""The most combinations that one sweep may ask for."""


def expand(base: Mapping[str, Any], sweep: Any, known: Collection[str] | None = None) -> Combinations:
    """Every combination of a sweep's lists: what it chooses, and the base with that put in.

    `known` are the paths that exist (`paths`); None: any. An empty sweep is one combination that chooses nothing.
    Raises `InvalidValueError` for an unknown path (naming the nearest right one), a path given twice or inside
    another, something other than a list, an empty one, more than `MOST` combinations.
    """
    axes = _axes(sweep, known)
    count = math.prod(len(values) for values in axes.values())
    if count > MOST:
        raise wrong("sweep", f"at most {MOST:,} combinations", got=f"{count:,}")
    combinations = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    return [(chosen, with_values(base, chosen)) for chosen in combinations]


def build(
    combinations: Combinations,
    make: Callable[[dict[str, Any]], T],
    noun: str,
    key: Callable[[T], Hashable],
    where: str = "sweep",
) -> list[tuple[Chosen, T]]:
    """What `make` makes of every combination, each with what it chooses.

    Raises `InvalidValueError` with what `make` raises and the combination, and for two of an equal `key`.
    """
    made: list[tuple[Chosen, T]] = []
    seen: dict[Hashable, str] = {}
    for chosen, mapping in combinations:
        words = words_of(chosen)
        try:
            one = make(mapping)
        except PosbiasError as error:
            raise InvalidValueError(f"{error} (where {words})" if words else str(error)) from None
        if key(one) in seen:
            raise wrong(where, f"each {noun} once", got=f"the same for {words} and {seen[key(one)]}")
        seen[key(one)] = words
        made.append((chosen, one))
    return made


def words_of(chosen: Mapping[str, Any]) -> str:
    """'network.depth = 2, iterations = 7'."""
    return ", ".join(f"{path} = {given!r}" for path, given in chosen.items())


def paths(cls: type, before: str = "") -> list[str]:
    """The keys of a value class as dotted paths, with those of nested values and of a union's variants."""
    hints = get_type_hints(cls)
    found: list[str] = []
    for field in dataclasses.fields(cls):
        found.append(before + field.name)
        for inner in _classes(hints[field.name]):
            found += paths(inner, f"{before}{field.name}.")
    return list(dict.fromkeys(found))


def leaves(table: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Paths and values; a table in a table (TOML's keys with dots) is one path with them."""
    found = []
    for key, given in table.items():
        if isinstance(given, Mapping) and given:
            found += leaves(given, f"{before}{key}.")
        else:
            found.append((f"{before}{key}", given))
    return found


def with_values(base: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `base` with the values of `chosen` at their paths, tables made where there are none.

    Raises `InvalidValueError` where a path leads through what is no table.
    """
    made = dict(base)
    for path, given in chosen.items():
        _put(made, path.split("."), given)
    return made


def values_at(data: Any, path: str) -> list[Any]:
    """What stands at a path: nothing, one value, or one of each entry of the lists it leads through."""
    found = [data]
    for step in path.split("."):
        tables = [entry for one in found for entry in (one if isinstance(one, list | tuple) else [one])]
        found = [one[step] for one in tables if isinstance(one, Mapping) and step in one]
    return found


def _put(place: dict[str, Any], steps: list[str], given: Any) -> None:
    step, *rest = steps
    if not rest:
        place[step] = given
        return
    inner = place.get(step, {})
    for table in inner if isinstance(inner, list) else [inner]:
        if not isinstance(table, Mapping):
            raise wrong(step, "a table", table)
    place[step] = [dict(table) for table in inner] if isinstance(inner, list) else dict(inner)
    for table in place[step] if isinstance(inner, list) else [place[step]]:
        _put(table, rest, given)


def _classes(hint: Any) -> list[type]:
    """The value classes that a type hint admits."""
    if get_origin(hint) is None:
        return [hint] if dataclasses.is_dataclass(hint) and isinstance(hint, type) else []
    return [cls for inner in get_args(hint) for cls in _classes(inner)]


def _axes(sweep: Any, known: Collection[str] | None) -> dict[str, list[Any]]:
    """The lists of a sweep by path, checked."""
    if not isinstance(sweep, Mapping):
        raise wrong("sweep", "a table of paths with lists", sweep)
    axes: dict[str, list[Any]] = {}
    for path, values in leaves(sweep):
        if known is not None and path not in known:
            raise InvalidValueError(f"sweep: unknown path {path!r}{nearest(path, known)}")
        for other in axes:
            if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}."):
                both = f"{path!r} twice" if other == path else f"{other!r} and {shortened(path)}"
                raise wrong("sweep", "one axis on one path", got=both)
        if not isinstance(values, list | tuple):
            raise wrong(f"sweep.{path}", "a list", values)
        if not values:
            raise wrong(f"sweep.{path}", "at least one value", got="an empty list")
        axes[path] = list(values)
    return axes
