"""How a claim of the paper becomes a margin.

Finite depth: a claim of first-order dominance has a signed margin, the least difference of two prefix
masses, of a row of the rollout (`rollout_row`); it is tight to rounding (`rounded`). Bounds: what is left
between value and bound, in units of the larger (`room`), so that margins of networks that grow can be
compared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.theory.rollout.kernel import push
from posbias.verify.statement import Instance, Reading, Statement

SOURCE = "herasimchyk2026"
ROUNDING = 1e-12
"""What prefix masses of a few layers in float64 may be off by."""

Draw = Callable[[Generator, bool], Instance]


def room(value: Any, bound: Any) -> float:
    """The least of bound − value, in units of the larger of the two (both ≥ 0): within [−1, 1]."""
    value, bound = np.broadcast_arrays(np.asarray(value, dtype=float), np.asarray(bound, dtype=float))
    larger = np.maximum(value, bound)
    return float(np.divide(bound - value, larger, out=np.zeros(larger.shape), where=larger > 0).min())


def rollout_row(kernels: Any, mixing: Any, query: int = -1) -> Float[np.ndarray, "key"]:
    """Row `query` of the rollout of kernels (layer × query × key, bottom first) with λ of each layer."""
    kernels = np.asarray(kernels, dtype=float)
    row = np.eye(kernels.shape[-1])[query]
    return push(row, kernels[::-1], np.asarray(mixing, dtype=float)[::-1])


def rounded(claim: str, draw: Draw, slack: Callable[[Instance], float]) -> Reading:
    """A reading about prefix masses, tight to rounding."""
    return Reading(claim, draw, slack, ROUNDING)


def statement(key: str, name: str, as_printed: Reading, **others: Any) -> Statement:
    """A statement of this paper; its key is herasimchyk-`key`."""
    return Statement(f"herasimchyk-{key}", name, SOURCE, as_printed, **others)
