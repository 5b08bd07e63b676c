"""Rollouts by dense products: the plain algorithm, which every engine is held against."""

from collections.abc import Iterable

import numpy as np

from posbias.theory.architecture import Architecture
from posbias.theory.rollout.kernel import Row, layer_kernel, push, through


def last_row(kernels: Iterable[np.ndarray], mixing: Iterable[float], query: int = -1) -> np.ndarray:
    """The row of a query of ∏ (1 − λ)I + λA, bottom first."""
    product = None
    for kernel, lam in zip(kernels, mixing, strict=True):
        step = (1 - lam) * np.eye(len(kernel)) + lam * kernel
        product = step if product is None else step @ product
    assert product is not None
    return product[query]


def dense_influence(architecture: Architecture, tokens: int, query: int = -1) -> Row:
    """The rollout's row of `query` by the definition, in O(depth · heads · n²): the plain algorithm."""
    row = np.zeros(tokens)
    row[query] = 1.0
    if architecture.streams is not None:
        states, connections = architecture.streams.begin(row), architecture.streams.of(architecture.depth)
        parts = zip(architecture.stack, architecture.coefficients, connections, strict=True)
        for layer, lam, connection in list(parts)[::-1]:
            kernel = layer_kernel(layer, tokens)
            states, _ = connection.push(
                lam, states, lambda asked, kernel=kernel: (through(asked, kernel), 0.0)
            )
        return states.sum(axis=0)
    kernels = (layer_kernel(layer, tokens) for layer in reversed(architecture.stack))
    return push(row, kernels, architecture.coefficients[::-1])
