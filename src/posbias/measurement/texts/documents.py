"""A text as documents, and what a document is made of.

A text is a tuple of documents in a fixed order and a SHA-256.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from posbias.core.errors import InputFileError, nearest

COLUMN = "text"
BETWEEN = "\n\n"


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
        return BETWEEN.join(self.documents)


def sha256_of_documents(documents: Iterable[str]) -> str:
    """Return the SHA-256 over documents, each preceded by its length in bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for document in documents:
        content = document.encode()
        digest.update(f"{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def document_of(row: Any, column: str, where: str) -> str:
    """Return the text in `column` of a row. Raises `InputFileError` that names `where` when there is none."""
    if not isinstance(row, Mapping):
        raise InputFileError(f"{where} holds {_short(row)}, an object with the column {column!r} needed")
    if column not in row:
        raise InputFileError(
            f"{where} has no column {column!r}, it has {', '.join(map(repr, row)) or 'none'}"
            f"{nearest(column, map(str, row))}"
        )
    if not isinstance(row[column], str):
        raise InputFileError(f"{where} holds {_short(row[column])} in {column!r}, a string needed")
    try:
        row[column].encode()
    except UnicodeEncodeError as error:  # JSON can spell half a character
        raise InputFileError(f"{where} holds half a surrogate pair in {column!r}, text needed") from error
    return row[column]


def _short(value: Any) -> str:
    word = repr(value)
    return word if len(word) <= 40 else f"{word[:37]}..."
