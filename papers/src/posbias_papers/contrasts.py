"""Claims as rows of a paper's `claims.csv`, put to the tidy table of a figure.

A figure's table has a row for each combination of settings, which are the levels of its index, and, where it was
repeated, for each `network` or `prompt` (`UNITS`). A quantity is a column, or an expression of columns; a column
that is an estimate has its standard error in COLUMN_se, its number of draws in `n` (NaN: none are counted), and
where it is NaN may say in COLUMN_flaw why it decides nothing. A row of `claims.csv` says
which rows are meant (`where`, a query of pandas), which `quantity`, by which `contrast`, and the `test`; several
quantities stand with " ; " between them, each followed by its own test if that is another.

    contrast                                   a piece of evidence is
    each                                       the quantity itself
    depth: 6 - 2                               its value at depth 6 less that at depth 2, all else equal
    depth: next - this                         from each depth to the next
    positional: none - each                    that without encoding less that with each other one
    depth: next - this; positional: each - each    how far such differences differ between two encodings
    turns depth                                the surest rise, and the surest fall, along one series
    any CONTRAST                               the surest of all, Bonferroni over their number
    share CONTRAST                             the share of all that pass the test

    test                      passes
    > 0 by 0.02               surely above 0 (fails: surely not by 0.02 above)
    < 0.5                     surely below
    = 0.5 within 0.01         surely within
    != 0 by 0.02              surely on either side
    printed 0.5015            agrees with a printed number, whose standard error is the column `printed_se`
"""

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.core.errors import InputFileError
from posbias.profiles.claims import Above, Below, Near, Test
from posbias.profiles.estimate import Estimate
from posbias_papers import read_rows
from posbias_papers.claims import ABOUT, Claim, Evidence, Printed

if TYPE_CHECKING:
    import pandas as pd

MOST = Above(0.5, least=0.0)
"""That a share is more than half."""
UNITS = ("network", "prompt")
FIELDS = ("id", *ABOUT, "sentence", "figure", "quantity", "where", "contrast", "test")
"""The columns of claims.csv; `explanation`, of claims that do not hold, may follow."""
Function = Callable[["pd.DataFrame"], Iterable[Evidence]]
"""What a contrast cannot say: evidence from a figure's table."""
Setting = tuple[Any, ...]
RELATIVE = {"none": "no encoding", "decay": "decay mask", "rope": "RoPE"}
"""Encodings of networks whose depth varies, and what panels and evidence call them."""
_WORDS = {
    r"size_([a-z]+)_([a-z]+)": r"|\1 − \2|",
    r"\b(first|middle)_(middle|last)\b": r"\1 − \2",
    **{f"positional {word}": said for word, said in RELATIVE.items()},
    r"residual ((True|False)( less (True|False))?)": r"\1 residual connections",
    r"\bTrue\b": "with",
    r"\bFalse\b": "without",
    r" - ": " − ",
    r"_": " ",
}
"""How settings and columns of a table are said, the first before the next."""


def read_claims(path: Path, functions: Mapping[str, Function] | None = None) -> dict[str, list[Claim]]:
    """The claims of a paper by figure; a quantity is of the figure's table.

    `functions` are those that a row names in the column `quantity`, with parentheses. Raises `InputFileError` for
    a row that cannot be read, naming it.
    """
    found: dict[str, list[Claim]] = {}
    for row in read_rows(path):
        try:
            if tuple(row)[: len(FIELDS)] != FIELDS or None in row:
                raise ValueError(f"columns: expected {', '.join(FIELDS)}, got {', '.join(map(str, row))}")
            found.setdefault(row["figure"], []).append(_claim(row, functions or {}))
        except (KeyError, ValueError) as error:
            raise InputFileError(f"{path}: {row.get('id')}: {error}") from None
    return found


def _claim(row: Mapping[str, str], functions: Mapping[str, Function]) -> Claim:
    about: dict[str, Any] = {name: row[name] for name in FIELDS[: FIELDS.index("figure")]}
    if row["quantity"].endswith("()"):
        of = functions[row["quantity"].removesuffix("()")]
    else:
        how = {"quantity": row["quantity"], "contrast": row["contrast"] or "each", "test": row["test"]}
        of = partial(contrasted, **how)
    quantity, test = Quantity(row["where"], of), read_test(row["test"])
    return Claim(**about, quantity=quantity, test=test, explanation=row.get("explanation", ""))


# --- tests -------------------------------------------------------------------------------------------------

_NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"
_TEST = re.compile(rf"(>|<|=|!=|printed) {_NUMBER}(?: (by|within) {_NUMBER})?")
_TESTS = {">": Above, "!=": Above, "<": Below, "=": Near}
KNOWN = 5e-4
"""A number whose standard error is larger does not confirm a printed one."""


def read_test(text: str) -> Test:
    """The test that a row names. Raises ValueError for none."""
    match = _TEST.fullmatch(text)
    if not match:
        kinds = "'> 0 by 0.02', '= 0.5 within 0.01', 'printed 0.5015'"
        raise ValueError(f"test: expected one of {kinds}, got {text!r}")
    kind, number, _, margin = match.groups()
    bound, by = float(number), float(margin or 0.0)
    if kind in _TESTS:
        return _TESTS[kind](bound, by)
    return Printed(Estimate(bound, 0.0, 1), len(number.partition(".")[2]), known=KNOWN)


# --- contrasts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantity:
    """What a claim is about: evidence of some rows of a figure's table, by a query of pandas ("": all)."""

    where: str
    of: Function

    def rows(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Those of a table."""
        return table.query(self.where, engine="python") if self.where else table

    def __call__(self, table: "pd.DataFrame") -> Iterable[Evidence]:
        """The evidence; none where the table has no such rows."""
        return self.of(rows) if len(rows := self.rows(table)) else ()


def contrasted(rows: "pd.DataFrame", quantity: str, contrast: str, test: str) -> list[Evidence]:
    """The evidence that a contrast of one quantity, or several, gives of some rows of a figure's table.

    Each of several quantities has its own test if one follows it, and names its pieces.
    """
    found: list[Evidence] = []
    parts = quantity.split(" ; ")
    for part in parts:
        own = re.fullmatch(rf"(.+?) ({_TEST.pattern})", part)
        name, words = (own[1], own[2]) if own else (part, test)
        found += _contrasted(rows, name, contrast, words, name if len(parts) > 1 else "")
    return found


def _contrasted(rows: "pd.DataFrame", quantity: str, contrast: str, words: str, label: str) -> list[Evidence]:
    numbers, few = estimates(rows, quantity)
    varied, levels, test = _varied(numbers), _levels(rows), read_test(words)
    kind, _, rest = contrast.partition(" ")
    if kind == "turns":
        return _turns(numbers, rest, levels, varied, test)
    compared = _compared(numbers, rest if kind in ("any", "share") else contrast, levels, varied)
    pieces = []
    for where, settings in compared:
        where, number = f"{where}: {label}".strip(": "), _difference(numbers, settings)
        note = "".join(dict.fromkeys(few.get(one, "") for one in settings))
        pieces.append(_piece(where if isinstance(number, str) else f"{where}{note}", number, test))
    if words.startswith("!=") and isinstance(test, Above):
        pieces = [_either_side(piece, test) for piece in pieces]
    if isinstance(test, Printed):
        errors = rows["printed_se"].dropna()
        printed = [replace(test, number=Estimate(test.number.value, float(error), 1)) for error in errors]
        pieces = [replace(piece, test=one) for piece, one in zip(pieces, printed, strict=True)]
    if pieces and kind in ("any", "share"):
        return [_surest(pieces) if kind == "any" else share("cases", pieces)]
    return pieces


def _piece(where: str, number: Estimate | str, test: Test | None = None) -> Evidence:
    """A piece of evidence: an estimate, or why there is none."""
    for pattern, words in _WORDS.items():
        where = re.sub(pattern, words, where)
    if isinstance(number, str):
        return Evidence(where, flaw=number, test=test)
    return Evidence(where, number, test=test)


Numbers = dict[Setting, Estimate | str]


def estimates(rows: "pd.DataFrame", quantity: str) -> tuple[Numbers, dict[Setting, str]]:
    """The estimate of a quantity by setting, or why there is none; and ' (2 of 3 networks)' where some lack it."""
    if rows.empty:
        return {}, {}
    levels, unit = _levels(rows), next((name for name in rows.index.names if name in UNITS), "")
    values: Any = rows[quantity] if quantity in rows else rows.eval(quantity)  # eval copies every column
    numbers: Numbers = {}
    few: dict[Setting, str] = {}
    if unit:
        for setting, drawn in values.groupby(level=levels, sort=False, dropna=False):
            place, units = _tuple(setting), drawn.to_numpy(dtype=np.float64)
            several = units[~np.isnan(units)]
            counted = f"{several.size} of {units.size}"
            numbers[place] = (
                Estimate.of_mean(several) if several.size > 1 else f"{unit}s: {counted}, two needed"
            )
            few |= {place: f" ({counted} {unit}s)"} if several.size < units.size else {}
        return numbers, few
    defaults = {f"{quantity}_se": 0.0, "n": math.nan, f"{quantity}_flaw": math.nan}
    about = [rows[name] if name in rows else [default] * len(rows) for name, default in defaults.items()]
    for (setting, value), error, n, flaw in zip(values.items(), *about, strict=True):
        if value == value:
            drawn = Estimate(float(value), float(error), None if math.isnan(n) else int(n))
            numbers[_tuple(setting)] = drawn if error else Estimate(float(value))
        elif isinstance(flaw, str):
            numbers[_tuple(setting)] = flaw
    return numbers, few


def _tuple(setting: Any) -> Setting:
    return setting if isinstance(setting, tuple) else (setting,)


def _levels(table: "pd.DataFrame") -> list[str]:
    return [str(name) for name in table.index.names if name not in UNITS]


def _varied(numbers: Iterable[Setting]) -> list[int]:
    """The places of levels that are not the same everywhere."""
    columns = list(zip(*numbers, strict=True))
    return [place for place, column in enumerate(columns) if len({str(one) for one in column}) > 1]


def _named(setting: Setting, levels: Sequence[str], places: Iterable[int]) -> str:
    given = [(levels[place], setting[place]) for place in places if setting[place] == setting[place]]
    words = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in given]
    return ", ".join(words)


def _compared(
    numbers: Numbers, contrast: str, levels: Sequence[str], varied: Sequence[int]
) -> Iterator[tuple[str, tuple[Setting, ...]]]:
    """What each piece of evidence is of: in words, and as one setting, two (a − b) or four ((a − b) − (c − d))."""
    if contrast == "each":
        yield from ((_named(setting, levels, varied), (setting,)) for setting in numbers)
        return
    first, _, second = contrast.partition("; ")
    steps = list(_pairs(numbers, first, levels))
    if not second:
        place = levels.index(first.partition(":")[0])
        yield from ((_step(one, other, levels, varied, place), (one, other)) for one, other in steps)
        return
    place = levels.index(second.partition(":")[0])
    by_step: dict[Setting, list[tuple[Setting, Setting]]] = {}
    for one, other in steps:
        by_step.setdefault(_without(one, place) + _without(other, place), []).append((one, other))
    for several in by_step.values():
        for (one, other), (third, fourth) in itertools.combinations(several, 2):
            step = _step(one, other, levels, varied, levels.index(first.partition(":")[0]))
            yield f"{step}, less that of {levels[place]} {third[place]}", (one, other, third, fourth)


def _step(one: Setting, other: Setting, levels: Sequence[str], varied: Sequence[int], place: int) -> str:
    """What two settings share of the levels that vary, and from which value of one level to which they go."""
    rest = _named(one, levels, [level for level in varied if level != place])
    step = f"{levels[place]} {one[place]} less {other[place]}"
    return f"{rest}, {step}" if rest else step


def _difference(numbers: Numbers, settings: Sequence[Setting]) -> Estimate | str:
    """a, a − b or (a − b) − (c − d) of as many settings, or why there is none."""
    values = [numbers[setting] for setting in settings]
    known = [value for value in values if not isinstance(value, str)]
    if len(known) < len(values):
        return next(value for value in values if isinstance(value, str))
    if len(known) == 1:
        return known[0]
    change = known[0] - known[1]
    return change - (known[2] - known[3]) if known[2:] else change


def _without(setting: Setting, place: int) -> Setting:
    return setting[:place] + setting[place + 1 :]


def _pairs(
    numbers: Iterable[Setting], contrast: str, levels: Sequence[str]
) -> Iterator[tuple[Setting, Setting]]:
    """The settings that a contrast of one level compares, all other levels being equal."""
    name, _, sides = contrast.partition(": ")
    one, _, other = sides.partition(" - ")
    place = levels.index(name)
    alike: dict[str, dict[Any, Setting]] = {}
    for setting in numbers:
        alike.setdefault(str(_without(setting, place)), {})[setting[place]] = setting
    for by_value in alike.values():
        if (one, other) == ("next", "this"):
            order = sorted(by_value)
            yield from ((by_value[b], by_value[a]) for a, b in itertools.pairwise(order))
            continue
        for more, less in itertools.product(_chosen(one, by_value), _chosen(other, by_value)):
            if more != less:
                yield by_value[more], by_value[less]


def _chosen(word: str, by_value: Mapping[Any, Setting]) -> list[Any]:
    if word == "each":
        return list(by_value)
    try:
        value = ast.literal_eval(word)
    except (ValueError, SyntaxError):
        value = word
    return [value] if value in by_value else []


# --- of several, one ---------------------------------------------------------------------------------------


def _either_side(piece: Evidence, test: Above) -> Evidence:
    """The same, tested on the side that was found: its p-value counts twice."""
    below = not piece.flaw and piece.estimate.value < 0
    return replace(piece, test=Below(least=test.least) if below else test, picked=2)


def _surest(pieces: Sequence[Evidence], tests: int | None = None, whole: bool | None = None) -> Evidence:
    """The surest of pieces of which one at least is claimed, its p-value times their number; it fails where each
    of them does, and one that decides nothing might be the one."""
    sound = [piece for piece in pieces if not piece.flaw]
    if not sound:
        return pieces[0]
    whole = len(sound) == len(pieces) if whole is None else whole
    opposite = max(piece.against for piece in sound) if whole else 1.0
    surest = min(sound, key=lambda piece: (piece.p, -piece.room))
    return replace(surest, picked=surest.picked * (tests or len(sound)), opposite=opposite)


def _turns(
    numbers: Numbers, name: str, levels: Sequence[str], varied: Sequence[int], test: Test
) -> list[Evidence]:
    """The surest rise and the surest fall of the series along a level where both are surest.

    It fails only if every series surely lacks a rise, or a fall, at each of its steps.
    """
    place, series = levels.index(name), {}
    for where, (after, before) in _compared(numbers, f"{name}: next - this", levels, varied):
        step = _piece(where, _difference(numbers, (after, before)))
        series.setdefault(str(_without(after, place)), []).append(step)
    whole = not any(step.flaw for steps in series.values() for step in steps)
    sound = [[step for step in steps if not step.flaw] for steps in series.values()]
    tests = sum(map(len, sound))
    least = getattr(test, "least", 0.0)
    ways = Above(least=least), Below(least=least)
    both = [
        [_surest([step.tested(way) for step in steps], tests, whole) for way in ways]
        for steps in sound
        if len(steps) > 1
    ]
    if not both:
        return [Evidence("steps", flaw="fewer than two steps between cells that learnt")]
    left = [ends for ends in both if all(end.verdict(len(ends)) != "fails" for end in ends)] or both
    return min(left, key=lambda ends: max(end.p for end in ends))


def share(where: str, pieces: Sequence[Evidence]) -> Evidence:
    """The share of `pieces`, each with its test, in which that is passed: what *often* and *most* speak of.

    Each counts with the chance that it is passed, 1 − p, and a half where nothing is known of it; the error is
    that of the sum, so that of exact numbers there is none. The test is that the share is above one half.
    """
    if all(piece.flaw for piece in pieces):
        return Evidence(where, flaw=pieces[0].flaw if pieces else "nothing to count", test=MOST)
    chances = np.array([0.5 if piece.flaw else 1.0 - piece.p for piece in pieces])
    error = float(np.sqrt((chances * (1.0 - chances)).sum())) / len(pieces)
    known = [piece for piece in pieces if not piece.flaw]
    passed, unknown = sum(piece.p < 0.5 for piece in known), len(pieces) - len(known)
    counted = f"{where}, {passed} of {len(known)}" if len(pieces) > 1 else where
    counted += f", {unknown} without a number" if unknown else ""
    return Evidence(counted, Estimate(float(chances.mean()), error), test=MOST)
