"""A spec file becomes experiments, and experiments become cells.

    iterations = 4000
    [network]
    residual = true
    [sweep]
    network.depth = [2, 4]
    network.positional = ["none", "rope", "decay"]

Every key under `[sweep]` is the path of a key of `Experiment` and a list of what to put there; the experiments
are all combinations, the last key running fastest. Words may stand for masks and encodings (`spelling`).
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from posbias.errors import InvalidValueError, PosbiasError, nearest
from posbias.spec import decode, read_mapping
from posbias.train.cells import run_cells
from posbias.train.specification import Experiment
from posbias.train.spelling import plain, without_words

__all__ = ["MOST", "expand", "paths", "read_experiments", "run_cells"]

MOST = 10_000
"""The most experiments that one sweep may ask for."""


def read_experiments(path: str | os.PathLike[str]) -> tuple[list[Experiment], bool]:
    """The experiments of a TOML, YAML or JSON file, and whether it is a sweep.

    Raises `InputFileError` for a file that cannot be read, `InvalidValueError` naming file and key for the rest.
    """
    data = read_mapping(path)
    try:
        return expand(data), "sweep" in data
    except PosbiasError as error:
        raise InvalidValueError(f"{path}: {error}") from None


def expand(data: Mapping[str, Any]) -> list[Experiment]:
    """All combinations of a spec's `sweep`, or the one experiment of a spec without.

    Raises `InvalidValueError` for an unknown path (naming the nearest right one), a path given twice, something
    other than a list, an empty one, two equal experiments, more than `MOST`, or values that are wrong.
    """
    base = without_words({key: given for key, given in data.items() if key != "sweep"})
    axes = _axes(data.get("sweep", {}), base)
    count = math.prod(len(values) for values in axes.values())
    if count > MOST:
        raise InvalidValueError(f"sweep: {count:,} combinations given, at most {MOST:,} needed")
    made: dict[Experiment, str] = {}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        words = ", ".join(f"{path} = {given!r}" for path, given in chosen.items())
        try:
            experiment = decode(Experiment, _with(base, chosen))
        except PosbiasError as error:
            raise InvalidValueError(f"{error} (where {words})" if words else str(error)) from None
        if experiment in made:
            raise InvalidValueError(
                f"sweep: {words} is the same experiment as {made[experiment]}, each once needed"
            )
        made[experiment] = words
    return list(made)


def paths(cls: type = Experiment, before: str = "") -> list[str]:
    """The keys of a value class as dotted paths, with those of nested values and of a union's variants."""
    hints = get_type_hints(cls)
    found: list[str] = []
    for field in dataclasses.fields(cls):
        found.append(before + field.name)
        for inner in _classes(hints[field.name]):
            found += paths(inner, f"{before}{field.name}.")
    return list(dict.fromkeys(found))


def _classes(hint: Any) -> list[type]:
    """The value classes that a type hint admits."""
    if get_origin(hint) is None:
        return [hint] if dataclasses.is_dataclass(hint) and isinstance(hint, type) else []
    return [cls for inner in get_args(hint) for cls in _classes(inner)]


def _axes(sweep: Any, base: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The lists of a sweep by path, checked."""
    if not isinstance(sweep, Mapping):
        raise InvalidValueError(f"sweep: {sweep!r} given, a table of paths with lists needed")
    known = paths()
    axes: dict[str, list[Any]] = {}
    for path, values in _leaves(sweep):
        if path not in known:
            raise InvalidValueError(f"sweep: unknown path {path!r}{nearest(path, known)}")
        for other in axes:
            if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}."):
                raise InvalidValueError(
                    f"sweep: {other!r} and {path!r} given, one axis on one path needed"
                    if other != path
                    else f"sweep: path {path!r} is given twice"
                )
        if not isinstance(values, list):
            raise InvalidValueError(f"sweep.{path}: {values!r} given, a list needed")
        if not values:
            raise InvalidValueError(f"sweep.{path}: an empty list given, at least one value needed")
        if _holds(base, path.split(".")):
            raise InvalidValueError(f"{path}: given by itself and in sweep, one of the two needed")
        axes[path] = values
    return axes


def _leaves(sweep: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Paths and values; a table in a table (TOML's keys with dots) is one path with them."""
    found = []
    for key, given in sweep.items():
        if isinstance(given, Mapping) and given:
            found += _leaves(given, f"{before}{key}.")
        else:
            found.append((f"{before}{key}", given))
    return found


def _holds(data: Any, steps: list[str]) -> bool:
    for step in steps:
        if not isinstance(data, Mapping) or step not in data:
            return False
        data = data[step]
    return True


def _with(base: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `chosen` at their paths, words made plain."""
    made = dict(base)
    for path, given in chosen.items():
        *tables, key = path.split(".")
        place = made
        for table in tables:
            inner = place.get(table, {})
            if not isinstance(inner, Mapping):
                raise InvalidValueError(f"{table}: {inner!r} given, a table needed")
            place[table] = dict(inner)
            place = place[table]
        place[key] = given
    return plain(made)
