"""What `posbias study` does when it is given a paper's study, such as kim2026/fig1, instead of a file."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.store import dump_json

if TYPE_CHECKING:
    from posbias.papers.study import Study


def named(file: str) -> bool:
    """Whether it is the name of a paper's study and no file."""
    paper, slash, name = file.partition("/")
    if not (slash and name) or "/" in name or Path(name).suffix or Path(file).exists():
        return False
    from posbias.papers.registry import PAPERS

    return paper in PAPERS


def tell_status(file: str, out: Path | None, json: bool) -> None:
    """Whether it is made, and what it would cost."""
    study = study_of(file)
    state = study.state(out or shared.RESULTS)
    lines = [f"{study.key}: {study.question}", str(state)]
    lines += [] if state.made else [f"quick: {study.quick}; full: {study.full}; on {study.quick.machine}"]
    answer_with("paper-study-state/1", study.as_dict() | {"state": state.as_dict()}, lambda: lines, json)


def tell(file: str, out: Path | None, json: bool) -> None:
    """Its state, files and claims. Raises `InputFileError` when it is not made."""
    study = study_of(file)
    folder = out or shared.RESULTS
    state, rows = study.state(folder), study.rows(folder)
    place = study.file(folder).parent
    files = [str(place / name) for name in study.writes if (place / name).exists()]
    answer = study.as_dict() | {"state": state.as_dict(), "rows": rows, "files": files}
    lines = [
        f"{study.key}: {study.question}",
        str(state),
        f"{len(rows)} rows (`posbias study export {file}`)",
    ]
    answer_with("paper-study/1", answer, lambda: [*lines, *(f"file: {path}" for path in files)], json)


def table_of(file: str, out: Path | None) -> tuple[list[dict[str, Any]], str]:
    """Its numbers as rows, and as CSV. Raises `InputFileError` when it is not made."""
    rows = study_of(file).rows(out or shared.RESULTS)
    buffer, head = io.StringIO(), dict.fromkeys(key for row in rows for key in row)
    writer = csv.DictWriter(buffer, head, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {key: dump_json(it) if isinstance(it, list | dict) else it for key, it in row.items()}
        )
    return rows, buffer.getvalue()


def study_of(file: str) -> "Study":
    """The study of this name. Raises `InvalidValueError` naming the nearest."""
    from posbias.papers.registry import find_studies

    return find_studies([file])[0]
