"""A rollout by dense products."""

from collections.abc import Iterable

import numpy as np


def last_row(kernels: Iterable[np.ndarray], mixing: Iterable[float], query: int = -1) -> np.ndarray:
    """The row of a query of ∏ (1 − λ)I + λA, bottom first."""
    product = None
    for kernel, lam in zip(kernels, mixing, strict=True):
        step = (1 - lam) * np.eye(len(kernel)) + lam * kernel
        product = step if product is None else step @ product
    assert product is not None
    return product[query]
