"""What a value is: frozen, strict, and written the same in Python, TOML, YAML and JSON.

A value class is written as a plain dataclass under `@value`. A field may be a union of value classes, which
their `kind` distinguishes; that union is the only registry. Files go through JSON on their way in, so that a list
becomes a tuple while `"0.5"` stays refused where a number is needed.

    @value
    class ConstantMixing:
        kind: Literal["constant"] = tag(default="constant")
        value: Fraction

    ConstantMixing(0.2)                                        # in Python
    decode(ConstantMixing, {"kind": "constant", "value": 0.2})     # from a file
"""

import dataclasses
import functools
import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin

import numpy as np
import pydantic
from pydantic import BeforeValidator, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from posbias.core.errors import InvalidValueError, nearest, shortened, wrong

T = TypeVar("T")

_CLASSES: dict[str, type] = {}
_FOREIGN = (list, np.ndarray, np.generic)
"""What stands in Python code for a tuple or a number, and no value holds."""


def _as_tuple(given: Any) -> Any:
    """Lists and arrays may stand for tuples: a value holds only tuples."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    return tuple(given) if isinstance(given, list) else given


def _plain(given: Any, is_tuple: bool) -> Any:
    """What a field takes: a single number of NumPy as Python's, a list or array as a tuple where one is meant."""
    if isinstance(given, np.generic) or (isinstance(given, np.ndarray) and not given.ndim):
        return given.item()
    return _as_tuple(given) if is_tuple else given


def _as_rows(given: Any) -> Any:
    """A flat list of numbers may stand for one row."""
    given = _as_tuple(given)
    flat = (
        isinstance(given, tuple)
        and given
        and not any(isinstance(row, list | tuple | np.ndarray) for row in given)
    )
    return (given,) if flat else given


MOST_LAYERS = 100_000
"""Layers, or heads of one, that an architecture may have."""
Size = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
"""A number of layers or heads: an integer from 1 to 100,000."""
Count = Annotated[int, Field(ge=1)]
"""An integer of at least one."""
NaturalNumber = Annotated[int, Field(ge=0)]
"""An integer of at least zero."""
Naturals = Annotated[tuple[NaturalNumber, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
"""One or more integers of at least zero."""
Fraction = Annotated[FiniteFloat, Field(ge=0, le=1)]
"""A number between 0 and 1."""
NonNegative = Annotated[FiniteFloat, Field(ge=0)]
"""A finite number of at least zero."""
Positive = Annotated[FiniteFloat, Field(gt=0)]
"""A finite number above zero."""
Numbers = Annotated[tuple[FiniteFloat, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
"""One or more finite numbers."""
NonNegatives = Annotated[tuple[NonNegative, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
"""One or more finite numbers of at least zero."""
Positives = Annotated[tuple[Positive, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
"""One or more finite numbers above zero."""
Rows = Annotated[tuple[Numbers, ...], Field(min_length=1), BeforeValidator(_as_rows)]
"""One or more lists of finite numbers; a single list stands for one row."""
Fractions = Annotated[tuple[Fraction, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
"""One or more numbers between 0 and 1."""

Words = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Lines of text."""


def tag(*, default: str, kw_only: Literal[True] = True) -> Any:
    """The default of a `kind` field: given by keyword only, and left out of the printed form."""
    return Field(default=default, kw_only=kw_only, repr=False)


def later(*, default: Any) -> Any:
    """The default of a field that came after files were written: left out of them while it has this value.

    What was written before keeps its fingerprint, and reads as it did.
    """
    return Field(default=default, exclude_if=lambda given: given == default)


@dataclass_transform(frozen_default=True, field_specifiers=(Field, tag, later))
def value(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, strictly checked value whose constructor raises `InvalidValueError`."""
    made = pydantic.dataclasses.dataclass(
        frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    )(cls)
    checked = made.__init__
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    in_order = [field.name for field in fields if not field.kw_only]
    tuples = {field.name for field in fields if _is_tuple(field.type)}

    @functools.wraps(checked)
    def __init__(self, *args, **kwargs):  # noqa: N807
        if len(args) > len(in_order):
            raise wrong(cls.__name__, f"at most {len(in_order)} values", len(args))
        given = dict(zip(in_order, args, strict=False))
        if twice := given.keys() & kwargs:
            raise wrong(cls.__name__, f"one value of {min(twice)}", got="two")
        given |= kwargs
        for name, one in given.items():
            if isinstance(one, _FOREIGN):
                given[name] = _plain(one, name in tuples)
        try:
            checked(self, **given)
        except ValidationError as error:
            raise InvalidValueError(f"{cls.__name__}: {_explain(error, cls)}") from None

    made.__init__ = __init__
    _CLASSES[getattr(made, "kind", cls.__name__)] = made
    return made  # type: ignore[return-value]


_PLAIN = {
    "Input should be ": "",
    "greater than or equal to": "a number ≥",
    "less than or equal to": "a number ≤",
    "greater than": "a number >",
    "less than": "a number <",
    "a valid tuple": "a list",
    "a valid array": "a list",
    "a valid dictionary or object to extract fields from": "keys with values",
    "an object": "keys with values",
}
"""What pydantic says → a noun phrase: 'a number ≤ 1'."""
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def _explain(error: ValidationError, cls: type) -> str:
    """The first thing that is wrong with a `cls`: key, what was given, what is needed; and how many more are."""
    errors = error.errors(include_url=False)
    # entries that are wrong are not counted in a list, and a key that is misspelt is also called missing
    errors = [one for one in errors if one["type"] != "too_short"] or errors
    first, *others = sorted(errors, key=lambda one: one["type"] not in _UNKNOWN)
    place, key, context = first["loc"], _spell(first["loc"]), first.get("ctx", {})
    match first["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            owner = cls if len(place) == 1 else _CLASSES.get(str(place[-2]))
            known = [field.name for field in dataclasses.fields(owner)] if owner else []  # type: ignore[arg-type]
            said = f"unknown key {key!r}{nearest(str(place[-1]), known)}"
        case "missing" | "missing_argument":
            said = f"key {key!r} is missing"
        case "union_tag_not_found":
            said = f"{key}: key 'kind' is missing; it says which variant is meant"
        case "union_tag_invalid":
            tag, kinds = context["tag"], context["expected_tags"].replace("'", "")
            said = f"{key}: expected one of {kinds}, got {shortened(tag)}{nearest(tag, kinds.split(', '))}"
        case "too_short":
            least, got = context["min_length"], context["actual_length"]
            said = f"{key}: expected a list of at least {least}, got one of {got}"
        case "value_error":
            said = f"{key}: {context['error']}".removeprefix(": ")
        case _:
            needed = first["msg"]
            for theirs, ours in _PLAIN.items():
                needed = needed.replace(theirs, ours)
            said = f"{key}: expected {needed}, got {shortened(first['input'])}"
    return f"{said} (and {len(others)} more)" if others else said


def _spell(place: tuple[int | str, ...]) -> str:
    """`('layers', 0, 'positional', 'alibi', 'slopes')` as `layers[0].positional.slopes`: kinds are no keys."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step not in _CLASSES and "[" not in step:
            text += f".{step}" if text else step
    return text


def _is_tuple(hint: Any) -> bool:
    """Whether a field holds a tuple, or may."""
    return get_origin(hint) is tuple or any(_is_tuple(one) for one in get_args(hint))


def members(union: Any) -> tuple[type[Any], ...]:
    """The classes of a union of values, in their order."""
    return get_args(get_args(union)[0])


class Open:
    """Beside `Field(discriminator="kind")`: a union takes any value that has these methods, its members or not.

    A class of one's own, made under `@value` with a `kind` of its own, is read and written like a member.
    """

    def __init__(self, *methods: str):
        self.methods = methods

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        union = handler(source)
        taken = {member.kind for member in get_args(source)}

        def is_own(cls: type | None) -> bool:
            """Whether a class is none of the members, and could be one: a `kind` that is taken stays theirs."""
            own = cls in _CLASSES.values() and getattr(cls, "kind", None) not in taken
            return own and all(callable(getattr(cls, name, None)) for name in self.methods)

        def admit(given: Any, check: Any) -> Any:
            if is_own(type(given)):
                return given
            named = _CLASSES.get(str(given.get("kind"))) if isinstance(given, dict) else None
            return decode(named, given) if named is not None and is_own(named) else check(given)

        def spell(given: Any, spell_member: Any) -> Any:
            return encode(given) if is_own(type(given)) else spell_member(given)

        written = core_schema.wrap_serializer_function_ser_schema(spell, schema=union)
        return core_schema.no_info_wrap_validator_function(admit, union, serialization=written)


def decode(cls: type[T], data: Any) -> T:
    """Build a `cls` from what a file holds. Raises `InvalidValueError` naming key, value and what fits."""
    try:
        return _adapter(cls).validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        raise InvalidValueError(_explain(error, cls)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise wrong("its values", "plain ones", got=f"what JSON cannot hold ({error})") from None


def encode(given: Any) -> Any:
    """A value as plain dictionaries, lists, numbers and strings, ready for JSON.

    Raises `InvalidValueError` for what has no spelling: a function without a name (`posbias.theory.custom`).
    """
    try:
        return _adapter(type(given)).dump_python(given, mode="json")
    except PydanticSerializationError as error:
        raise InvalidValueError(str(error).rpartition(f"{InvalidValueError.__name__}: ")[2]) from None


def fingerprint(given: Any) -> str:
    """Sixteen hexadecimal digits that are equal exactly when two values are."""
    text = json.dumps(encode(given), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _adapter(cls: type) -> TypeAdapter:
    return TypeAdapter(cls)
