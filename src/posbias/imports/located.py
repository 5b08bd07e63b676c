"""Where in its input an answer stands: for tasks that do not say where they put it."""

from collections.abc import Sequence
from pathlib import Path

from posbias.errors import InputFileError


def place_of(answer: str, text: str) -> float | None:
    """The share of the text before the answer, 0 to below 1; None unless it stands there exactly once."""
    if not answer or text.count(answer) != 1:
        return None
    return text.index(answer) / len(text)


def left_out(kept: int, every: int, path: Path, names: Sequence[str] = ()) -> str:
    """How many answers were left out for that, in words. Raises `InputFileError` where all were."""
    if kept == every:
        return ""
    also = f", or a place in {' or '.join(names)}," if names else ""
    if not kept:
        raise InputFileError(
            f"{path}: no answer stands exactly once in its input; one that does{also} needed"
        )
    return f", {every - kept} of {every} left out whose answer does not stand once in the input"
