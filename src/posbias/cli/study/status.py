"""`posbias study status`: which cells are finished."""

from posbias.cli import options as shared
from posbias.cli.study import paper_studies
from posbias.cli.study.outcome import folder_of, read, tell_status


def status(file: shared.StudyName, *, out: shared.StudyOut = None, json: shared.Json = False) -> None:
    """Say which cells of a study are finished and which are not."""
    if study := paper_studies.named(file):
        paper_studies.tell_status(study, out, json)
    else:
        tell_status(read(file), out or folder_of(file), json)
