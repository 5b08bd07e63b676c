"""What a study's cells found, as rows for a table or a file, and as lines of a figure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posbias.core.errors import InvalidValueError, is_number, wrong
from posbias.core.formats import dump_json
from posbias.core.sweeps import words_of
from posbias.profiles.estimate import Estimate
from posbias.study.quantities import check_place, estimate_at, estimates_of
from posbias.study.running import Outcome, combined

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
    for cell, record in zip(outcome.study.all_cells, outcome.records, strict=True):
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
    known = dict.fromkeys(name for _, verb in outcome.study.combinations for name in verb.quantities)
    for place in wanted:
        check_place(known, place)
    if wanted:
        return list(wanted)
    named, shown = dict.fromkeys(claim.quantity for claim in outcome.study.claims), []
    for place, (_, verb) in enumerate(outcome.study.combinations):
        found = next((one.result["quantities"] for one in outcome.seeds(place) if one is not None), {})
        for name in verb.main:
            held = found[name]["value"] if name in found else None
            shown += [f"{name}.{index}" for index in range(len(held))] if isinstance(held, list) else [name]
    return [*named, *[name for name in dict.fromkeys(shown) if name not in named][:WIDEST]]


def summary(outcome: Outcome, wanted: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """A table's head and rows: a row per combination, its numbers over seeds with their errors."""
    shown, axes = columns(outcome, wanted), outcome.study.axes
    numbers = [over_seeds(outcome, name) for name in shown]
    table = []
    for place, (chosen, _) in enumerate(outcome.study.combinations):
        records = outcome.seeds(place)
        done = sum(record is not None for record in records)
        cells = ["–" if column[place] is None else str(column[place]) for column in numbers]
        table.append([*(_word(chosen.get(path)) for path in axes), f"{done} of {len(records)}", *cells])
    return [*axes, "cells", *shown], table


def lines(outcome: Outcome, quantity: str) -> tuple[str, list[Line]]:
    """The first axis whose values are numbers, and a line over it for each combination of the others.

    Raises `InvalidValueError` for a quantity that no cell has, a study without such an axis, and one without
    finished cells.
    """
    (quantity,) = columns(outcome, [quantity])
    combinations = outcome.study.combinations

    def is_numeric(path: str) -> bool:
        return all(is_number(chosen.get(path)) for chosen, _ in combinations)

    axis = next(filter(is_numeric, outcome.study.axes), None)
    if axis is None:
        raise wrong("plot", "an axis of numbers to draw over", got="none")
    points: dict[str, list[tuple[float, Estimate]]] = {}
    for (chosen, _), number in zip(combinations, over_seeds(outcome, quantity), strict=True):
        if number is not None and math.isfinite(number.value):
            label = words_of({path: given for path, given in chosen.items() if path != axis})
            points.setdefault(label, []).append((float(chosen[axis]), number))
    if not points:
        raise wrong("plot", f"a finished cell that has {quantity}", got="none")
    made = []
    for label, those in points.items():
        x, numbers = zip(*sorted(those, key=lambda one: one[0]), strict=True)
        reach = tuple(0.0 if math.isnan(one.se) else one.interval[1] - one.value for one in numbers)
        made.append(Line(label, x, tuple(one.value for one in numbers), reach))
    return axis, made


def over_seeds(outcome: Outcome, quantity: str) -> list[Estimate | None]:
    """A quantity of every combination over its finished cells; None for one that has none."""
    found: list[Estimate | None] = []
    for place in range(len(outcome.study.combinations)):
        done = [one.result["quantities"] for one in outcome.seeds(place) if one is not None]
        try:
            found.append(combined([estimate_at(one, quantity) for one in done]) if done else None)
        except InvalidValueError:
            found.append(None)
    return found


def _word(given: Any) -> str:
    if isinstance(given, Mapping):
        return str(given.get("kind", "")) or dump_json(given)
    return "–" if given is None else str(given)
