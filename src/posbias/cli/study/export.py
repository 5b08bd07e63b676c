"""`posbias study export`: every number of a study as a table."""

from typing import Annotated

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.cli.study.outcome import found
from posbias.core.errors import InvalidValueError


def export(
    file: shared.StudyName,
    *,
    out: shared.StudyOut = None,
    csv: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    json: shared.Json = False,
) -> None:
    """Write every number of a study as a table: one row per cell, quantity and index.

    Parameters
    ----------
    csv
        The file to write; - is stdout, and the default.
    """
    from posbias.core.files import write_text
    from posbias.study.tables import csv_text, rows

    if json and csv is not None:
        raise InvalidValueError("json: given with --csv, one of the two needed")
    outcome = found(file, out)
    records, text = rows(outcome), csv_text(outcome)
    if csv is not None and csv != "-":
        written = write_text(csv, text)
        answer_with("study-export/1", {}, lambda: [f"table: {written}"], False)
        return
    answer_with("study-export/1", {"rows": records}, lambda: text.splitlines(), json)
