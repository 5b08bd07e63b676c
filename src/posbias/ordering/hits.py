"""Documents with scores from a file of JSON lines, as retrievers write them."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.arguments import is_number, shortened
from posbias.errors import InputFileError
from posbias.input_files import JsonLine, json_lines, read_text
from posbias.signatures import typed

SCORES = ("score", "relevance_score", "similarity")
LENGTHS = ("tokens", "length")
TEXTS = ("text", "document", "content", "page_content")


@dataclass(frozen=True)
class Hits:
    """The lines as they are, a score and a length for each, and in what `unit` lengths are."""

    lines: tuple[str, ...]
    scores: Float[np.ndarray, "document"]
    lengths: Float[np.ndarray, "document"]
    unit: str


@typed
def read_hits(path: str | os.PathLike[str]) -> Hits:
    """Read documents, one JSON object a line with one of `SCORES` and one of `LENGTHS` or `TEXTS`.

    Without lengths, characters of the texts count. Raises `InputFileError` naming line and key.
    """
    lines = list(json_lines(read_text(path), path))
    if not lines:
        raise InputFileError(f"{path}: no line given, one JSON object for each document needed")
    measured = all(any(key in line.columns for key in LENGTHS) for line in lines)
    keys = LENGTHS if measured else TEXTS
    sizes = [_of(line, keys) for line in lines]
    lengths = np.array([float(one) if measured else float(len(one)) for one in sizes])
    scores = np.array([float(_of(line, SCORES)) for line in lines])
    return Hits(tuple(line.text for line in lines), scores, lengths, "tokens" if measured else "characters")


def _of(line: JsonLine, keys: tuple[str, ...]) -> Any:
    """What the first of these keys holds: a text, or else a number ≥ 0."""
    known = next((key for key in keys if key in line.columns), None)
    if known is None:
        raise InputFileError(f"{line.where}: has none of {', '.join(keys)}, one needed")
    found = line.columns[known]
    right = (
        isinstance(found, str) and found
        if keys is TEXTS
        else is_number(found) and np.isfinite(found) and found >= 0
    )
    if not right:
        what = "a text" if keys is TEXTS else "a number ≥ 0"
        raise InputFileError(f"{line.where}: {known}: {shortened(found)} given, {what} needed")
    return found
