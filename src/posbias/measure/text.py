"""Prompts: a text cut into windows, some of them drawn.

The whole text is tokenised once, without special tokens, and cut into windows that do not overlap; a seeded
draw without replacement takes as many as asked. Prompts are thus disjoint stretches of running text.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from posbias import seeds
from posbias.errors import InputFileError, InvalidValueError

BUNDLED = "sotu"


@dataclass(frozen=True)
class Text:
    """A text to cut prompts from: its name, its characters and the SHA-256 of its bytes."""

    name: str
    content: str
    sha256: str


@dataclass(frozen=True)
class Prompts:
    """Token ids of the prompts in the order drawn, and where in the tokenised text each begins."""

    ids: Int[np.ndarray, "prompt position"]
    starts: Int[np.ndarray, "prompt"]


def read_text(path: str | Path | None) -> Text:
    """Read a UTF-8 text file, or the bundled State of the Union addresses for `None`.

    Raises `InputFileError` when it is missing, unreadable or not UTF-8.
    """
    if path is None:
        content = (resources.files("posbias.measure") / "data" / "sotu.txt").read_bytes()
        name = BUNDLED
    else:
        path = Path(path)
        if not path.is_file():
            raise InputFileError(
                f"text: {path} {'is no file' if path.exists() else 'does not exist'}, a text file needed"
            )
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputFileError(f"text: {path} cannot be read: {error.strerror or error}") from error
        name = path.name
    try:
        return Text(name, content.decode("utf-8"), hashlib.sha256(content).hexdigest())
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"text: {path} is not UTF-8 (byte {error.start}), a UTF-8 text file needed"
        ) from error


def check_counts(tokens: int, prompts: int, seed: int) -> None:
    """Raise `InvalidValueError` unless tokens ≥ 2, prompts ≥ 1 and seed ≥ 0, all integers."""
    for name, value, least in (("tokens", tokens, 2), ("prompts", prompts, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidValueError(f"{name}: {value!r} given, an integer ≥ {least} needed")
    seeds.stream(seed, "prompts")


def prompts_from(tokenizer: Any, text: Text, *, tokens: int, prompts: int, seed: int) -> Prompts:
    """Cut `text` into windows of `tokens` tokens and draw `prompts` of them without replacement.

    Raises `InputFileError` when the text has fewer windows than asked, `InvalidValueError` for bad counts.
    """
    check_counts(tokens, prompts, seed)
    ids = np.asarray(
        tokenizer(text.content, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int64
    )
    windows = ids.size // tokens
    if windows < 1:
        raise InputFileError(
            f"text: {text.name} has {ids.size} tokens, shorter than one prompt of {tokens} tokens"
        )
    if windows < prompts:
        raise InputFileError(
            f"text: {text.name} has {windows} windows of {tokens} tokens, {prompts} prompts asked; "
            f"give a longer text or at most {windows} prompts"
        )
    drawn = seeds.stream(seed, "prompts").choice(windows, size=prompts, replace=False)
    return Prompts(ids[: windows * tokens].reshape(windows, tokens)[drawn], drawn * tokens)
