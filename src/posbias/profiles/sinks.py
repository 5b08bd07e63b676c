"""Attention by key: how much a key receives, and the metric of attention sinks.

Both are shares of the queries that can see the key, so that uniform attention and windows compare:

    sink_j(τ) = Σ_i 1{A_ij > τ} / Σ_i M_ij,  M the mask  (Wu et al. 2025, Appendix K.4, after Gu et al. 2025)

Uniform causal attention is no zero of the metric: at τ = .2 its first four rows exceed τ.
"""

import numpy as np
from jaxtyping import Bool, Float, Num

THRESHOLD = 0.2
"""τ of Wu et al. 2025."""


def received(
    attention: Float[np.ndarray, "*batch query key"], allowed: Bool[np.ndarray, "query key"]
) -> Float[np.ndarray, "*batch key"]:
    """The attention each key receives, mean over the queries that see it; NaN where none does."""
    return over_seers(attention.sum(axis=-2, dtype=np.float64), allowed.sum(axis=0))


def sink_metric(
    attention: Float[np.ndarray, "*batch query key"],
    allowed: Bool[np.ndarray, "query key"],
    threshold: float = THRESHOLD,
) -> Float[np.ndarray, "*batch key"]:
    """The share of the queries seeing a key that give it more than `threshold`; NaN where none sees it."""
    return over_seers((attention > threshold).sum(axis=-2), allowed.sum(axis=0))


def over_seers(
    sums: Num[np.ndarray, "*batch key"], seers: Num[np.ndarray, "key"]
) -> Float[np.ndarray, "*batch key"]:
    """Sums over queries, divided by how many queries see each key; NaN where none does."""
    empty = np.full(sums.shape, np.nan)
    return np.divide(sums, seers, out=empty, where=np.broadcast_to(seers > 0, sums.shape))
