"""Orders in which options stand: every option in every slot equally often."""

from itertools import permutations

import numpy as np
from jaxtyping import Int

from posbias.core.errors import InvalidValueError

MOST_WHOLE = 4
"""Up to so many options every order is asked."""


def williams(count: int) -> Int[np.ndarray, "order slot"]:
    """A Williams square (1949): every option in each slot equally often, and behind every other one equally often.

    `count` orders for an even number of options, twice as many for an odd one.
    """
    steps = np.arange(count)
    zigzag = np.where(steps % 2, (steps + 1) // 2, -(steps // 2))
    square = (zigzag + steps[:, None]) % count
    return square if count % 2 == 0 else np.vstack([square, square[:, ::-1]])


def orders_of(count: int, most: int | None = None) -> Int[np.ndarray, "order slot"]:
    """The orders that `count` options are asked in: all of them up to `MOST_WHOLE`, else a Williams square.

    Where fewer are wanted (`most`), a square, or the rotations of one order: slots are balanced in each of them.
    Raises `InvalidValueError` for fewer than there are options.
    """
    square = williams(count)
    whole = [np.array([*permutations(range(count))])] if count <= MOST_WHOLE else []
    fitting = [held for held in (square[:count], square, *whole) if most is None or len(held) <= most]
    if not fitting:
        raise InvalidValueError(f"orders: expected at least the {count} of so many options, got {most}")
    return fitting[-1]


def labels_of(count: int, item: int) -> Int[np.ndarray, "slot"]:
    """By slot the label that is shown there: rotated from item to item, so that slots and labels part."""
    return (np.arange(count) + item) % count
