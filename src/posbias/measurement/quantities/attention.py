"""What is averaged over prompts of one layer's attention: from blocks of queries, so that no n × n matrix is held.

Averages over prompts of whole logit matrices are large and mostly redundant; what the theory uses are their means
along diagonals. A sink shows in the columns of the attention: how much a key receives, and in how many rows it
receives more than τ (`profiles.curves` defines both).

A block is summed in compiled code on a CPU: each number is read from the cache and added, where tensor operations
write what they made of it (in float64, twice as wide) and read it again. The same in tensor operations serves
other devices, and is what the compiled code is tested against. All sums are in float64.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.machine import compiled
from posbias.measurement.capture.forward import SeenLayer
from posbias.measurement.capture.recurrences import Effective
from posbias.measurement.capture.scores import Block, Scores, block_size
from posbias.measurement.result import Arrays
from posbias.profiles.curves import THRESHOLD, over_seers

KERNEL_TOKENS = 1024
"""Longest prompts whose averaged kernels are kept: 30 layers of them take 250 MB in float64. Sums over queries and
rollouts of single prompts serve longer ones."""
PLACES = 512
"""How many sums are taken over all queries of a block before the next ones: they stay in the nearest cache."""
Unseen = Bool[Tensor, "query key"]
"""Whether a key is hidden from a query, in all heads alike."""
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
    cannot be determined; of a layer without a softmax there is the kernel alone, the mean of its sizes.
    """
    heads, tokens = seen.scores.heads, seen.scores.tokens
    if isinstance(seen.scores, Effective):
        return {"kernel": numbers(seen.scores.sizes())} if tokens <= KERNEL_TOKENS else {}
    sums, logits_at = Received(heads, tokens), _Logits(seen.scores, dense_logits)
    content_at = None if seen.content is None else _Logits(seen.content, dense_logits)
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
        if keys.stop < logits.shape[2]:
            logits, attention, unseen = logits[:, :, keys], attention[:, :, keys], unseen[:, keys]
        sums.add(queries.start, attention, unseen)
        logits_at.add(queries, logits, unseen)
        if seen.content is not None and content_at is not None:
            # what is hidden in the logits is hidden here
            content = seen.content.unhidden(queries.start, queries.stop, unseen.shape[1])
            content_at.add(queries, content, unseen)
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
    distances = content_at.distances
    fit = distances.fit()
    return found | {
        **content_at.found("content"),
        "content_distance_variance": distances.variance(),
        "content_mean": fit["mean"],
        "content_variance": fit["variance"],
        "constant_diagonal_r2": fit["r2"],
        "positional_distance": logits_at.distances.mean() - distances.mean(),
    }


def queries_at_once(heads: int, tokens: int, device: torch.device) -> int:
    """Return how many queries a block has: on a CPU what stays in its caches, else what fits 64 MB."""
    most = block_size(heads, tokens)
    return most if device.type != "cpu" else max(1, min(most, _CACHED_BYTES // (8 * heads * tokens)))


def hidden(logits: Block) -> Bool[Tensor, "query key"]:
    """Return which keys a query cannot see: where the logits are −∞. All heads must see the same keys."""
    return logits[0].isneginf()


class Received:
    """What each key receives, summed over queries in float64; `add` takes each query once, in any order."""

    def __init__(self, heads: int, tokens: int):
        self._total = np.zeros((heads, tokens))
        self._above = np.zeros((heads, tokens))
        self._seers = np.zeros(tokens)
        self._of_first_query = np.zeros(heads)

    def add(self, start: int, attention: Block, unseen: Unseen) -> None:
        """Add the rows of queries `start`, `start` + 1, …, whose attention is 0 where `unseen`.

        A block may end with the last key that any of its queries sees.
        """
        if start == 0:
            self._of_first_query = numbers(attention[:, 0, 0])
        sums = self._total, self._above, self._seers
        if _compiled(attention):
            block = _array(attention)
            # into whole arrays, whose rows are known to be contiguous
            _add_received(*sums, block, _array(unseen), block.dtype.type(THRESHOLD))
            return
        total, above, seers = (array[..., : attention.shape[2]] for array in sums)
        total += numbers(attention.sum(dim=1, dtype=torch.float64))
        above += numbers((attention > THRESHOLD).sum(dim=1))
        seers += numbers((~unseen).sum(dim=0))

    def found(self) -> Arrays:
        """Return the sums by head, and by key.

        `sink_share` is the attention that token 0 receives, mean over all queries that have a choice (i ≥ 1);
        `attention_received` the mean over queries that see the key, NaN where none does; `sink_metric` the share
        of those that give it more than τ; `missing_mass` 1 − the
        mean row sum: what goes to learned sinks, without them rounding, about 1e-7.
        """
        tokens = self._total.shape[1]
        return {
            "sink_share": (self._total[:, 0] - self._of_first_query) / (tokens - 1),
            "attention_received": over_seers(self._total, self._seers),
            "sink_metric": over_seers(self._above, self._seers),
            "missing_mass": 1 - self._total.sum(axis=1) / tokens,
        }


class _Logits:
    """Logits of one layer by where they stand; `dense` keeps them all, NaN where a query does not see a key."""

    def __init__(self, scores: Scores, dense: bool):
        heads, tokens = scores.heads, scores.tokens
        self.distances = ByDistance(heads, tokens)
        self._diagonal = numbers(scores.diagonal())
        self._column = np.empty((heads, tokens))
        self._all = np.full((heads, tokens, tokens), np.nan) if dense else None

    def add(self, queries: slice, logits: Block, unseen: Unseen) -> None:
        self.distances.add(queries.start, logits, unseen)
        self._column[:, queries] = numbers(logits[:, :, 0].masked_fill(unseen[:, 0], torch.nan))
        if self._all is not None:
            self._all[:, queries, : logits.shape[2]] = numbers(logits.masked_fill(unseen, torch.nan))

    def found(self, name: str) -> Arrays:
        found = {
            f"{name}_distance": self.distances.mean(),
            f"{name}_diagonal": self._diagonal,
            f"{name}_first_column": self._column,
        }
        return found if self._all is None else found | {name: self._all}


class ByDistance:
    """Count, mean and variance of logits over the pairs at each distance d = i − j ≥ 0, keys j ≥ 1.

    Key 0 is left out: it attracts attention for its own sake. All is in float64; `add` takes blocks of queries
    in any order. Sums are of what entries of a head differ by from the first one of them that was added, so that
    variances do not cancel.
    """

    def __init__(self, heads: int, tokens: int):
        self._about: np.ndarray | None = None
        # from the longest distance to the shortest: along a row, places ascend with the key
        self._count = np.zeros(tokens)
        self._sums = np.zeros((heads, tokens))
        self._squares = np.zeros((heads, tokens))

    def add(self, start: int, logits: Block, unseen: Unseen) -> None:
        """Add the rows of queries `start`, `start` + 1, …; entries that are `unseen` may hold anything."""
        sums = count, total, squares = self._count, self._sums, self._squares
        if self._about is None:
            seen = (~unseen[:, 1:]).tril(start - 1).nonzero()
            if not len(seen):
                return
            query, key = seen[0].tolist()
            self._about = numbers(logits[:, query, 1 + key])
        if _compiled(logits):
            _add_by_distance(*sums, start, _array(logits), _array(unseen), self._about)
            return
        keys = start + logits.shape[1]
        block, shown = logits[:, :, :keys], ~unseen[:, :keys]
        shown[:, 0] = False
        off = block.double() - torch.from_numpy(self._about).to(block.device)[:, None, None]
        # diagonals of a block are columns once it is sheared, from the longest distance to the shortest
        table = _sheared(off.masked_fill_(~shown, 0))
        count[-keys:] += numbers(_sheared(shown[None])[0].sum(dim=0))
        total[:, -keys:] += numbers(table.sum(dim=1))
        squares[:, -keys:] += numbers(table.square_().sum(dim=1))

    @property
    def count(self) -> Float[np.ndarray, "distance"]:
        """How many pairs there are at each distance."""
        return self._count[::-1]

    def mean(self) -> Float[np.ndarray, "head distance"]:
        """Return the means; NaN at distances without a pair, as the last one."""
        about = 0.0 if self._about is None else self._about[:, None]
        with np.errstate(invalid="ignore"):
            return about + self._sums[:, ::-1] / self.count

    def variance(self) -> Float[np.ndarray, "head distance"]:
        """Return the variances over pairs (divided by their number); NaN without a pair."""
        with np.errstate(invalid="ignore"):
            return self._deviations() / self.count

    def _deviations(self) -> Float[np.ndarray, "head distance"]:
        """Summed squared deviations from the mean at each distance."""
        return (self._squares - self._sums**2 / np.maximum(self._count, 1)).clip(min=0)[:, ::-1]

    def fit(self) -> dict[str, Float[np.ndarray, "head"]]:
        """Return the least-squares fit u + δ·1[i = j] to all pairs j ≤ i, j ≥ 1, in softmax units.

        `mean` is u, the mean of the pairs j < i, `variance` theirs about it, `offset` δ and `r2` the share of the
        variance of all pairs that both explain. It needs no second pass: u + δ is the mean of the diagonal.
        Proposition 4.5 of Herasimchyk et al. 2026. Values are NaN without pairs j < i, R² also without variance.
        """
        count, mean, squares = self.count[1:], self.mean(), self._deviations()
        pairs, ours = count.sum(), self.count[0]
        if not pairs or not ours:
            return dict.fromkeys(("mean", "variance", "offset", "r2"), np.full(len(squares), np.nan))
        earlier = np.where(count > 0, mean[:, 1:], 0.0)
        constant = (earlier * count).sum(axis=1) / pairs
        between = (count * (earlier - constant[:, None]) ** 2).sum(axis=1)
        off = squares[:, 1:].sum(axis=1) + between
        offset = mean[:, 0] - constant
        residual = off + squares[:, 0]
        explained = offset**2 * pairs * ours / (pairs + ours)
        total = residual + explained
        r2 = np.divide(explained, total, out=np.full_like(total, np.nan), where=total > 0)
        return {"mean": constant, "variance": off / pairs, "offset": offset, "r2": r2}


def head_mean(attention: Block) -> Float[np.ndarray, "query key"]:
    """The attention averaged over heads (Eq. 4 of Herasimchyk et al. 2026)."""
    if _compiled(attention):
        block = _array(attention)
        return _over_heads(block, np.ones(block.shape[::2]), False) / len(block)
    return numbers(attention.mean(dim=0, dtype=torch.float64))


def energy_kernel(attention: Block, weights: Float[Tensor, "head key"]) -> Float[np.ndarray, "query key"]:
    """Rows of the energy kernel Σ_h A²_h,ij w_hj: w = gain_h / r_j², r_j² = mean(x_j²) + ε of the stream."""
    if _compiled(attention):
        return _over_heads(_array(attention), _array(weights.to("cpu", torch.float64)), True)
    # one head at a time: all squares in float64 at once would be the largest array of a measurement
    total = torch.zeros(attention.shape[1:], dtype=torch.float64, device=attention.device)
    for seen, weight in zip(attention, weights.to(total), strict=True):
        total.add_(seen.double().square().mul_(weight))
    return numbers(total)


def numbers(values: Tensor) -> np.ndarray:
    """A copy as a float64 array."""
    return values.to("cpu", torch.float64, copy=True).numpy()


def _compiled(block: Tensor) -> bool:
    return block.device.type == "cpu" and block.dtype in (torch.float32, torch.float64)


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
def _add_by_distance(count, sums, squares, start, block, unseen, about):
    heads, queries, keys = block.shape
    tokens = count.size
    for query in range(queries):
        own = start + query
        for key in range(1, min(own + 1, keys)):
            count[tokens - 1 - own + key] += 0.0 if unseen[query, key] else 1.0
    for head in range(heads):
        total, square, middle = sums[head], squares[head], about[head]
        for first in range(0, tokens, PLACES):
            for query in range(queries):
                ahead = tokens - 1 - start - query
                low = max(first - ahead, 1)
                high = min(first + PLACES - ahead, start + query + 1, keys)
                if low >= high:
                    continue
                # slices: their indices are known to be no negative ones, which vector instructions need
                row, away = block[head, query, low:high], unseen[query, low:high]
                ours, theirs = total[ahead + low : ahead + high], square[ahead + low : ahead + high]
                for place in range(high - low):
                    off = np.float64(row[place]) - middle
                    off = 0.0 if away[place] else off
                    ours[place] += off
                    theirs[place] += off * off


@compiled()
def _add_received(total, above, seers, attention, unseen, threshold):
    heads, queries, keys = attention.shape
    for query in range(queries):
        for key in range(keys):
            seers[key] += 0.0 if unseen[query, key] else 1.0
    for head in range(heads):
        for first in range(0, keys, PLACES):
            ours, often = total[head, first : first + PLACES], above[head, first : first + PLACES]
            for query in range(queries):
                row = attention[head, query, first : first + PLACES]
                for place in range(row.size):
                    ours[place] += np.float64(row[place])
                    often[place] += 1.0 if row[place] > threshold else 0.0


@compiled()
def _over_heads(attention, weights, squared):
    heads, queries, keys = attention.shape
    total = np.zeros((queries, keys))
    for head in range(heads):
        weight = weights[head]
        for query in range(queries):
            row, sums = attention[head, query], total[query]
            for key in range(keys):
                seen = np.float64(row[key])
                sums[key] += (seen * seen if squared else seen) * weight[key]
    return total
