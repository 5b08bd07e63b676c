"""`posbias study run`: the cells of a study that are not there yet."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import progress
from posbias.cli.paper.claims import make_missing
from posbias.cli.study import paper_studies
from posbias.cli.study.outcome import folder_of, read, tell, tell_status
from posbias.errors import InvalidValueError, PosbiasError

if TYPE_CHECKING:
    from posbias.papers.study import Study as PaperStudy

_WORKERS = "Processes of one thread that share the cells. Default: one cell after another, in this process."
_RERUN = "Compute even what is there, in new files; a paper's study is made anew of the cells that are kept."


@shared.options
class Options:
    """How it is computed.

    Parameters
    ----------
    effort
        Of a paper's study: quick (the default), full, or a number where `study list` names one unit. The file of
        a study says what its cells do.
    dry_run
        Say how many cells there are and how many are finished, and compute nothing.
    """

    effort: shared.Effort | None = None
    out: shared.StudyOut = None
    workers: Annotated[shared.Workers, Parameter(help=_WORKERS)] = None
    ray: shared.Ray = None
    dry_run: shared.Flag = False
    rerun: Annotated[shared.Rerun, Parameter(help=_RERUN)] = False
    json: shared.Json = False


def run(file: shared.StudyName, *, options: Options = Options()) -> None:
    """Compute the cells of a study that are not there yet, and judge its claims.

    Finished cells are kept whatever stops a run; the same command goes on from there. A file is TOML, YAML or JSON
    (docs/studies.md); a paper's study has a name such as kim2026/fig1.
    """
    if paper_study := paper_studies.named(file):
        if options.dry_run:
            paper_studies.tell_status(paper_study, options.out, options.json)
        else:
            _run_paper_study(paper_study, options)
        return
    if options.effort is not None:
        raise InvalidValueError(f"effort: {options.effort} given with a study's file, which says it")
    study, folder = read(file), options.out or folder_of(file)
    if options.dry_run:
        tell_status(study, folder, options.json, todo=options.rerun)
        return
    from posbias.execution import engine_of
    from posbias.study import run_study

    performer = engine_of(options.workers, options.ray)
    with progress() as on_event:
        outcome = run_study(study, folder, engine=performer, again=options.rerun, on_event=on_event)
    tell(outcome, options.json)


def _run_paper_study(study: "PaperStudy", options: Options) -> None:
    """Make it, unless it is there. Raises `PosbiasError` for what failed."""
    for name in () if study.shared_out else ("workers", "ray"):
        if (value := getattr(options, name)) is not None:
            raise InvalidValueError(f"{name}: {value} given with {study.key}, which one process computes")
    engine, folder = shared.engine(options.workers, options.ray), options.out or shared.RESULTS
    ran = make_missing(folder, [study.key], options.effort or "quick", engine=engine, again=options.rerun)
    reasons = [*ran.failed.values(), *(f"{key}: {reason}" for key, reason in ran.left_out.items())]
    if reasons:
        raise PosbiasError("; ".join(dict.fromkeys(reasons)))
    paper_studies.tell(study, options.out, options.json)
