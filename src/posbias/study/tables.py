"""What a study's cells found, as rows for a table or a file, and as lines of a figure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posbias.core.errors import InvalidValueError
from posbias.core.formats import dump_json
from posbias.core.spec import words_of
from posbias.profiles.estimate import Estimate
from posbias.study.running import Outcome, combined
from posbias.study.verbs import SINGLE, check_place, estimate_at, estimates_of

WIDEST = 8
"""The most quantities that a table of cells shows, apart from those that claims are about."""


@dataclass(frozen=True)
class Line:
    """One line of a figure: its label, and value and half of its 95 % interval (Student's t) at every x."""

    label: str
    x: tuple[float, ...]
    value: tuple[float, ...]
    reach: tuple[float, ...]


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    """One row per finished cell, quantity and index: fingerprint, kind, what varies, seed, quantity, index, value,
    se, n. A value that is not defined is None, as are `se` and `n` of an exact one and `index` of what is no list.
    """
    made = []
    for cell, record in zip(outcome.study.cells(), outcome.records, strict=True):
        if record is None:
            continue
        about = {"fingerprint": cell.fingerprint, "kind": cell.spec.kind}
        about |= {path: cell.chosen.get(path) for path in outcome.study.axes} | {"seed": cell.seed}
        for name, quantity in record.result["quantities"].items():
            listed = isinstance(quantity["value"], list)
            for index, number in enumerate(estimates_of(quantity)):
                place = {"quantity": name, "index": index if listed else None}
                se = None if number.exact or not math.isfinite(number.se) else number.se
                found = {"value": number.value if math.isfinite(number.value) else None, "se": se}
                made.append(about | place | found | {"n": quantity["n"]})
    return made


def csv_text(outcome: Outcome) -> str:
    """`rows` as CSV with a head; numbers in full, lists and tables as JSON, what is missing empty."""
    import pandas as pd

    columns = ["fingerprint", "kind", *outcome.study.axes, *("seed", "quantity", "index", "value", "se", "n")]
    plain = [
        {
            key: dump_json(held) if isinstance(held, list | tuple | Mapping) else held
            for key, held in row.items()
        }
        for row in rows(outcome)
    ]
    table = pd.DataFrame(plain, columns=pd.Index(columns), dtype=object)
    return table.to_csv(index=False, lineterminator="\n")


def columns(outcome: Outcome, wanted: Sequence[str] = ()) -> list[str]:
    """The quantities that a table shows: `wanted`, or those of claims and the verbs' main ones.

    Raises `InvalidValueError` for one of `wanted` that no cell has.
    """
    verbs = [verb for _, verb in outcome.study.combinations]
    if wanted:
        for place in wanted:
            _check(place, verbs)
        return list(wanted)
    found = []
    for verb in verbs:
        for name in verb.main:
            length = verb.lengths[name]
            found += [name] if length == SINGLE else [f"{name}.{index}" for index in range(length or 0)]
    shown = list(dict.fromkeys(found))[:WIDEST]
    named = dict.fromkeys(claim.quantity for claim in outcome.study.claims)
    return [one for one in named if one not in shown] + shown


def summary(outcome: Outcome, wanted: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """A table's head and rows: a row per combination, its numbers over seeds with their errors."""
    shown = columns(outcome, wanted)
    axes, table = outcome.study.axes, []
    for place, (chosen, _) in enumerate(outcome.study.combinations):
        records = outcome.seeds(place)
        done = sum(record is not None for record in records)
        numbers = [_combined(outcome, place, name) for name in shown]
        cells = ["–" if number is None else str(number) for number in numbers]
        table.append([*(_word(chosen.get(path)) for path in axes), f"{done} of {len(records)}", *cells])
    return [*axes, "cells", *shown], table


def lines(outcome: Outcome, quantity: str) -> tuple[str, list[Line]]:
    """The first axis whose values are numbers, and a line over it for each combination of the others.

    Raises `InvalidValueError` for a quantity that no cell has, a study without such an axis, and one without
    finished cells.
    """
    study = outcome.study
    _check(quantity, [verb for _, verb in study.combinations])
    axis = next((path for path in study.axes if _numeric(outcome, path)), None)
    if axis is None:
        raise InvalidValueError("plot: expected an axis of numbers to draw over, got none")
    points: dict[str, list[tuple[float, Estimate]]] = {}
    for place, (chosen, _) in enumerate(study.combinations):
        number = _combined(outcome, place, quantity)
        if number is None or not math.isfinite(number.value):
            continue
        label = words_of({path: given for path, given in chosen.items() if path != axis})
        points.setdefault(label, []).append((float(chosen[axis]), number))
    if not points:
        raise InvalidValueError(f"plot: expected a finished cell that has {quantity}, got none")
    made = []
    for label, those in points.items():
        x, numbers = zip(*sorted(those, key=lambda one: one[0]), strict=True)
        reach = tuple(0.0 if math.isnan(one.se) else one.interval[1] - one.value for one in numbers)
        made.append(Line(label, x, tuple(one.value for one in numbers), reach))
    return axis, made


def _check(place: str, verbs: Sequence[Any]) -> None:
    """Raise `InvalidValueError` for a quantity that none of the verbs finds."""
    failures = []
    for verb in verbs:
        try:
            check_place(verb.lengths, place)
            return
        except InvalidValueError as error:
            failures.append(error)
    raise failures[0]


def _combined(outcome: Outcome, combination: int, quantity: str) -> Estimate | None:
    """A combination's number over its finished cells."""
    found = []
    for record in outcome.seeds(combination):
        if record is not None:
            try:
                found.append(estimate_at(record.result["quantities"], quantity))
            except InvalidValueError:
                return None
    return combined(found) if found else None


def _numeric(outcome: Outcome, path: str) -> bool:
    given = [chosen.get(path) for chosen, _ in outcome.study.combinations]
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in given)


def _word(given: Any) -> str:
    if isinstance(given, Mapping):
        return str(given.get("kind", "")) or dump_json(given)
    return "–" if given is None else str(given)
