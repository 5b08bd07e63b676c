"""`posbias study export`: every number of a study as a table."""

from typing import Annotated, Any

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.cli.study.outcome import found
from posbias.core.errors import InvalidValueError

Csv = Annotated[
    str | None, Parameter(allow_leading_hyphen=True, help="The file to write; - is stdout, and the default.")
]


def export(
    file: shared.StudyName,
    *,
    out: shared.StudyOut = None,
    csv: Csv = None,
    json: shared.Json = False,
) -> None:
    """Write every number of a study as a table: one row per cell, quantity and index."""
    from posbias.study.tables import csv_text, rows

    outcome = found(file, out)
    answer_table(rows(outcome), csv_text(outcome), csv, json)


def answer_table(rows: list[dict[str, Any]], text: str, csv: str | None, json: bool) -> None:
    """Answer with a table as CSV, on stdout or in a file, or as JSON. Raises `InvalidValueError` for both."""
    from posbias.core.files import write_text
    from posbias.reports.answers.experiments import StudyExport

    if json and csv is not None:
        raise InvalidValueError("json: given with --csv, one of the two needed")
    if csv is not None and csv != "-":
        written = write_text(csv, text)
        answer_with(StudyExport.of(rows=[]), lambda: [f"table: {written}"], False)
        return
    answer_with(StudyExport.of(rows=rows), lambda: text.splitlines(), json)
