"""Answers in JSON: a pydantic model for each command, which makes its own schema."""

import itertools
from typing import Any

from posbias.core.answers import Answer, json_schema


def library_answers() -> list[type[Answer]]:
    """The answers of all commands of the library."""
    from posbias.reports.answers import experiments, measurements, predictions, retrievals

    held = itertools.chain.from_iterable(
        vars(module).values() for module in (predictions, measurements, retrievals, experiments)
    )
    kinds = (one for one in held if isinstance(one, type) and issubclass(one, Answer) and one is not Answer)
    return sorted(set(kinds), key=lambda one: one.schema_name)


def schemas() -> dict[str, Any]:
    """One JSON schema (2020-12) of what commands print with --json, those of posbias-papers apart."""
    return json_schema(library_answers())
