"""What is wrong with a value, in a line: the key, what was given, and what would be right there.

Pydantic says where something is wrong. What fits there is read off the classes: the keys of the class that stands
at that place, and, where one of several kinds is needed, how what was given would be written as one.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest

Classes = Mapping[str, type]
"""Every class of values by its kind, or, where it has none, by its name."""


def explain(error: ValidationError, cls: type, classes: Classes, data: Any, *, of_file: bool = False) -> str:
    """Key, value given and what would be right, for the first two things that are wrong with a `cls` of `data`.

    `of_file`: what was given is that of a file, and so is what would be right; else of Python.
    """
    problems = error.errors(include_url=False)
    # a list whose entries are wrong is also called too short; the entries say it better
    problems = [one for one in problems if one["type"] != "too_short" or not one["input"]] or problems
    lines = [_explain_one(problem, cls, classes, data, of_file) for problem in problems[:2]]
    more = f" (and {len(problems) - 2} more)" if len(problems) > 2 else ""
    return "; ".join(lines) + more


def _explain_one(problem: Any, cls: type, classes: Classes, data: Any, of_file: bool) -> str:
    place = list(problem["loc"])
    key = _spell(place, classes)
    match problem["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            keys = [name for one in _classes_at(place[:-1], cls, classes) for name in _keys(one)]
            said = nearest(str(place[-1]), keys, _given_at(place[:-1], data)) or (
                f"; known are {', '.join(dict.fromkeys(keys))}" if keys else ""
            )
            return f"unknown key {key!r}{said}"
        case "missing" | "missing_argument":
            return f"key {key!r} is missing"
        case "union_tag_not_found":
            return f"{key}: key {problem['ctx']['discriminator']} is missing; it says which variant is meant"
        case "union_tag_invalid":
            given = problem["ctx"]["tag"]
            kinds = [kind.strip(" '") for kind in problem["ctx"]["expected_tags"].split(",")]
            return f"{key}: kind {shortened(given)} given, one of {', '.join(kinds)} needed{nearest(given, kinds)}"
        case "model_attributes_type" | "dict_type" if members := _kinds_at(place, cls, classes):
            wanted = "keys with a kind" if of_file else f"one of {_named(members)}"
            written = _written(problem["input"], members) if of_file else ""
            return f"{key}: {shortened(problem['input'])} given, {wanted} needed{written}"
        case "value_error":
            message = str(problem["ctx"]["error"])
            return f"{key}: {message}" if key else message
        case "too_short" if isinstance(problem["input"], list | tuple) and problem["input"]:
            return f"{key}: {shortened(problem['input'])} given, finite numbers needed"
        case "too_short":
            return f"{key}: an empty list given, at least one entry needed"
        case _:
            return f"{key}: {shortened(problem['input'])} given, {_needed(problem['msg'])} needed"


def _given_at(place: list[Any], data: Any) -> list[str]:
    """The keys that were given at a place; the names of variants, which a place also has, are no keys."""
    for step in place:
        if (isinstance(data, Mapping) and step in data) or (
            isinstance(data, list | tuple) and isinstance(step, int)
        ):
            data = data[step]
    return [*map(str, data)] if isinstance(data, Mapping) else []


def _named(members: Iterable[type]) -> str:
    """Classes, as Python calls them."""
    return ", ".join(one.__name__ for one in members)


def _written(given: Any, members: Iterable[type]) -> str:
    """How a file has what was given as one of these classes: `: {kind = "constant", value = 0.2}`; "" as none."""
    for one in members:
        kind, keys = getattr(one, "kind", ""), _required(one)
        if given == kind:
            return f': {{kind = "{kind}"{", …" if keys else ""}}}'
        if len(keys) == 1 and not isinstance(given, str | bool) and _takes(one, keys[0], given):
            return f': {{kind = "{kind}", {keys[0]} = {shortened(given)}}}'
    return ""


def _takes(cls: type, key: str, given: Any) -> bool:
    try:
        cls(**{key: given})
    except (InvalidValueError, TypeError):
        return False
    return True


def _needed(message: str) -> str:
    """Pydantic's message as a noun phrase: 'a valid number', 'a number ≤ 1'."""
    message = message.removeprefix("Input should be ").replace("greater than or equal to", "a number ≥")
    message = message.replace("less than or equal to", "a number ≤").replace("greater than", "a number >")
    message = message.replace("less than", "a number <").replace("a valid tuple", "a list")
    return message.replace("a valid array", "a list")


def _spell(place: list[Any], classes: Classes) -> str:
    """`('layers', 0, 'positional', 'alibi', 'slopes')` as `layers[0].positional.slopes`."""
    text = ""
    for step, after in zip(place, [*place[1:], 0], strict=False):
        if isinstance(step, int):
            text += f"[{step}]"
        elif "[" not in step and (step not in classes or isinstance(after, int)):
            text += f".{step}" if text else step
    return text


def _classes_at(place: list[Any], cls: type, classes: Classes) -> list[type]:
    """The classes of values that may stand at a place of a `cls`; the one whose kind the place names."""
    found = [cls]
    for step in place:
        if isinstance(step, int):
            continue
        if classes.get(step) in found:
            found = [classes[step]]
        elif "[" not in step:
            hints = (get_type_hints(one, include_extras=True).get(step) for one in found)
            found = list(dict.fromkeys(member for hint in hints for member in _values_in(hint)))
    return found


def _kinds_at(place: list[Any], cls: type, classes: Classes) -> list[type]:
    """Those of them that are told apart by their kind."""
    return [one for one in _classes_at(place, cls, classes) if hasattr(one, "kind")]


def _values_in(hint: Any) -> Iterator[type]:
    """The classes of values that a hint speaks of: those of unions, lists and annotations."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for one in get_args(hint):
        yield from _values_in(one)


def _keys(cls: type) -> list[str]:
    """The keys that a value of a class has, without what belongs to the class alone or has told the class."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return [field.name for field in fields if field.name != "kind"]


def _required(cls: type) -> list[str]:
    """The keys that cannot be left out."""
    return [
        field.name
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
