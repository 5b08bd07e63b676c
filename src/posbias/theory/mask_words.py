"""Masks in words, as commands and spec files write them: causal, full, window=9, prefix=4."""

from posbias.arguments import shortened
from posbias.errors import InvalidValueError, nearest
from posbias.signatures import typed
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow

MASKS = ("causal", "full", "window=WIDTH", "prefix=LENGTH")
"""The masks as commands write them."""


@typed
def mask_of(word: str) -> Mask:
    """The mask that a word means. Raises `InvalidValueError` for an unknown word, naming the nearest."""
    name, equals, size = word.partition("=")
    plain, sized = {"causal": Causal(), "full": Full()}, {"window": SlidingWindow, "prefix": Prefix}
    if name in plain and not equals:
        return plain[name]
    if name not in sized or not equals:
        known = [*plain, *sized]
        hint = "" if name in known else nearest(name, known)
        raise InvalidValueError(f"mask: {shortened(word)} given, one of {', '.join(MASKS)} needed{hint}")
    try:
        number = int(size)
    except ValueError:
        raise InvalidValueError(f"mask: {shortened(word)} given, an integer after {name}= needed") from None
    if number < 1:
        raise InvalidValueError(f"mask: {shortened(word)} given, at least {name}=1 needed")
    return sized[name](number)
