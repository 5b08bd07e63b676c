"""`posbias study unpack`: what `posbias study pack` wrote, as a folder."""

from pathlib import Path

from posbias.cli import options as shared
from posbias.cli.output import answer_with


def unpack(file: Path, *, out: shared.Out | None = None, json: shared.Json = False) -> None:
    """Unpack a folder of results, every file verified; the command that was interrupted goes on from there.

    Nothing is overwritten: equal files stay as they are, and for another one nothing is unpacked at all.

    Parameters
    ----------
    file
        What `posbias study pack` wrote.
    out
        The folder to write to, which may be there. Default: NAME, after the file.
    """
    from posbias.store.packing import unpack as unpack_folder

    packed = unpack_folder(file, out or Path(file.stem))
    answer = {"file": str(packed.archive), "folder": str(packed.folder), "files": packed.files}
    answer["written"] = packed.written
    line = f"{packed.written} files written, {len(packed.files) - packed.written} were there: {packed.folder}"
    answer_with("study-unpack/1", answer, lambda: [line], json)
