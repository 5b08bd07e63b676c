"""A base and the lists of a sweep become every combination of them.

    base  = {"network": {"residual": True}}
    sweep = {"network.depth": [2, 4], "network": {"mask": ["causal", "full"]}}

Every key under a sweep is the path of a key of the base, steps joined by dots (or tables in tables, as TOML reads
keys with dots), and a list of what to put there. The combinations are the product of the lists, the last path
running fastest. A path that leads through a list, such as `layers.heads`, means that key of its every entry.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from posbias.core.arguments import shortened
from posbias.core.errors import InputFileError, InvalidValueError, PosbiasError, nearest
from posbias.core.input_files import read_mapping

T = TypeVar("T")
Chosen = dict[str, Any]
"""What a combination puts at which path."""

MOST = 10_000
"""The most combinations that one sweep may ask for."""
_TWICE = ("Cannot overwrite a value", "Cannot declare", "Cannot mutate immutable namespace")


def expand(
    base: Mapping[str, Any], sweep: Any, known: Collection[str] | None = None
) -> list[tuple[Chosen, dict[str, Any]]]:
    """Every combination of a sweep's lists: what it chooses, and the base with that put in.

    `known` are the paths that exist (`paths`); None: any. An empty sweep is one combination that chooses nothing.
    Raises `InvalidValueError` for an unknown path (naming the nearest right one), a path given twice, inside
    another or in the base too, something other than a list, an empty one, more than `MOST` combinations.
    """
    axes = _axes(sweep, base, known)
    count = math.prod(len(values) for values in axes.values())
    if count > MOST:
        raise InvalidValueError(f"sweep: {count:,} combinations given, at most {MOST:,} needed")
    combinations = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    return [(chosen, with_values(base, chosen)) for chosen in combinations]


def build(
    combinations: Collection[tuple[Chosen, dict[str, Any]]],
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
            raise InvalidValueError(
                f"{where}: {words} is the same {noun} as {seen[key(one)]}, each once needed"
            )
        seen[key(one)] = words
        made.append((chosen, one))
    return made


def words_of(chosen: Mapping[str, Any]) -> str:
    """'network.depth = 2, iterations = 7'."""
    return ", ".join(f"{path} = {given!r}" for path, given in chosen.items())


def read_swept(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a TOML, YAML or JSON file that may hold a sweep.

    Raises as `read_mapping`; `InputFileError` for a TOML key that is given twice says what that is in a sweep.
    """
    try:
        return read_mapping(path)
    except InputFileError as error:
        place = str(error).rpartition("(")[2].rstrip(")")
        if any(word in str(error) for word in _TWICE):
            raise InputFileError(
                f"{path}: not valid TOML: a key is given twice, or as a table and as a value ({place}); in a "
                "sweep that would be two axes on one path, one needed"
            ) from None
        raise


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
            raise InvalidValueError(f"{step}: {shortened(table)} given, a table needed")
    place[step] = [dict(table) for table in inner] if isinstance(inner, list) else dict(inner)
    for table in place[step] if isinstance(inner, list) else [place[step]]:
        _put(table, rest, given)


def _classes(hint: Any) -> list[type]:
    """The value classes that a type hint admits."""
    if get_origin(hint) is None:
        return [hint] if dataclasses.is_dataclass(hint) and isinstance(hint, type) else []
    return [cls for inner in get_args(hint) for cls in _classes(inner)]


def _axes(sweep: Any, base: Mapping[str, Any], known: Collection[str] | None) -> dict[str, list[Any]]:
    """The lists of a sweep by path, checked."""
    if not isinstance(sweep, Mapping):
        raise InvalidValueError(f"sweep: {shortened(sweep)} given, a table of paths with lists needed")
    axes: dict[str, list[Any]] = {}
    for path, values in leaves(sweep):
        if known is not None and path not in known:
            raise InvalidValueError(f"sweep: unknown path {path!r}{nearest(path, known)}")
        for other in axes:
            if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}."):
                raise InvalidValueError(
                    f"sweep: {other!r} and {shortened(path)} given, one axis on one path needed"
                    if other != path
                    else f"sweep: path {path!r} is given twice, one axis on one path needed"
                )
        if not isinstance(values, list | tuple):
            raise InvalidValueError(f"sweep.{path}: {shortened(values)} given, a list needed")
        if not values:
            raise InvalidValueError(f"sweep.{path}: an empty list given, at least one value needed")
        if values_at(base, path):
            raise InvalidValueError(f"{path}: given by itself and in sweep, one of the two needed")
        axes[path] = list(values)
    return axes
