"""`posbias study convert`: results of 0.1 as files of this version."""

from pathlib import Path

from posbias.cli import options as shared
from posbias.cli.output import answer_with


def convert(folder: Path, *, json: shared.Json = False) -> None:
    """Convert results of posbias 0.1 to files of this version; nothing is deleted.

    Cells are written beside the old files; a file with a name of its own is kept as NAME.0.1. What cannot be
    converted is listed with the command that makes it again.

    Parameters
    ----------
    folder
        The folder with the results, such as results/studies/dimension; folders in it are converted too.
    """
    from posbias.study.conversion import convert as convert_results

    conversions = convert_results(folder)
    count = sum(conversion.written is not None for conversion in conversions)
    last = f"{count:,} of {len(conversions):,} files of posbias 0.1 converted in {folder}"
    answer = {"files": [conversion.as_dict() for conversion in conversions], "converted": count}
    answer_with("study-convert/1", answer, lambda: [*map(str, conversions), last], json)
