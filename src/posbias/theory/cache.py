"""What a decoder keeps and reads for each next token: keys and values, and their size in memory.

    cache_of(preset("llama-3-8b"), 131_072).size / 2**30     # 16.0 GiB in bfloat16

Over layers and key-value heads (`groups`, else heads): under a window its width and the sinks, under chunks one
chunk, else as far as the mask looks back. States of linear attention and convolutions hold no keys, and are not
counted; neither are scales of quantised numbers, indexers, and what a program keeps besides.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from posbias.core.errors import one_of, whole
from posbias.theory.configs import AnyArchitecture, load_architecture
from posbias.theory.huggingface import is_attention
from posbias.theory.masks import Banded, Mask, Split

DTYPES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes of a number that is kept."""


@dataclass(frozen=True)
class Cache:
    """What is kept behind a text for its next token, in numbers of `dtype`."""

    keys: int
    """Pairs of a key and a value vector that are kept."""
    read: int
    """Those that the last token attends to."""
    size: float | None
    """Bytes of all pairs; None where a layer does not say how many numbers each has (`Layer.cached`)."""
    dtype: str

    def __str__(self) -> str:
        size = f"{gigabytes(self.size)} in {self.dtype} ({self.keys:,} keys)"
        return f"KV cache: {size}; {self.read:,} keys read for each token"


def gigabytes(size: float | None) -> str:
    """'16.8 GB', of 10⁹ bytes."""
    return "size not known" if size is None else f"{size / 1e9:.3g} GB"


def cache_of(architecture: AnyArchitecture, tokens: int, dtype: str = "bfloat16") -> Cache:
    """The cache of an architecture behind a text of `tokens` tokens, in numbers of a type of `DTYPES`.

    Raises `InvalidValueError` for tokens < 1 and another type.
    """
    number = DTYPES[one_of("cache_dtype", dtype, DTYPES)]
    keys, read, size = 0, 0, 0.0
    for layer, times in Counter(load_architecture(architecture).stack).items():
        if layer.cached == 0 or (layer.cached is None and not is_attention(layer)):
            continue
        heads = times * (layer.groups or layer.heads)
        kept, seen = (heads * count for count in _keys(layer.mask, whole("tokens", tokens, 1)))
        keys, read = keys + kept, read + seen
        size += kept * number * (math.nan if layer.cached is None else layer.cached)
    return Cache(keys, read, None if math.isnan(size) else size, dtype)


def _keys(mask: Mask, tokens: int) -> tuple[int, int]:
    """How many keys a layer must keep at most, at any place of the text, and how many its last token sees."""
    if isinstance(mask, Banded):
        band = mask.band().at(tokens)
        kept = min(tokens, max(band.behind + 1 + band.always, band.prefix))
        return kept, kept
    if isinstance(mask, Split):
        pieces = np.diff([*mask.pieces(tokens), tokens]).tolist()
        return max(pieces), pieces[-1]
    return min(tokens, mask.farthest(tokens) + 1), mask.keys(tokens - 1, tokens).size
