"""Documents with scores from a file of JSON lines, as retrievers write them."""

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.arguments import is_number, shortened
from posbias.errors import InputFileError
from posbias.input_files import read_text
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
    rows, lines = [], []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputFileError(f"{path}: line {number}: not valid JSON ({error})") from None
        if not isinstance(row, dict):
            raise InputFileError(f"{path}: line {number}: {shortened(row)} given, a JSON object needed")
        rows.append((number, row))
        lines.append(line.rstrip("\r"))
    if not rows:
        raise InputFileError(f"{path}: no line given, one JSON object for each document needed")
    measured = all(any(key in row for key in LENGTHS) for _, row in rows)
    keys = LENGTHS if measured else TEXTS
    sizes = [_of(path, number, row, keys) for number, row in rows]
    lengths = np.array([float(one) if measured else float(len(one)) for one in sizes])
    scores = np.array([float(_of(path, number, row, SCORES)) for number, row in rows])
    return Hits(tuple(lines), scores, lengths, "tokens" if measured else "characters")


def _of(path: Any, number: int, row: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """What the first of these keys holds: a text, or else a number ≥ 0."""
    known = next((key for key in keys if key in row), None)
    if known is None:
        raise InputFileError(f"{path}: line {number}: has none of {', '.join(keys)}, one needed")
    found = row[known]
    right = (
        isinstance(found, str) and found
        if keys is TEXTS
        else is_number(found) and np.isfinite(found) and found >= 0
    )
    if not right:
        what = "a text" if keys is TEXTS else "a number ≥ 0"
        raise InputFileError(f"{path}: line {number}: {known}: {shortened(found)} given, {what} needed")
    return found
