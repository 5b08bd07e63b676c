"""`posbias paper run`, `show`, `export`: a figure, table or study by its key, such as kim2026/fig1."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.cli.study.export import Csv, answer_table
from posbias.core.errors import InvalidValueError, PosbiasError
from posbias_papers.cli.claims import make_missing

if TYPE_CHECKING:
    from posbias_papers.study import Study

Key = Annotated[str, Parameter(help="The key of a study, as `posbias paper list` has it.")]
_WORKERS = "Processes of one thread that share the cells. Default: one cell after another, in this process."
_RERUN = "Make it anew of the cells that are kept."


@shared.options
class Options:
    """How it is computed.

    Parameters
    ----------
    effort
        quick (the default), full, or a number where `posbias paper list` names one unit.
    dry_run
        Say whether it is made and what it would cost, and compute nothing.
    """

    effort: shared.Effort = "quick"
    out: shared.Results = shared.RESULTS
    workers: Annotated[shared.Workers, Parameter(help=_WORKERS)] = None
    ray: shared.Ray = None
    dry_run: shared.Flag = False
    rerun: Annotated[shared.Rerun, Parameter(help=_RERUN)] = False
    json: shared.Json = False


def run(study: Key, *, options: Options = Options()) -> None:
    """Make one study, unless it is there. Finished cells are kept; after Ctrl-C the same command goes on."""
    found = _find(study)
    if options.dry_run:
        _answer_state(found, options.out, options.json)
        return
    for name in () if found.shared_out else ("workers", "ray"):
        if (value := getattr(options, name)) is not None:
            raise InvalidValueError(f"{name}: {value} given with {found.key}, which one process computes")
    engine = shared.engine(options.workers, options.ray)
    ran = make_missing(options.out, [found.key], options.effort, engine=engine, again=options.rerun)
    reasons = [*ran.failed.values(), *(f"{key}: {reason}" for key, reason in ran.left_out.items())]
    if reasons:
        raise PosbiasError("; ".join(dict.fromkeys(reasons)))
    _answer(found, options.out, options.json)


def show(study: Key, *, out: shared.Results = shared.RESULTS, json: shared.Json = False) -> None:
    """Show a study that is made: its state, files and number of rows."""
    _answer(_find(study), out, json)


def export(
    study: Key, *, out: shared.Results = shared.RESULTS, csv: Csv = None, json: shared.Json = False
) -> None:
    """Write every number of a study as a table: one row per cell, quantity and index."""
    from posbias.study.tables import as_csv

    rows = _find(study).rows(out)
    answer_table(rows, as_csv(rows), csv, json)


def _find(key: str) -> "Study":
    """The study of a key. Raises `InvalidValueError` naming the nearest, and for a whole paper."""
    from posbias_papers.registry import find_studies

    found = find_studies(key)
    if len(found) > 1:
        raise InvalidValueError(f"study: {key} given, one of its studies needed, such as {found[0].key}")
    return found[0]


def _answer_state(study: "Study", out: Path, json: bool) -> None:
    """Whether it is made, and what it would cost."""
    state = study.state(out)
    lines = [f"{study.key}: {study.question}", str(state)]
    lines += [] if state.made else [f"quick: {study.quick}; full: {study.full}; on {study.quick.machine}"]
    from posbias_papers.cli.answers import PaperStudyState

    answer_with(PaperStudyState.of(study, state=state), lambda: lines, json)


def _answer(study: "Study", out: Path, json: bool) -> None:
    """Its state, files and claims. Raises `InputFileError` when it is not made."""
    state, rows = study.state(out), study.rows(out)
    place = study.file(out).parent
    files = [place / name for name in study.writes if (place / name).exists()]
    from posbias_papers.cli.answers import PaperStudy

    answer = PaperStudy.of(study, state=state, rows=rows, files=files)
    lines = [
        f"{study.key}: {study.question}",
        str(state),
        f"{len(rows)} rows (`posbias paper export {study.key}`)",
        *(f"file: {path}" for path in files),
    ]
    answer_with(answer, lambda: lines, json)
