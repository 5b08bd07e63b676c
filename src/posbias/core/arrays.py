"""Numbers that somebody hands over, whoever holds them: NumPy, torch, SciPy's sparse matrices, lists."""

from typing import Any

import numpy as np

from posbias.core.errors import wrong


def numbers(name: str, given: Any) -> np.ndarray:
    """An array of what NumPy can read, tensors of torch in any float and sparse ones among them.

    Raises `InvalidValueError`, naming the argument, for what holds no real numbers, and for masked arrays, whose
    masks would be lost.
    """
    if isinstance(given, np.ma.MaskedArray):
        raise wrong(name, "an array without a mask (.filled(…), .compressed())", got="a masked one")
    try:
        if hasattr(given, "detach"):
            held = given.detach().cpu().to_dense()
            given = (
                held.float() if "float8" in str(held.dtype) or "bfloat16" in str(held.dtype) else held
            ).numpy()
        elif hasattr(given, "toarray"):
            given = given.toarray()
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError):
        array = np.array(None)
    if array.dtype.kind not in "fiu":
        kind = {"b": "booleans", "c": "complex numbers"}.get(array.dtype.kind, type(given).__name__)
        raise wrong(name, "an array of numbers", got=kind)
    return array
