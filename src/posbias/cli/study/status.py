"""`posbias study status`: which cells are finished."""

from posbias.cli import options as shared
from posbias.cli.study.outcome import folder_of, read, tell_status


def status(file: shared.StudyName, *, out: shared.StudyOut = None, json: shared.Json = False) -> None:
    """Say which cells of a study are finished and which are not."""
    tell_status(read(file), out or folder_of(file), json)
