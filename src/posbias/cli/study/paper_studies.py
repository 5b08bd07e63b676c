"""What `posbias study` does when it is given a paper's study, such as kim2026/fig1, instead of a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli import options as shared
from posbias.cli.output import answer_with

if TYPE_CHECKING:
    from posbias.papers.study import Study


def named(file: str) -> "Study | None":
    """The paper's study of this name; None for a file. Raises `InvalidValueError` naming the nearest."""
    paper, slash, name = file.partition("/")
    if not (slash and name) or "/" in name or Path(name).suffix or Path(file).exists():
        return None
    from posbias.papers.registry import OURS, PAPERS, find_studies

    return find_studies(file)[0] if paper in (*PAPERS, OURS) else None


def tell_status(study: "Study", out: Path | None, json: bool) -> None:
    """Whether it is made, and what it would cost."""
    state = study.state(out or shared.RESULTS)
    lines = [f"{study.key}: {study.question}", str(state)]
    lines += [] if state.made else [f"quick: {study.quick}; full: {study.full}; on {study.quick.machine}"]
    answer_with("paper-study-state/1", study.as_dict() | {"state": state.as_dict()}, lambda: lines, json)


def tell(study: "Study", out: Path | None, json: bool) -> None:
    """Its state, files and claims. Raises `InputFileError` when it is not made."""
    folder = out or shared.RESULTS
    state, rows = study.state(folder), study.rows(folder)
    place = study.file(folder).parent
    files = [str(place / name) for name in study.writes if (place / name).exists()]
    answer = study.as_dict() | {"state": state.as_dict(), "rows": rows, "files": files}
    lines = [
        f"{study.key}: {study.question}",
        str(state),
        f"{len(rows)} rows (`posbias study export {study.key}`)",
        *(f"file: {path}" for path in files),
    ]
    answer_with("paper-study/1", answer, lambda: lines, json)
