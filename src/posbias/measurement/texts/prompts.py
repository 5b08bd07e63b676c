"""Prompts: a text cut into windows, or its documents' beginnings, some of them drawn.

Packed, the running text is tokenised once, without special tokens, and cut into windows that do not overlap
(a text of over a million characters is tokenised in pieces).
Not packed, every prompt is the beginning of another document. Either begins with the special tokens that the
tokenizer writes before a text, if any (`bos_of`), which count among its tokens. A seeded draw without
replacement takes as many as asked; it depends on the text, the tokenizer, the lengths and the seed, and on
nothing else measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from posbias.core import machine
from posbias.core.errors import InputFileError, whole, wrong
from posbias.measurement.texts.corpora import Text

# a tokenizer takes about 150 bytes of memory for each character
_PIECE = 1_000_000


@dataclass(frozen=True)
class Prompts:
    """Token ids of the prompts in the order drawn, and where they come from.

    `starts`: packed, the token at which each begins in the tokenised text; else 0, the document's first.
    `documents`: the document that each begins, counted from 0, or None when packed. `left_out`: how many
    documents met in the draw were too short.
    """

    ids: Int[np.ndarray, "prompt position"]
    starts: Int[np.ndarray, "prompt"]
    documents: Int[np.ndarray, "prompt"] | None = None
    left_out: int = 0

    def place(self, index: int) -> str:
        """Return in words where prompt `index` was taken from."""
        if self.documents is None:
            return f"tokens from {self.starts[index]}"
        return f"document {self.documents[index]}"


def check_counts(tokens: int, prompts: int, seed: int) -> None:
    """Raise `InvalidValueError` unless tokens ≥ 2, prompts ≥ 1 and seed ≥ 0, all integers."""
    whole("tokens", tokens, 2)
    whole("prompts", prompts, 1)
    machine.stream(seed, "prompts")


def bos_of(tokenizer: Any, text: Text, bos: bool | None = None) -> tuple[int, ...]:
    """Ids of the special tokens that begin a prompt: by default those that the tokenizer writes before a text.

    An encoder's are its [CLS]; what is written after a text ([SEP], EOS) is left out, since prompts are cut from
    longer texts. True: its BOS (or [CLS]) also where it writes none; False: none. Raises `InvalidValueError` for
    True without such a token, and for a tokenizer that changes a text's tokens where it adds its own.
    """
    if bos is False:
        return ()
    sample = next((one for one in text.documents if one.strip()), "a")[:200]
    found = (tokenizer(sample, add_special_tokens=added, verbose=False) for added in (False, True))
    plain, full = (one["input_ids"] for one in found)
    starts = (k for k in range(len(full) - len(plain) + 1) if full[k : k + len(plain)] == plain)
    before = next(starts, None)
    if before is None:
        raise wrong("bos", "False (--no-bos) for a tokenizer that changes a text's own tokens", got="None")
    if before or bos is None:
        return tuple(full[:before])
    names = ("bos_token_id", "cls_token_id")
    known = [one for name in names if (one := getattr(tokenizer, name, None)) is not None]
    if not known:
        raise wrong("bos", "False or None for a tokenizer without a BOS token", got="True")
    return (known[0],)


def prompts_from(
    tokenizer: Any,
    text: Text,
    *,
    tokens: int,
    prompts: int,
    seed: int,
    packed: bool = True,
    scramble: bool = False,
    minimum_tokens: int | None = None,
    bos: tuple[int, ...] = (),
) -> Prompts:
    """Draw `prompts` prompts of `tokens` tokens from a text, without replacement.

    `packed`: windows of the running text; else the beginnings of documents, one prompt each. `minimum_tokens`:
    documents shorter than this are left out (default: none when packed, else those shorter than `tokens`).
    `bos`: ids that every prompt begins with, counted among its `tokens` (`bos_of`). `scramble`: shuffle the
    tokens of each prompt by the seed, which leaves the architecture and takes the content's order; the prompts
    drawn are the same, token for token.

    Raises `InputFileError` when the text has fewer windows or documents than asked, `InvalidValueError` for
    bad counts.
    """
    check_counts(tokens, prompts, seed)
    if len(bos) >= tokens:
        raise wrong("tokens", f"more than the {len(bos)} that begin a prompt", tokens)
    tokens -= len(bos)
    if minimum_tokens is None:
        minimum_tokens = 0 if packed else tokens
    else:
        whole("minimum_tokens", minimum_tokens, 1 if packed else tokens)
    draw = _windows if packed else _beginnings
    drawn = draw(tokenizer, text, tokens, prompts, seed, minimum_tokens)
    drawn = _scrambled(drawn, seed) if scramble else drawn
    begins = np.tile(np.array(bos, np.int64), (prompts, 1))
    return replace(drawn, ids=np.hstack([begins, drawn.ids])) if bos else drawn


def _windows(tokenizer: Any, text: Text, tokens: int, prompts: int, seed: int, minimum: int) -> Prompts:
    long = [one for one in text.documents if not minimum or _ids(tokenizer, one).size >= minimum]
    left_out = len(text.documents) - len(long)
    ids = _ids(tokenizer, replace(text, documents=tuple(long)).content)
    windows = ids.size // tokens
    note = f" ({left_out} documents shorter than {minimum} tokens left out)" if left_out else ""
    if windows < 1:
        size = f"{ids.size} tokens{note}, shorter than one prompt of {tokens} tokens"
        raise InputFileError(f"text: {text.name} has {size}")
    if windows < prompts:
        raise InputFileError(
            f"text: {text.name} has {windows} windows of {tokens} tokens{note}, {prompts} prompts asked; "
            f"give a longer text or at most {windows} prompts"
        )
    drawn = machine.stream(seed, "prompts").choice(windows, size=prompts, replace=False)
    return Prompts(ids[: windows * tokens].reshape(windows, tokens)[drawn], drawn * tokens, None, left_out)


def _beginnings(tokenizer: Any, text: Text, tokens: int, prompts: int, seed: int, minimum: int) -> Prompts:
    """Go through the documents in a random order until enough are long enough: no more are tokenised."""
    rows, documents, left_out = [], [], 0
    for document in machine.stream(seed, "prompts").permutation(len(text.documents)):
        ids = _ids(tokenizer, text.documents[document])
        if ids.size < minimum:
            left_out += 1
            continue
        rows.append(ids[:tokens])
        documents.append(document)
        if len(rows) == prompts:
            starts = np.zeros(prompts, np.int64)
            return Prompts(np.stack(rows), starts, np.array(documents, np.int64), left_out)
    raise InputFileError(
        f"text: {text.name} has {len(text.documents)} documents, {left_out} of them shorter than {minimum} "
        f"tokens; {len(rows)} are left, {prompts} prompts asked; give more documents or ask for less"
    )


def _scrambled(drawn: Prompts, seed: int) -> Prompts:
    """Shuffle each prompt by a generator of its own, so that it does not depend on how many there are."""
    rows = [
        np.random.default_rng(machine.sequence(seed, "scramble", index)).permutation(ids)
        for index, ids in enumerate(drawn.ids)
    ]
    return Prompts(np.stack(rows), drawn.starts, drawn.documents, drawn.left_out)


def _ids(tokenizer: Any, characters: str) -> Int[np.ndarray, "token"]:
    """Return token ids, without special tokens; long texts are tokenised in pieces, for memory's sake."""
    found = [
        np.asarray(tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int32)
        for piece in _pieces(characters)
    ]
    return np.concatenate(found).astype(np.int64)


def _pieces(characters: str) -> Iterator[str]:
    """Yield stretches of at most a million characters, cut before a line break or else a blank, if any."""
    start = 0
    while len(characters) - start > _PIECE:
        last = start + _PIECE
        breaks = (characters.rfind(mark, start + 1, last + 1) for mark in ("\n", " "))
        cut = next((place for place in breaks if place > start), last)
        yield characters[start:cut]
        start = cut
    yield characters[start:]
