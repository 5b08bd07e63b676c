"""`posbias study run`: the cells of a study that are not there yet."""

from typing import Annotated

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import progress
from posbias.cli.study.outcome import folder_of, read, tell, tell_status

_WORKERS = "Processes of one thread that share the cells. Default: one cell after another, in this process."
_RERUN = "Compute even what is there, in new files."


@shared.options
class Options:
    """How it is computed.

    Parameters
    ----------
    dry_run
        Say how many cells there are and how many are finished, and compute nothing.
    """

    out: shared.StudyOut = None
    workers: Annotated[shared.Workers, Parameter(help=_WORKERS)] = None
    ray: shared.Ray = None
    dry_run: shared.Flag = False
    rerun: Annotated[shared.Rerun, Parameter(help=_RERUN)] = False
    json: shared.Json = False


def run(file: shared.StudyName, *, options: Options = Options()) -> None:
    """Compute the cells of a study that are not there yet, and judge its claims.

    Finished cells are kept whatever stops a run; the same command goes on from there. A file is TOML, YAML or JSON
    (docs/studies.md).
    """
    study, folder = read(file), options.out or folder_of(file)
    if options.dry_run:
        tell_status(study, folder, options.json, todo=options.rerun)
        return
    from posbias.core.cluster import engine_of
    from posbias.study import run_study

    performer = engine_of(options.workers, options.ray)
    with progress() as on_event:
        outcome = run_study(study, folder, engine=performer, again=options.rerun, on_event=on_event)
    tell(outcome, options.json)
