"""Answers in JSON: a pydantic model for each command, which makes its own schema."""

from typing import Any

from posbias.core.answers import Answer, answers_in, json_schema


def library_answers() -> list[type[Answer]]:
    """The answers of all commands of the library."""
    from posbias.reports.answers import experiments, measurements, predictions, retrievals

    return answers_in(predictions, measurements, retrievals, experiments)


def schemas() -> dict[str, Any]:
    """One JSON schema (2020-12) of what commands print with --json, those of posbias-papers apart."""
    return json_schema(library_answers())
