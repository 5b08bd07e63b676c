"""What `posbias study` does when it is given a paper's study, such as kim2026/fig1, instead of a file."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli.speaking import answer_with, say
from posbias.errors import PosbiasError
from posbias.store import dump_json

if TYPE_CHECKING:
    from posbias.papers.registry import PaperStudy

OUT = Path("results")


def named(file: str) -> bool:
    """Whether it is the name of a paper's study and no file."""
    paper, slash, name = file.partition("/")
    if not (slash and name) or "/" in name or Path(name).suffix or Path(file).exists():
        return False
    from posbias.papers.registry import PAPERS

    return paper in PAPERS


def run(file: str, out: Path | None, workers: int | None, ray: str | None, again: bool, json: bool) -> None:
    """Make it with the quick effort, unless it is there. Raises `PosbiasError` for what failed."""
    study = _study(file)
    from posbias.cli.claiming import bars, engine
    from posbias.papers.everything import make_all

    with bars() as progress:
        ran = make_all(
            out or OUT, [study.key], engine=engine(workers, ray), again=again, progress=progress, say=say
        )
    if ran.failed:
        raise PosbiasError("; ".join(dict.fromkeys(ran.failed.values())))
    tell(file, out, json)


def tell_status(file: str, out: Path | None, json: bool) -> None:
    """Whether it is made, and what it would cost."""
    study = _study(file)
    state = study.state(out or OUT)
    lines = [f"{study.key}: {study.question}", str(state)]
    lines += [] if state.made else [f"quick: {study.quick}; full: {study.full}; on {study.quick.machine}"]
    answer_with(study.as_dict() | {"state": state.as_dict()} if json else None, lambda: lines)


def tell(file: str, out: Path | None, json: bool) -> None:
    """Its state, files and claims. Raises `InputFileError` when it is not made."""
    study = _study(file)
    folder = out or OUT
    state, rows = study.state(folder), study.rows(folder)
    place = study.file(folder).parent
    files = [str(place / name) for name in study.writes if (place / name).exists()]
    answer = study.as_dict() | {"state": state.as_dict(), "rows": rows, "files": files}
    lines = [
        f"{study.key}: {study.question}",
        str(state),
        f"{len(rows)} rows (`posbias study export {file}`)",
    ]
    answer_with(answer if json else None, lambda: [*lines, *(f"file: {path}" for path in files)])


def table_of(file: str, out: Path | None) -> tuple[list[dict[str, Any]], str]:
    """Its numbers as rows, and as CSV. Raises `InputFileError` when it is not made."""
    rows = _study(file).rows(out or OUT)
    buffer = io.StringIO()
    writer = csv.DictWriter(
        buffer, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n"
    )
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {key: dump_json(one) if isinstance(one, list | dict) else one for key, one in row.items()}
        )
    return rows, buffer.getvalue()


def _study(file: str) -> "PaperStudy":
    from posbias.papers.registry import find_studies

    return find_studies([file])[0]
