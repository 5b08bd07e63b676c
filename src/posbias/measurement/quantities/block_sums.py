"""What everything of a layer is summed from, a block of queries at a time: over queries, heads and distances.

In compiled code where numbers are float32 on a CPU: each number is read from the cache and added, where tensor
operations write what they made of it (in float64, twice as wide) and read it again. The same in tensor operations
serves other devices and precisions, and is the reference. All sums are in float64.

The energy kernel follows squared Jacobian norms: what a token passes on is divided by its own RMS (the norm
before attention does that), goes through W_V and W_O of each head, and adds up over heads in quadrature.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posbias.core.compiling import compiled

Block = Float[Tensor, "head query key"]
Unseen = Bool[Tensor, "query key"]
Moments = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Sums = tuple[Float[np.ndarray, "head key"], Float[np.ndarray, "head key"]]


def by_distance(start: int, block: Block, unseen: Unseen, spread: bool) -> Moments:
    """Number, mean and (with `spread`) summed squared deviations of entries by distance d = i − j ≥ 0.

    The block's queries are `start`, `start` + 1, …, its last key is its last query. Entries that are `unseen` may
    hold anything. Arrays are over distances 0 … `start` + queries − 1, for means and squares in each head.
    """
    if not _compiled(block):
        return by_distance_plain(start, block, unseen, spread)
    count, mean, squares = _by_distance(start, _array(block), _array(unseen), spread)
    return count, mean, squares if spread else None


def by_distance_plain(start: int, block: Block, unseen: Unseen, spread: bool) -> Moments:
    """`by_distance` in tensor operations: diagonals of a block are columns once it is sheared."""
    table, seen = _sheared(block.masked_fill(unseen, 0)), _sheared((~unseen)[None])
    count = seen[0].sum(dim=0)
    mean = table.sum(dim=1) / count.clamp(min=1)
    squares = table.sub_(mean[:, None]).mul_(seen).square_().sum(dim=1) if spread else None
    # columns of the sheared table run from the longest distance to the shortest
    rest = None if squares is None else numbers(squares)[:, ::-1]
    return numbers(count)[::-1], numbers(mean)[:, ::-1], rest


def received(attention: Block, threshold: float) -> Sums:
    """What each key gets from the block's queries, and from how many of them more than `threshold`."""
    if not _compiled(attention):
        return received_plain(attention, threshold)
    return _received(_array(attention), np.float32(threshold))


def received_plain(attention: Block, threshold: float) -> Sums:
    """`received` in tensor operations."""
    total = attention.sum(dim=1, dtype=torch.float64)
    return numbers(total), numbers((attention > threshold).sum(dim=1))


def head_mean(attention: Block) -> Float[np.ndarray, "query key"]:
    """The attention averaged over heads (Eq. 4 of Herasimchyk et al. 2026)."""
    return _head_mean(_array(attention)) if _compiled(attention) else head_mean_plain(attention)


def head_mean_plain(attention: Block) -> Float[np.ndarray, "query key"]:
    """`head_mean` in tensor operations."""
    return attention.mean(dim=0, dtype=torch.float64).cpu().numpy()


def energy_kernel(attention: Block, weights: Float[Tensor, "head key"]) -> Float[np.ndarray, "query key"]:
    """Rows of the energy kernel Σ_h A²_h,ij w_hj: w = gain_h / r_j², r_j² = mean(x_j²) + ε of the stream."""
    if not _compiled(attention):
        return energy_kernel_plain(attention, weights)
    return _energy(_array(attention), _array(weights.to("cpu", torch.float64)))


def energy_kernel_plain(
    attention: Block, weights: Float[Tensor, "head key"]
) -> Float[np.ndarray, "query key"]:
    """`energy_kernel` in tensor operations."""
    # one head at a time: all squares in float64 at once would be the largest array of a measurement
    total = torch.zeros(attention.shape[1:], dtype=torch.float64, device=attention.device)
    for seen, weight in zip(attention, weights.to(total), strict=True):
        total.add_(seen.double().square().mul_(weight))
    return total.cpu().numpy()


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
def _by_distance(start, block, unseen, spread):
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
        if spread:
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
