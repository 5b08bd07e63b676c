"""Texts that the package `datasets` knows: an id on a hub, or a folder of Parquet, JSON or CSV files.

A split such as `train[100:600]` is streamed, so that five hundred documents of a corpus of terabytes cost no
more than they should; without a network, and for any other split, `datasets` prepares the whole first.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InputFileError, MissingPackageError
from posbias.measurement.texts.documents import COLUMN, document_of

DATASETS = "datasets:"
_FORM = re.compile(
    r"(?P<id>[^:@]+)(@(?P<configuration>[^:]+))?(:(?P<split>[^:\[]+(\[[^\]]*\])?)(:(?P<column>.+))?)?"
)
_SLICE = re.compile(r"(?P<split>[^\[]+)\[(?P<start>\d*):(?P<stop>\d+)\]")


def read_dataset(source: str) -> tuple[str, tuple[str, ...]]:
    """Return a name and the documents of `datasets:ID[@CONFIGURATION][:SPLIT[:COLUMN]]`.

    Raises `InputFileError` when the spelling is wrong, the dataset, split or column is not there, or cannot be
    had; `MissingPackageError` without the package `datasets`.
    """
    form = _FORM.fullmatch(source.removeprefix(DATASETS))
    if form is None:
        raise InputFileError(
            f"text: {shortened(source)} given, {DATASETS}ID[@CONFIGURATION][:SPLIT[:COLUMN]] needed"
        )
    which, split = form["id"], form["split"] or "train"
    column = form["column"] or COLUMN
    if Path(which).expanduser().is_dir():
        # an absolute path is the business of one machine
        which = str(Path(which).expanduser())
        name = source.replace(form["id"], Path(which).resolve().name, 1)
    else:
        name = source
    documents = []
    with _quiet():
        for number, row in enumerate(_rows(source, which, form["configuration"], split)):
            documents.append(document_of(row, column, f"text: {name} row {number}"))
    if not documents:
        raise InputFileError(f"text: {name} has no documents")
    return name, tuple(documents)


def _rows(source: str, which: str, configuration: str | None, split: str) -> Iterator[Any]:
    """Yield the rows of a split in order, streamed when it is a slice with a plain end."""
    import datasets
    from datasets import config as settings

    part = _SLICE.fullmatch(split)
    try:
        if part is None or settings.HF_HUB_OFFLINE:
            rows: Iterable[Any] = datasets.load_dataset(which, configuration, split=split)
        else:
            start, stop = int(part["start"] or 0), int(part["stop"])
            streamed = datasets.load_dataset(which, configuration, split=part["split"], streaming=True)
            rows = islice(streamed, start, stop)
        yield from rows
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        offline = settings.HF_HUB_OFFLINE and not Path(which).is_dir()
        hint = "; HF_HUB_OFFLINE is set, only what is cached can be read" if offline else ""
        raise InputFileError(f"text: {source} could not be loaded: {reason}{hint}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Show the bars of `datasets` on a terminal only. Raises `MissingPackageError` without the package."""
    try:
        import datasets
    except ImportError as error:
        raise MissingPackageError(
            f"{error.name or 'datasets'}: not installed, texts that begin with {DATASETS!r} need it; "
            "run: pip install 'posbias[texts]'"
        ) from error
    showing = datasets.is_progress_bar_enabled()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if showing:
            datasets.enable_progress_bars()
