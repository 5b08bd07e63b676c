"""The JSON schemas of all answers of the library."""

from typing import Any

from posbias.checking import answer
from posbias.core.answers import Answer, answers_in, json_schema
from posbias.reports.answers import choices, experiments, measurements, predictions, remedies, retrievals


def library_answers() -> list[type[Answer]]:
    """The answers of all commands of the library."""
    return answers_in(predictions, measurements, retrievals, choices, remedies, answer, experiments)


def schemas() -> dict[str, Any]:
    """One JSON schema (2020-12) of what commands print with --json, those of posbias-papers apart."""
    return json_schema(library_answers())
