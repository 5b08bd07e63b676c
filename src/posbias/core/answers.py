"""Answers as values: what a command found, with its own JSON and its own JSON schema."""

import re
from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import ModuleType
from typing import Annotated, Any, ClassVar, Self

import pydantic
from pydantic.json_schema import models_json_schema
from pydantic_core import CoreSchema

from posbias.core.errors import InputFileError

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Number = float | None
"""null: not defined, or an error that is not known."""
Numbers = list[Number]
Interval = tuple[Number, Number] | None
"""The lower and upper end of a 95 % interval."""
Texts = list[str]
Table = Annotated[
    list[Any], pydantic.BeforeValidator(lambda held: held.tolist() if hasattr(held, "tolist") else held)
]
"""Numbers in rows, or rows of rows."""


def entry(description: str = "", default: Any = ..., of: str | None = None) -> Any:
    """A key of an answer; `of` is the attribute that it is read from, with dots, where that has another name."""
    read_from = None if of is None else pydantic.AliasPath(*of.split("."))
    return pydantic.Field(default, description=description or None, validation_alias=read_from)


class Part(pydantic.BaseModel):
    """Part of an answer: a key for each field, read from the attribute of that name of a result."""

    model_config = pydantic.ConfigDict(
        from_attributes=True,
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def of(cls, result: Any = None, **keys: Any) -> Self:
        """`keys`, and those that `result` has an attribute for."""
        for name, field in cls.model_fields.items():
            alias = field.validation_alias
            path = [str(step) for step in alias.path] if isinstance(alias, pydantic.AliasPath) else [name]
            if name not in keys and hasattr(result, path[0]):
                keys[name] = attrgetter(".".join(path))(result)
        return cls(**keys)


class Value(Part):
    """A number and its standard error, in the same unit; null: not defined (value) or not known (se)."""

    value: Number
    se: Number


class Counted(Value):
    """A number from n independent draws; n is null of what is exact."""

    n: int | None


class OverPrompts(Counted):
    """A number over prompts; `se` is null of a share, whose interval is Wilson's."""

    interval: Interval


class Answer(Part):
    """What a command answers; `schema` names its class and a version, which changes when a key goes."""

    schema_name: ClassVar[str]
    version: ClassVar[int] = 1

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        cls.schema_name = f"{re.sub(r'(?<=.)(?=[A-Z])', '-', cls.__name__).lower()}/{cls.version}"

    def as_json(self) -> dict[str, Any]:
        """The answer with its schema's name, ready for `dump_json`."""
        return {"schema": self.schema_name, **self.model_dump(mode="json")}

    @classmethod
    def read(cls, data: Mapping[str, Any], place: str) -> Self:
        """The answer that `as_json` made, read from `place`. Raises `InputFileError` for anything else."""
        try:
            return cls(**{name: held for name, held in data.items() if name != "schema"})
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise InputFileError(f"{place}: {key}: expected {cls.schema_name}, got {first['msg']}") from None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> dict[str, Any]:
        made = handler.resolve_ref_schema(handler(core))
        made["properties"] = {"schema": {"const": cls.schema_name}, **made.get("properties", {})}
        made["required"] = list(made["properties"])
        return made


def answers_in(*modules: ModuleType) -> list[type[Answer]]:
    """The answers that modules hold, by the names of their schemas."""
    held = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    kinds = (one for one in held if issubclass(one, Answer) and one is not Answer)
    return sorted(kinds, key=lambda one: one.schema_name)


def json_schema(answers: Iterable[type[Answer]]) -> dict[str, Any]:
    """One JSON schema (2020-12) of all these answers: `oneOf` them, by `$defs`."""
    kinds = list(answers)
    refs, made = models_json_schema([(kind, "serialization") for kind in kinds])
    return {"$schema": DIALECT, "oneOf": [refs[kind, "serialization"] for kind in kinds], **made}
