"""Items to choose from: a question, its options and, where known, the right one; how people's files have them."""

import os
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from posbias.core.errors import InvalidValueError, errors_of, is_integer, shortened, wrong
from posbias.core.files import data_table
from posbias.core.matching import normalised
from posbias.core.tables import Names, bare_name, number, table_lines, unexpected

Kind = Literal["question", "judge", "tools", "rating"]
NAMES: dict[str, Any] = data_table(__file__)
"""What columns are called, by what they hold; `kinds`: how items of each kind are worded; `sets`: some of ours."""
ROLES = ("question", "options", "right", "sides", "name")
LETTERS = string.ascii_uppercase
"""Labels; so many options an item can have."""


@dataclass(frozen=True)
class Item:
    """A question (which may be empty), its options, and the number of the right one (−1: nobody knows).

    `details`: of tools, what each does. `sides`: whose each option is. Raises `InvalidValueError` for fewer than 2
    or more than 26 options, for two that are alike or no text, and for a right one that is none of them.
    """

    question: str
    options: tuple[str, ...]
    right: int = -1
    name: str = ""
    details: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("options", "details", "sides"):
            given = getattr(self, name)
            texts = isinstance(given, Sequence) and all(isinstance(one, str) for one in given)
            if isinstance(given, str) or not texts:
                raise wrong(name, "a tuple of texts", given)
            object.__setattr__(self, name, tuple(given))
        if not 2 <= len(self.options) <= len(LETTERS):
            raise InvalidValueError(f"options: expected 2 to {len(LETTERS)}, got {len(self.options)}")
        plain = [" ".join(option.split()) for option in self.options]
        if len({*plain, ""}) <= len(plain):
            raise InvalidValueError(f"options: expected texts that differ, got {shortened(self.options)}")
        if not is_integer(self.right) or not -1 <= self.right < len(plain):
            raise wrong("right", f"the number of an option, 0 to {len(plain) - 1}, or -1", self.right)


def read_items(
    path: str | os.PathLike[str] | Item | Iterable[Item], columns: Mapping[str, str] | None = None
) -> tuple[Item, ...]:
    """Read items from JSON lines, JSON or CSV, or a set of ours by its name; those in memory stay as they are.

    A row has `question`, `options` (a list of texts, or of objects with name and description, or by letter; or a
    column for each: A, B, …; option_1, …; response_a, …) and, where known, `right`: a letter, the option itself,
    or its number, from 0 or from 1, which the numbers of all rows must tell. `columns` says what columns hold.
    Raises `InputFileError`, and `InvalidValueError` for what is neither a file nor items.
    """
    if not isinstance(path, str | os.PathLike):
        given = tuple(path) if isinstance(path, Iterable) else (path,)
        if not all(isinstance(item, Item) for item in given):
            raise wrong("items", "a list of Item, or a file", path)
        return given
    roles = {role: NAMES[role] for role in ROLES}
    names, held = Names(cells=NAMES["options"], roles=roles, columns=columns or {}), []
    ours = [("", row) for row in NAMES["sets"].get(str(path), []) if not Path(path).is_file()]
    if not (ours or Path(path).suffix or Path(path).exists()):
        raise unexpected("items", f"a file, or one of {', '.join(NAMES['sets'])}", str(path))
    for where, row in ours or table_lines(Path(path), names, lists=True):
        held.append((where, _cells(row, names.of(row))))
    for role, column in names.columns.items():
        if all(cells[role] is None for _, cells in held):
            raise unexpected(f"{path}: {role}", f"a column {column}", "none")
    first = _counted_from([cells for _, cells in held], path)
    return tuple(_item(cells, where, first) for where, cells in held)


def kind_of(items: Sequence[Item]) -> Kind:
    """What items look like: tools where options have details, judged answers where they have sides, a rating where
    several have the same numbers as options."""
    if any(item.details for item in items):
        return "tools"
    if len({item.options for item in items}) == 1 < len(items) and number(items[0].options[0]) is not None:
        return "rating"
    return "judge" if any(item.sides for item in items) else "question"


def _cells(row: dict[str, Any], cells: dict[str, Any]) -> dict[str, Any]:
    """The cells of a row by role, where each option has a column of its own too."""
    row = {bare_name(name): cell for name, cell in row.items()}
    for names in ([*LETTERS.lower()], *_numbered()):
        if cells["options"] is None and names[0] in row and names[1] in row:
            cells["options"] = [row[name] for name in names if row.get(name) is not None]
    if cells["sides"] is None and {"modela", "modelb"} <= row.keys():
        cells["sides"] = [row["modela"], row["modelb"]]
    return cells


def _numbered() -> list[list[str]]:
    """Names of columns that hold an option each."""
    endings = [*LETTERS.lower()], [str(k) for k in range(1, 27)], [str(k) for k in range(26)]
    return [[f"{name}{ending}" for ending in some] for name in NAMES["one"] for some in endings]


def _counted_from(rows: Sequence[Mapping[str, Any]], path: Any) -> int:
    """Whether numbers of right options, that are no option's text, count from 0 or from 1."""
    known = list[tuple[int, int]]()
    for cells in rows:
        options, right = _options(cells, path)[0], number(cells["right"])
        named = normalised(str(cells["right"])) in map(normalised, options)
        if right is not None and right == int(right) and not named:
            known.append((int(right), len(options)))
    if not known or min(right for right, _ in known) == 0:
        return 0
    if any(right == count for right, count in known):
        return 1
    raise unexpected(f"{path}: right", "numbers of which one is 0, or that of the last option", "others")


def _options(cells: Mapping[str, Any], where: Any) -> tuple[list[str], list[str], list[str]]:
    """Options of a row, what each does, and their labels."""
    held, labels = cells["options"], [*LETTERS]
    if isinstance(held, dict) and isinstance(held.get("text"), list):
        held, labels = held["text"], held.get("label", labels)
    elif isinstance(held, dict):
        labels, held = [*held], [*held.values()]
    if not isinstance(held, list):
        raise unexpected(f"{where}: options", "a list, or a column for each", held)
    objects = [one.get("function", one) if isinstance(one, dict) else {"text": one} for one in held]
    texts = [next((one[name] for name in NAMES["text"] if name in one), None) for one in objects]
    if any(text is None or isinstance(text, dict | list) for text in texts):
        raise unexpected(f"{where}: options", "texts, or objects with name and description", held)
    details = [next((str(one[name]) for name in NAMES["detail"] if name in one), "") for one in objects]
    return [*map(str, texts)], details if any(details) else [], [*map(str, labels)]


def _item(cells: Mapping[str, Any], where: str, first: int) -> Item:
    options, details, labels = _options(cells, where)
    right, said = -1, cells["right"]
    if said is not None and said != "":
        text, place = normalised(str(said)), number(said)
        spelled = [*map(normalised, options)], [label.lower() for label in labels[: len(options)]]
        either = zip(spelled, (text, str(said).lower()), strict=True)
        places = [held.index(one) for held, one in either if one in held]
        right = places[0] if places else -1 if place is None else int(place) - first
        if not 0 <= right < len(options):
            what = f"one of the {len(options)} options, its letter or number"
            raise unexpected(f"{where}: right", what, said)
    sides = cells["sides"] if isinstance(cells["sides"], list) else []
    question, name = ("" if cells[role] is None else str(cells[role]) for role in ("question", "name"))
    with errors_of(where):
        return Item(question, tuple(options), right, name, tuple(details), tuple(map(str, sides)))
