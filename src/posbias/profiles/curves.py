"""Numbers by position as arrays: ranks, two distances, the least stretch, shares of the context, blocks of text.

Profiles are made of them; nothing here knows a profile.
"""

import itertools
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Num

from posbias.core.errors import wrong


def ranks(values: Float[np.ndarray, "*batch position"]) -> Float[np.ndarray, "*batch position"]:
    """Ranks along the last axis, ties sharing the mean of theirs."""
    from scipy.stats import rankdata

    return rankdata(values, axis=-1)


def spearman(
    p: Float[np.ndarray, "*#batch position"], q: Float[np.ndarray, "*#batch position"]
) -> Float[np.ndarray, "*batch"]:
    """Spearman's rank correlation along the last axis; NaN where either side is constant."""
    _same_positions(p, q)
    a, b = ranks(p), ranks(q)
    a = a - a.mean(axis=-1, keepdims=True)
    b = b - b.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(axis=-1) / np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1)))


def wasserstein(
    p: Float[np.ndarray, "*#batch position"], q: Float[np.ndarray, "*#batch position"]
) -> Float[np.ndarray, "*batch"]:
    """1-Wasserstein distance of two mass functions on positions divided by n − 1 (so between 0 and 1).

    Source: Herasimchyk et al. 2026, Appendix B.2. Zero for a single position.
    """
    tokens = _same_positions(p, q)
    if tokens < 2:
        return np.zeros(np.broadcast_shapes(np.shape(p)[:-1], np.shape(q)[:-1]))
    gap = np.abs(np.cumsum(p, axis=-1, dtype=np.float64) - np.cumsum(q, axis=-1, dtype=np.float64))
    return np.asarray(gap[..., :-1].sum(axis=-1) / (tokens - 1))


def _same_positions(p: Any, q: Any) -> int:
    """The length of the last axis of both. Raises `InvalidValueError` where they differ or have none."""
    one, other = np.shape(p)[-1], np.shape(q)[-1]
    if one != other or not one:
        raise wrong("p, q", "equally many positions, at least one", got=f"{one} and {other}")
    return one


def at_shares(
    values: Float[np.ndarray, "*batch position"], shares: int, *, total: bool
) -> Float[np.ndarray, "*batch share"]:
    """Numbers by position as numbers by share of the context: `shares` stretches of equal length.

    One of n positions covers 1/n of the context and is spread evenly over it; one that lies in two stretches is
    parted. With `total` a stretch has the sum of its parts (a mass keeps its sum), else their mean. Nothing is
    subtracted: each entry is right to a few roundings, however small.
    """
    positions = values.shape[-1]
    # in units of 1/(positions · shares) all borders are whole numbers
    borders = np.arange(shares, dtype=np.int64) * positions
    pieces = np.union1d(np.arange(positions, dtype=np.int64) * shares, borders)
    widths = np.diff(pieces, append=positions * shares)
    parts = values[..., pieces // shares] * (widths / (shares if total else positions))
    return np.add.reduceat(parts, np.searchsorted(pieces, borders), axis=-1)


def least_stretch(mass: Float[np.ndarray, "position"], length: int) -> int:
    """Where the neighbouring positions with the least mass begin (the earliest such place).

    Every stretch is the end of one block of that length and the start of the next, so that its sum is found
    without subtracting, in O(positions).
    """
    blocks = np.pad(mass, (0, -mass.size % length)).reshape(-1, length)
    ends = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].reshape(-1)
    starts = np.cumsum(blocks, axis=1).reshape(-1)
    begin = np.arange(mass.size - length + 1)
    sums = ends[begin] + np.where(begin % length, starts[begin + length - 1], 0.0)
    return int(np.argmin(sums))


def blocks(mass: Float[np.ndarray, "position"], width: int = 64) -> str:
    """A profile as a line of block characters, on a logarithmic scale of mean mass per position."""
    width = min(width, mass.size)
    edges = np.linspace(0, mass.size, width + 1).round().astype(int)
    density = np.array([mass[a:b].mean() for a, b in itertools.pairwise(edges)]) * mass.size
    level = np.clip((np.log2(np.maximum(density, 2.0**-9)) + 3.0) / 6.0, 0.0, 1.0)
    return "".join("▁▂▃▄▅▆▇█"[round(x * 7)] for x in level)


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
