"""`posbias study pack`: a folder of results as one file."""

from pathlib import Path

from posbias.cli import options as shared
from posbias.cli.output import answer_with


def pack(folder: Path, *, out: shared.Out | None = None, json: shared.Json = False) -> None:
    """Pack a folder of results into one file, to be unpacked on another machine and gone on with there.

    Everything in it is packed: finished cells, weights, checkpoints, pages. Stop what writes to it first.

    Parameters
    ----------
    folder
        The folder, such as results/train/bias or results/wu2025.
    out
        The file to write. Default: NAME.zip, after the folder.
    """
    from posbias.store.packing import pack as pack_folder

    packed = pack_folder(folder, out or Path(f"{folder.resolve().name}.zip"))
    answer = {"file": str(packed.archive), "folder": str(packed.folder), "files": packed.files}
    size = sum(packed.files.values()) / 1e6
    line = f"{len(packed.files)} files, {size:.1f} MB: {packed.archive}"
    answer_with("study-pack/1", answer, lambda: [line], json)
