"""`posbias study record`: finished cells of a training as small files to keep."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with

_OUT = "The folder to write to. Default: FOLDER/records."


def record(
    folder: Path, *, out: Annotated[shared.Out | None, Parameter(help=_OUT)] = None, json: shared.Json = False
) -> None:
    """Put the trained cells of a folder on record: a small JSON file each, with all that figures and claims need.

    Weights are left out, their digest stays: `posbias train RECORD.json` makes a cell again and says how it
    differs from its record. A record of the same experiment is replaced, unless it rests on more test sequences.

    Parameters
    ----------
    folder
        The folder with the cells, such as results/wu2025/cells; those in folders in it are recorded too.
    """
    from posbias.training.records import record_cells

    files = [str(path) for path in record_cells(folder, out or folder / "records")]
    answer_with("study-record/1", {"files": files}, lambda: [f"record: {path}" for path in files], json)
