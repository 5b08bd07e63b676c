"""What may change: quantities of an architecture, each with the values it may take, and all their combinations.

    Space(architecture, {"window": [64, 256, 1024], "full_period": [1, 2, 4, 8]})

Quantities are those of `posbias.theory.variation`; where several change, they change in the order of that table:
depth before windows, windows before the period of full layers. A point is a tuple of places in lists of values.
`toml_of` writes an architecture that was chosen.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from posbias.core.errors import InvalidValueError, one_of, shortened
from posbias.core.spec import encode
from posbias.theory.architecture import Architecture
from posbias.theory.masks import Banded, Mask, Split
from posbias.theory.variation import QUANTITIES

Point = tuple[int, ...]
MOST = 10**12
"""Combinations that a space may have at most."""


@dataclass(frozen=True, eq=False)
class Space:
    """A base architecture and the values of each quantity that may change.

    Raises `InvalidValueError` for no quantity, an unknown one, `tokens`, a list that is empty or has a value
    twice, a value that no architecture can take, and more than `MOST` combinations.
    """

    base: Architecture
    varied: Mapping[str, Sequence[float]]

    def __post_init__(self):
        if not self.varied:
            raise InvalidValueError("vary: expected a quantity that may change, got none")
        for name, values in self.varied.items():
            quantity = QUANTITIES[one_of("vary", name, [one for one in QUANTITIES if one != "tokens"])]
            if not len(values) or len(set(values)) < len(values):
                raise InvalidValueError(
                    f"vary: expected different values of {name}, got {shortened(list(values))}"
                )
            for one in values:
                quantity.check(one)
        if self.size > MOST:
            raise InvalidValueError(f"vary: expected at most {MOST:,} combinations, got {self.size:,}")

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities, in the order in which they change an architecture."""
        return tuple(name for name in QUANTITIES if name in self.varied)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each quantity has."""
        return tuple(len(self.varied[name]) for name in self.names)

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return math.prod(self.shape)

    def points(self) -> Iterator[Point]:
        """All of them, the last quantity's values changing first."""
        return product(*map(range, self.shape))

    def values(self, point: Point) -> dict[str, float]:
        """What each quantity is at a point."""
        return {name: self.varied[name][place] for name, place in zip(self.names, point, strict=True)}

    def architecture(self, point: Point) -> Architecture:
        """The architecture there. Raises `InvalidValueError` where values do not go together."""
        architecture = self.base
        for name, number in self.values(point).items():
            whole = QUANTITIES[name].span.whole and float(number).is_integer()
            architecture = QUANTITIES[name].change(architecture, int(number) if whole else number)
        return architecture


def cached_keys(architecture: Architecture, tokens: int) -> int:
    """How many pairs of a key and a value vector a decoder keeps for the next token, behind a text of `tokens`.

    Over layers and key-value heads (`groups`, else heads): under a window its width and the sinks, under chunks
    one chunk, else as far as the mask looks back. Bytes per pair, and what a program adds, are not in it.
    """
    return sum((layer.groups or layer.heads) * _kept(layer.mask, tokens) for layer in architecture.stack)


def _kept(mask: Mask, tokens: int) -> int:
    """How many keys a layer must keep at most, at any place of the text."""
    if isinstance(mask, Banded):
        band = mask.band().at(tokens)
        return min(tokens, max(band.behind + 1 + band.always, band.prefix))
    if isinstance(mask, Split):
        starts = (*mask.pieces(tokens), tokens)
        return max(end - start for start, end in pairwise(starts))
    return min(tokens, mask.farthest(tokens) + 1)


def toml_of(architecture: Architecture, remarks: tuple[str, ...] = (), *, tokens: int | None = None) -> str:
    """An architecture in TOML that `posbias predict` reads, `remarks` as comments above it; a line for each layer.

    `tokens` is the length of text that it is meant for, which commands then take where none is asked for.
    Numbers are written in full, and what is None is left out, as it is the default. Raises `InvalidValueError` as
    `encode`.
    """
    lines = [f"# {line}" for remark in remarks for line in remark.splitlines()]
    lines += [] if tokens is None else [f"tokens = {tokens}"]
    for key, held in encode(architecture).items():
        if key == "layers":
            lines += [f"{key} = [", *(f"  {_toml(layer)}," for layer in held), "]"]
        elif held is not None:
            lines.append(f"{key} = {_toml(held)}")
    return "\n".join(lines) + "\n"


def _toml(held: Any) -> str:
    if isinstance(held, Mapping):
        inner = (f"{_key(key)} = {_toml(one)}" for key, one in held.items() if one is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(held, list):
        return f"[{', '.join(map(_toml, held))}]"
    if isinstance(held, str):
        # JSON leaves DEL as it is, which TOML does not have
        return json.dumps(held, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(held)


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)
