"""Attention sinks: tokens that draw more than their share, and the massive activations behind them.

A sink shows in the columns of the attention: how much a key receives, and in how many rows it receives more
than τ (`sinks` defines both). Here they are summed block by block of the queries. Sinks go with a residual
stream whose norm at one token is many times that of the others.
"""

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.measurement.quantities.block_sums import received
from posbias.profiles.sinks import THRESHOLD, over_seers


class Received:
    """What each key receives, summed over queries in float64; `add` takes each query once, in any order."""

    def __init__(self, heads: int, tokens: int, threshold: float = THRESHOLD):
        self._threshold = threshold
        self._total = np.zeros((heads, tokens))
        self._above = np.zeros((heads, tokens))
        self._seers = np.zeros(tokens)
        self._of_first_query = np.zeros(heads)

    def add(
        self, start: int, attention: Float[Tensor, "head query key"], unseen: Bool[Tensor, "query key"]
    ) -> None:
        """Add the rows of queries `start`, `start` + 1, …, whose attention is 0 where `unseen`.

        A block may end with the last key that any of its queries sees.
        """
        keys = attention.shape[2]
        total, above = received(attention, self._threshold)
        self._total[:, :keys] += total
        self._above[:, :keys] += above
        self._seers[:keys] += (~unseen).sum(dim=0).cpu().numpy()
        if start == 0:
            self._of_first_query = attention[:, 0, 0].double().cpu().numpy()

    def mean(self) -> Float[np.ndarray, "head key"]:
        """Return the attention each key receives, mean over the queries that see it; NaN where none does."""
        return over_seers(self._total, self._seers)

    def metric(self) -> Float[np.ndarray, "head key"]:
        """Return the share of the queries seeing a key that give it more than τ; NaN where none does."""
        return over_seers(self._above, self._seers)

    def first_token(self) -> Float[np.ndarray, "head"]:
        """Return the attention that token 0 receives, mean over all queries that have a choice (i ≥ 1)."""
        return (self._total[:, 0] - self._of_first_query) / (self._total.shape[1] - 1)

    def missing(self) -> Float[np.ndarray, "head"]:
        """Return 1 − the mean row sum: what goes to learned sinks; without them rounding, about 1e-7."""
        return 1 - self._total.sum(axis=1) / self._total.shape[1]


def massive(norms: Float[np.ndarray, "position"]) -> tuple[float, int]:
    """Return the largest norm of a residual stream over the median one, and the position that has it.

    A ratio near one says that no token is massive. Infinite where the median is 0.
    """
    token = int(norms.argmax())
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(norms[token] / np.median(norms)), token
