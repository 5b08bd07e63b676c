"""Attention kernels as dense matrices: the reference for the sweep, and the way of measured kernels.

A kernel is row-stochastic: entry (i, j) is what query i draws from key j. A transition mixes it with the
identity, R = (1 − λ)I + λA; a rollout is the product of transitions, top layer leftmost.
"""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.errors import wrong
from posbias.theory.architecture import Layer
from posbias.theory.normalisers import Softmax

Row = Float[np.ndarray, "key"]
"""What one query draws from every key."""
Kernel = Float[np.ndarray, "query key"]
FLOOR = 1e-290
"""Entries and sums below this are taken as zero; entries above 1e-250 are not affected at 1e-12 relative."""


def masked_softmax(
    logits: Float[np.ndarray, "*heads query key"],
    allowed: Bool[np.ndarray, "query key"],
    sink: float | Float[np.ndarray, "query 1"] = -np.inf,
) -> Float[np.ndarray, "*heads query key"]:
    """Softmax over keys where `allowed`, zero elsewhere (Herasimchyk et al. 2026, §3), in float64.

    `sink` is the logit of a learned sink next to the keys, one for all queries or one for each: rows then sum to
    less than one. A logit of −∞ is masked.

    Raises `InvalidValueError` for an admissible logit that is NaN or +∞, or a query that may see no key.
    """
    logits = np.asarray(logits, dtype=np.float64)
    masked = np.where(allowed, logits, -np.inf)
    if not (masked < np.inf).all():
        raise wrong("logits", "finite numbers or −∞ where the mask admits keys", got="NaN or +∞")
    if not (masked > -np.inf).any(axis=-1).all():
        raise wrong("allowed", "at least one key for each query", got="none for one")
    return Softmax().weights_of(masked, sink)


def layer_kernel(layer: Layer, tokens: int) -> Kernel:
    """The attention kernel of a layer, heads averaged by their weights: n×n float64.

    Rows sum to one, or to less where a learned sink draws its share; with another normaliser than softmax to
    what that gives.
    """
    allowed = layer.mask.allowed(tokens)
    fixed = layer.head_logits
    kernel = np.zeros((tokens, tokens))
    sinks = layer.sink_logits(np.arange(tokens))
    for logits, sink, weight in zip(layer.logits(tokens), sinks, fixed.weights, strict=True):
        if isinstance(layer.normaliser, Softmax):
            kernel += weight * masked_softmax(logits, allowed, sink[:, None])
        else:
            kernel += weight * layer.at(tokens).normaliser.weights_of(np.where(allowed, logits, -np.inf))
    return kernel


def distinct_rows(rows: Float[np.ndarray, "row entry"]) -> tuple[list[int], list[int]]:
    """The first row of each kind of equal ones, and of which kind each row is."""
    firsts: dict[bytes, int] = {}
    first_of = [firsts.setdefault(row.tobytes(), place) for place, row in enumerate(rows)]
    kinds = {place: kind for kind, place in enumerate(firsts.values())}
    return list(kinds), [kinds[first] for first in first_of]


def push(row: Row, kernels: Iterable[Kernel], mixing: Iterable[float]) -> Row:
    """row · R_T ⋯ R_1 for kernels and mixing coefficients given **top layer first**; never matrix by matrix."""
    for kernel, lam in zip(kernels, mixing, strict=True):
        row = (1.0 - lam) * row + lam * through(row, kernel)
    return row


def through(
    row: Float[np.ndarray, "row"], matrix: Float[np.ndarray, "row entry"]
) -> Float[np.ndarray, "entry"]:
    """row · matrix with the same bits for any number of threads, which BLAS does not promise."""
    return np.einsum("i,ij->j", row, matrix)
