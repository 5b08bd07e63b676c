"""Logits by where they stand: by distance, on the diagonal, in the first column.

Averages over prompts of whole n × n logit matrices are large and mostly redundant; what the theory uses are
their means along diagonals. They are taken from blocks of queries, so that no n × n matrix is ever held.

Blocks of several queries are put together by Chan's update of count, mean and summed squared deviations.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.errors import InvalidValueError
from posbias.measurement.quantities.block_sums import by_distance, numbers


def hidden(logits: Float[Tensor, "head query key"]) -> Bool[Tensor, "query key"]:
    """Return which keys a query cannot see: where the logits are −∞. All heads must see the same keys."""
    return logits[0].isneginf()


class ByDistance:
    """Count, mean and variance of logits over the pairs at each distance d = i − j ≥ 0, keys j ≥ 1.

    Key 0 is left out: it attracts attention for its own sake. All is in float64; `add` takes blocks of queries
    in any order. With `spread=False` only counts and means are kept, at half the cost: variances and fits then
    raise `InvalidValueError`.
    """

    def __init__(self, heads: int, tokens: int, spread: bool = True):
        self.count = np.zeros(tokens)
        self._mean = np.zeros((heads, tokens))
        self._squares = np.zeros((heads, tokens)) if spread else None

    def add(
        self, start: int, logits: Float[Tensor, "head query key"], unseen: Bool[Tensor, "query key"]
    ) -> None:
        """Add the rows of queries `start`, `start` + 1, …; entries that are `unseen` may hold anything."""
        stop = start + logits.shape[1]
        unseen = unseen[:, :stop].clone()
        unseen[:, 0] = True
        count, mean, squares = by_distance(start, logits[:, :, :stop], unseen, self._squares is not None)
        total = self.count[:stop] + count
        share = count / np.maximum(total, 1)
        change = mean - self._mean[:, :stop]
        if self._squares is not None and squares is not None:
            self._squares[:, :stop] += squares + change**2 * (self.count[:stop] * share)
        self._mean[:, :stop] += change * share
        self.count[:stop] = total

    def mean(self) -> Float[np.ndarray, "head distance"]:
        """Return the means; NaN at distances without a pair, as the last one."""
        return np.where(self.count > 0, self._mean, np.nan)

    def variance(self) -> Float[np.ndarray, "head distance"]:
        """Return the variances over pairs (divided by their number); NaN without a pair."""
        return np.where(self.count > 0, self._deviations() / np.maximum(self.count, 1), np.nan)

    def fit(self) -> "ConstantDiagonal":
        """Return the least-squares fit u + δ·1[i = j] to all pairs j ≤ i, j ≥ 1, with its R².

        It needs no second pass: u is the mean of the pairs j < i, u + δ that of the diagonal. Proposition 4.5
        of Herasimchyk et al. 2026. Without pairs j < i (or, for R², without variance) values are NaN.
        """
        count, squares = self.count[1:], self._deviations()
        pairs, ours = count.sum(), self.count[0]
        if not pairs or not ours:
            empty = np.full(len(squares), np.nan)
            return ConstantDiagonal(empty, empty, empty, empty)
        constant = (self._mean[:, 1:] * count).sum(axis=1) / pairs
        between = (count * (self._mean[:, 1:] - constant[:, None]) ** 2).sum(axis=1)
        off = squares[:, 1:].sum(axis=1) + between
        offset = self._mean[:, 0] - constant
        residual = off + squares[:, 0]
        explained = offset**2 * pairs * ours / (pairs + ours)
        total = residual + explained
        r2 = np.divide(explained, total, out=np.full_like(total, np.nan), where=total > 0)
        return ConstantDiagonal(constant, offset, off / pairs, r2)

    def _deviations(self) -> Float[np.ndarray, "head distance"]:
        if self._squares is None:
            raise InvalidValueError("spread: False given, True needed for variances and fits")
        return self._squares


@dataclass(frozen=True)
class ConstantDiagonal:
    """Content logits as a constant and an offset on the diagonal, per head, in softmax units.

    `variance` is that of the pairs j < i about the constant, `r2` the share of the variance of all pairs that
    constant and offset explain.
    """

    constant: Float[np.ndarray, "head"]
    offset: Float[np.ndarray, "head"]
    variance: Float[np.ndarray, "head"]
    r2: Float[np.ndarray, "head"]


def constant_diagonal(matrix: Float[np.ndarray, "head query key"]) -> ConstantDiagonal:
    """Fit whole content matrices, as the dense mean `content`; NaN marks pairs that are not seen.

    Keys j ≥ 1, as `ByDistance.fit`.
    """
    heads, tokens, _ = matrix.shape
    moments = ByDistance(heads, tokens)
    # a copy: torch refuses read-only memory
    given = torch.from_numpy(np.array(matrix, dtype=np.float64))
    moments.add(0, given, given[0].isnan())
    return moments.fit()


def diagonal(start: int, logits: Float[Tensor, "head query key"]) -> Float[np.ndarray, "head query"]:
    """Return logits_ii of the queries from `start` on, in float64."""
    return numbers(logits.diagonal(offset=start, dim1=1, dim2=2))


def first_column(logits: Float[Tensor, "head query key"]) -> Float[np.ndarray, "head query"]:
    """Return logits_i0 in float64; NaN where key 0 is not seen."""
    return seen_or_nan(logits[:, :, 0])


def seen_or_nan(logits: Float[Tensor, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Return logits in float64 with NaN in place of −∞, which stands where a query cannot see a key."""
    values = numbers(logits)
    values[np.isneginf(values)] = np.nan
    return values
