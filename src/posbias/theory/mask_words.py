"""Masks in words, as commands and spec files write them: causal, full, window=9, window=9:2, prefix=4.

A word is a class's own (`word`); behind it stand its numbers, in their order and with colons between.
"""

import dataclasses
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError, nearest
from posbias.theory.masks import MASKS as CLASSES
from posbias.theory.masks import Mask


def _numbers(cls: type) -> list[dataclasses.Field]:
    """The fields that a word's numbers stand for."""
    return [field for field in dataclasses.fields(cls) if not field.kw_only]


def _optional(field: dataclasses.Field) -> bool:
    """Whether a word may leave a number out."""
    return field.default is not dataclasses.MISSING


def _spelling(word: str, cls: type) -> str:
    """How a word is written, for instance dilated=STRIDE[:WIDTH]."""
    names = [(field.name.upper(), _optional(field)) for field in _numbers(cls)]
    text = "".join(f"[:{name}]" if left_out else f":{name}" for name, left_out in names)
    return f"{word}={text.lstrip(':')}" if text else word


_WORDS: dict[str, Any] = {word: cls for cls in CLASSES if (word := getattr(cls, "word", ""))}
_WORDS = {
    word: cls for plain in (True, False) for word, cls in _WORDS.items() if plain != bool(_numbers(cls))
}
MASKS = tuple(_spelling(word, cls) for word, cls in _WORDS.items())
"""The masks as commands write them."""


def mask_of(word: str) -> Mask:
    """The mask that a word means. Raises `InvalidValueError` for an unknown word, naming the nearest."""
    name, equals, sizes = word.partition("=")
    cls = _WORDS.get(name)
    if cls is None or bool(equals) != bool(_numbers(cls)):
        hint = "" if cls is not None else nearest(name, _WORDS)
        raise InvalidValueError(f"mask: {shortened(word)} given, one of {', '.join(MASKS)} needed{hint}")
    given = sizes.split(":") if equals else []
    if len(given) > len(_numbers(cls)):
        raise InvalidValueError(f"mask: {shortened(word)} given, {_spelling(name, cls)} needed")
    try:
        numbers = [int(size) for size in given]
    except ValueError:
        raise InvalidValueError(f"mask: {shortened(word)} given, an integer after {name}= needed") from None
    if numbers and numbers[0] < 1:
        raise InvalidValueError(f"mask: {shortened(word)} given, at least {name}=1 needed")
    try:
        return cls(*numbers)
    except InvalidValueError as error:
        raise InvalidValueError(f"mask: {shortened(word)} given; {error}") from None


def file_word(mask: Mask) -> str:
    """A mask in a file's name: causal, window9, window9+sinks2."""
    word = getattr(mask, "word", "")
    if not word:
        return mask.kind
    first, *others = _numbers(type(mask)) or [None]
    size = "" if first is None else str(getattr(mask, first.name))
    told = (field for field in others if field is not None and getattr(mask, field.name) != field.default)
    return f"{word}{size}" + "".join(f"+{field.name}{getattr(mask, field.name)}" for field in told)
