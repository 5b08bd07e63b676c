"""What is averaged over prompts of one layer's attention: from blocks of queries, so that no n × n matrix is held.

Averages over prompts of whole logit matrices are large and mostly redundant; what the theory uses are their means
along diagonals. A sink shows in the columns of the attention: how much a key receives, and in how many rows it
receives more than τ (`profiles.curves` defines both). Blocks of several queries are put together by Chan's update
of count, mean and summed squared deviations.

A block is summed in compiled code where numbers are float32 on a CPU: each number is read from the cache and
added, where tensor operations write what they made of it (in float64, twice as wide) and read it again. The same
in tensor operations serves other devices and precisions, and is what the compiled code is tested against. All sums
are in float64.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.machine import compiled
from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.scores import block_size
from posbias.measurement.result import Arrays
from posbias.profiles.curves import THRESHOLD, over_seers

KERNEL_TOKENS = 1024
"""Longest prompts whose averaged kernels are kept: 30 layers of them take 250 MB in float64. Sums over queries and
rollouts of single prompts serve longer ones."""
_CACHED_BYTES = 8 * 2**20
"""Logits and attention of one block on a CPU: with a few copies in float64 what caches hold."""


def layer_means(
    seen: SeenLayer,
    energy: Float[Tensor, "head key"] | None = None,
    stretch: Float[Tensor, "query"] | None = None,
    *,
    dense_logits: bool = False,
    head_kernels: bool = False,
    block: int | None = None,
) -> Arrays:
    """Return everything that is averaged over prompts of one layer's attention, from blocks of queries.

    `energy` are the weights of the energy kernel and `stretch` what each query's update is scaled by, `block` is
    the number of queries at a time (by default a few MB of them). Content statistics are left out where content
    cannot be determined.
    """
    heads, tokens = seen.scores.heads, seen.scores.tokens
    sums, logits_at = Received(heads, tokens), _Logits(heads, tokens, dense_logits)
    content_at = None if seen.content is None else _Logits(heads, tokens, dense_logits)
    found: Arrays = {}
    if tokens <= KERNEL_TOKENS:
        found = {"kernel": np.zeros((tokens, tokens))}
        found |= {} if energy is None else {"energy_kernel": np.zeros((tokens, tokens))}
    if head_kernels:
        found["kernel_head"] = np.zeros((heads, tokens, tokens))
    for queries, logits, attention in seen.scores.blocks(
        block or queries_at_once(heads, tokens, seen.stream.device)
    ):
        unseen = hidden(logits)
        # under a causal mask nothing stands to the right of a block's last query
        keys = slice(queries.stop if bool(unseen[:, queries.stop :].all()) else tokens)
        logits, attention, unseen = logits[:, :, keys], attention[:, :, keys], unseen[:, keys]
        sums.add(queries.start, attention, unseen)
        logits_at.add(queries, logits, unseen)
        if seen.content is not None and content_at is not None:
            mask = None if seen.content.mask is None else seen.content.mask[..., keys]
            content = replace(seen.content, key=seen.content.key[:, keys], mask=mask, causal=False)
            rows = content.logits_of(queries.start, queries.stop)
            content_at.add(queries, rows.masked_fill_(unseen, -torch.inf), unseen)
        if "kernel" in found:
            found["kernel"][queries, keys] = head_mean(attention)
        if "energy_kernel" in found and energy is not None:
            rows = energy_kernel(attention, energy[:, keys])
            factors = 1.0 if stretch is None else numbers(stretch[queries, None].square())
            found["energy_kernel"][queries, keys] = rows * factors
        if "kernel_head" in found:
            found["kernel_head"][:, queries, keys] = numbers(attention)
    found |= sums.found() | logits_at.found("logits")
    if content_at is None:
        return found
    fit, distances = content_at.distances.fit(), content_at.distances
    return found | {
        **content_at.found("content"),
        "content_distance_variance": distances.variance(),
        "content_mean": fit.constant,
        "content_variance": fit.variance,
        "constant_diagonal_r2": fit.r2,
        "positional_distance": logits_at.distances.mean() - distances.mean(),
    }


def queries_at_once(heads: int, tokens: int, device: torch.device) -> int:
    """Return how many queries a block has: on a CPU what stays in its caches, else what fits 64 MB."""
    most = block_size(heads, tokens)
    return most if device.type != "cpu" else max(1, min(most, _CACHED_BYTES // (8 * heads * tokens)))


def hidden(logits: Float[Tensor, "head query key"]) -> Bool[Tensor, "query key"]:
    """Return which keys a query cannot see: where the logits are −∞. All heads must see the same keys."""
    return logits[0].isneginf()


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
            self._of_first_query = numbers(attention[:, 0, 0])

    def metric(self) -> Float[np.ndarray, "head key"]:
        """Return the share of the queries seeing a key that give it more than τ; NaN where none does."""
        return over_seers(self._above, self._seers)

    def found(self) -> Arrays:
        """Return the sums by head, and by key.

        `sink_share` is the attention that token 0 receives, mean over all queries that have a choice (i ≥ 1);
        `attention_received` the mean over queries that see the key, NaN where none does; `missing_mass` 1 − the
        mean row sum: what goes to learned sinks, without them rounding, about 1e-7.
        """
        tokens = self._total.shape[1]
        return {
            "sink_share": (self._total[:, 0] - self._of_first_query) / (tokens - 1),
            "attention_received": over_seers(self._total, self._seers),
            "sink_metric": self.metric(),
            "missing_mass": 1 - self._total.sum(axis=1) / tokens,
        }


class _Logits:
    """Logits of one layer by where they stand; `dense` keeps them all, NaN where a query does not see a key."""

    def __init__(self, heads: int, tokens: int, dense: bool):
        self.distances = ByDistance(heads, tokens)
        self._diagonal = np.empty((heads, tokens))
        self._column = np.empty((heads, tokens))
        self._all = np.full((heads, tokens, tokens), np.nan) if dense else None

    def add(self, queries: slice, logits: Float[Tensor, "head query key"], unseen: Tensor) -> None:
        self.distances.add(queries.start, logits, unseen)
        self._diagonal[:, queries] = numbers(logits.diagonal(offset=queries.start, dim1=1, dim2=2))
        self._column[:, queries] = _seen_or_nan(logits[:, :, 0])
        if self._all is not None:
            self._all[:, queries, : logits.shape[2]] = _seen_or_nan(logits)

    def found(self, name: str) -> Arrays:
        found = {
            f"{name}_distance": self.distances.mean(),
            f"{name}_diagonal": self._diagonal,
            f"{name}_first_column": self._column,
        }
        return found if self._all is None else found | {name: self._all}


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


class ByDistance:
    """Count, mean and variance of logits over the pairs at each distance d = i − j ≥ 0, keys j ≥ 1.

    Key 0 is left out: it attracts attention for its own sake. All is in float64; `add` takes blocks of queries
    in any order.
    """

    def __init__(self, heads: int, tokens: int):
        self.count = np.zeros(tokens)
        self._mean = np.zeros((heads, tokens))
        self._squares = np.zeros((heads, tokens))

    def add(
        self, start: int, logits: Float[Tensor, "head query key"], unseen: Bool[Tensor, "query key"]
    ) -> None:
        """Add the rows of queries `start`, `start` + 1, …; entries that are `unseen` may hold anything."""
        stop = start + logits.shape[1]
        unseen = unseen[:, :stop].clone()
        unseen[:, 0] = True
        count, mean, squares = by_distance(start, logits[:, :, :stop], unseen)
        total = self.count[:stop] + count
        share = count / np.maximum(total, 1)
        change = mean - self._mean[:, :stop]
        self._squares[:, :stop] += squares + change**2 * (self.count[:stop] * share)
        self._mean[:, :stop] += change * share
        self.count[:stop] = total

    def mean(self) -> Float[np.ndarray, "head distance"]:
        """Return the means; NaN at distances without a pair, as the last one."""
        return np.where(self.count > 0, self._mean, np.nan)

    def variance(self) -> Float[np.ndarray, "head distance"]:
        """Return the variances over pairs (divided by their number); NaN without a pair."""
        return np.where(self.count > 0, self._squares / np.maximum(self.count, 1), np.nan)

    def fit(self) -> ConstantDiagonal:
        """Return the least-squares fit u + δ·1[i = j] to all pairs j ≤ i, j ≥ 1, with its R².

        It needs no second pass: u is the mean of the pairs j < i, u + δ that of the diagonal. Proposition 4.5
        of Herasimchyk et al. 2026. Without pairs j < i (or, for R², without variance) values are NaN.
        """
        count, squares = self.count[1:], self._squares
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


def _seen_or_nan(logits: Float[Tensor, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Logits in float64 with NaN in place of −∞, which stands where a query cannot see a key."""
    values = numbers(logits)
    values[np.isneginf(values)] = np.nan
    return values


Block = Float[Tensor, "head query key"]
Unseen = Bool[Tensor, "query key"]
Moments = tuple[np.ndarray, np.ndarray, np.ndarray]
Sums = tuple[Float[np.ndarray, "head key"], Float[np.ndarray, "head key"]]


def by_distance(start: int, block: Block, unseen: Unseen) -> Moments:
    """Number, mean and summed squared deviations of entries by distance d = i − j ≥ 0.

    The block's queries are `start`, `start` + 1, …, its last key is its last query. Entries that are `unseen` may
    hold anything. Arrays are over distances 0 … `start` + queries − 1, for means and squares in each head.
    """
    if _compiled(block):
        return _by_distance(start, _array(block), _array(unseen))
    # diagonals of a block are columns once it is sheared, from the longest distance to the shortest
    table, seen = _sheared(block.masked_fill(unseen, 0)), _sheared((~unseen)[None])
    count = seen[0].sum(dim=0)
    mean = table.sum(dim=1) / count.clamp(min=1)
    squares = table.sub_(mean[:, None]).mul_(seen).square_().sum(dim=1)
    return numbers(count)[::-1], numbers(mean)[:, ::-1], numbers(squares)[:, ::-1]


def received(attention: Block, threshold: float) -> Sums:
    """What each key gets from the block's queries, and from how many of them more than `threshold`."""
    if _compiled(attention):
        return _received(_array(attention), np.float32(threshold))
    total = attention.sum(dim=1, dtype=torch.float64)
    return numbers(total), numbers((attention > threshold).sum(dim=1))


def head_mean(attention: Block) -> Float[np.ndarray, "query key"]:
    """The attention averaged over heads (Eq. 4 of Herasimchyk et al. 2026)."""
    if _compiled(attention):
        return _head_mean(_array(attention))
    return numbers(attention.mean(dim=0, dtype=torch.float64))


def energy_kernel(attention: Block, weights: Float[Tensor, "head key"]) -> Float[np.ndarray, "query key"]:
    """Rows of the energy kernel Σ_h A²_h,ij w_hj: w = gain_h / r_j², r_j² = mean(x_j²) + ε of the stream."""
    if _compiled(attention):
        return _energy(_array(attention), _array(weights.to("cpu", torch.float64)))
    # one head at a time: all squares in float64 at once would be the largest array of a measurement
    total = torch.zeros(attention.shape[1:], dtype=torch.float64, device=attention.device)
    for seen, weight in zip(attention, weights.to(total), strict=True):
        total.add_(seen.double().square().mul_(weight))
    return numbers(total)


def numbers(values: Tensor) -> np.ndarray:
    """A copy as a float64 array."""
    return values.to("cpu", torch.float64, copy=True).numpy()


def _compiled(block: Tensor) -> bool:
    return block.device.type == "cpu" and block.dtype == torch.float32


def _array(values: Tensor) -> np.ndarray:
    return values.detach().contiguous().numpy()


def _sheared(block: Tensor) -> Float[Tensor, "any query column"]:
    """Shift row r of a block whose last key is its last query's: column c holds distance keys − 1 − c.

    In a buffer of q rows, W columns wide, written with a row stride of W − 1, the r-th row stands r places further
    left. Entries above the diagonal leave the table, places without an entry are 0; float64.
    """
    heads, queries, keys = block.shape
    width = keys + queries - 1
    table = torch.zeros(heads, queries, width, dtype=torch.float64, device=block.device)
    strides = (queries * width, width - 1, 1)
    table.as_strided(block.shape, strides, queries - 1).copy_(block)
    return table[:, :, :keys]


@compiled()
def _by_distance(start, block, unseen):
    heads, queries, keys = block.shape
    count = np.zeros(keys)
    mean = np.zeros((heads, keys))
    squares = np.zeros((heads, keys))
    for query in range(queries):
        own = start + query
        for distance in range(own + 1):
            count[distance] += 0.0 if unseen[query, own - distance] else 1.0
    for head in range(heads):
        ours, about = mean[head], squares[head]
        for query in range(queries):
            own = start + query
            row, away = block[head, query], unseen[query]
            for distance in range(own + 1):
                value = np.float64(row[own - distance])
                ours[distance] += 0.0 if away[own - distance] else value
        for distance in range(keys):
            ours[distance] /= max(count[distance], 1.0)
        for query in range(queries):
            own = start + query
            row, away = block[head, query], unseen[query]
            for distance in range(own + 1):
                off = np.float64(row[own - distance]) - ours[distance]
                about[distance] += 0.0 if away[own - distance] else off * off
    return count, mean, squares


@compiled()
def _received(attention, threshold):
    heads, queries, keys = attention.shape
    total = np.zeros((heads, keys))
    above = np.zeros((heads, keys))
    for head in range(heads):
        ours, often = total[head], above[head]
        for query in range(queries):
            row = attention[head, query]
            for key in range(keys):
                ours[key] += np.float64(row[key])
                often[key] += 1.0 if row[key] > threshold else 0.0
    return total, above


@compiled()
def _head_mean(attention):
    heads, queries, keys = attention.shape
    total = np.zeros((queries, keys))
    for head in range(heads):
        for query in range(queries):
            row, sums = attention[head, query], total[query]
            for key in range(keys):
                sums[key] += np.float64(row[key])
    return total / heads


@compiled()
def _energy(attention, weights):
    heads, queries, keys = attention.shape
    total = np.zeros((queries, keys))
    for head in range(heads):
        weight = weights[head]
        for query in range(queries):
            row, sums = attention[head, query], total[query]
            for key in range(keys):
                seen = np.float64(row[key])
                sums[key] += seen * seen * weight[key]
    return total
