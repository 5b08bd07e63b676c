"""What a sweep needs to know beforehand: tables of weights by layer, head and distance, and how much memory.

Causal layers with logits δ·1[i = j] − m·(i − j), a logit on the first column and learned sinks: `sweep` says what
is done with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import HeadLogits, Layer

BLOCK = 128
"""Tokens that pass through all layers together."""
FLOOR = 1e-290
"""Sums below this are taken as zero; entries above 1e-250 are not affected at 1e-12 relative."""


@dataclass(frozen=True)
class Plan:
    """What the sweep needs of a stack of layers for a number of tokens, layer 0 at the bottom.

    `keep` is 1 − λ. Rows of `gamma`, `slack` (relative error of gamma), `here` (e), `there` (g), `first`
    (exp f), `sinks` and `weights` are layers, columns heads (padded with weight zero). `same` numbers layers with
    equal logits alike; `sums` says which table of sums a layer uses; from token `saturated` on, Z has its limit.
    The first token sees only itself and the sink: it keeps `alone` and loses `gone`.
    """

    mixing: Float[np.ndarray, "layer"]
    keep: Float[np.ndarray, "layer"]
    gamma: Float[np.ndarray, "layer head"]
    slack: Float[np.ndarray, "layer head"]
    here: Float[np.ndarray, "layer head"]
    there: Float[np.ndarray, "layer head"]
    first: Float[np.ndarray, "layer head"]
    sinks: Float[np.ndarray, "layer head"]
    weights: Float[np.ndarray, "layer head"]
    same: Int[np.ndarray, "layer"]
    sums: Int[np.ndarray, "layer"]
    saturated: Int[np.ndarray, "layer"]
    column: Bool[np.ndarray, "layer"]
    alone: Float[np.ndarray, "layer"]
    gone: Float[np.ndarray, "layer"]
    limit: Float[np.ndarray, "table head"]
    start: Float[np.ndarray, "table block head"]
    whole: Float[np.ndarray, "table block head"]
    inside: Float[np.ndarray, "table offset head"]
    powers: Float[np.ndarray, "table offset head"]


def plan(stack: Sequence[Layer], mixing: Float[np.ndarray, "layer"], tokens: int) -> Plan:
    """Prepare the sweep over `tokens` tokens of causal layers with exponential logits, bottom first."""
    distinct: dict[Layer, int] = {}
    same = np.array([distinct.setdefault(layer, len(distinct)) for layer in stack], dtype=np.int64)
    merged = [merge(layer.head_logits()) for layer in distinct]
    heads = max(len(one.weights) for one in merged)
    slopes = np.stack([_padded(_slopes(one), heads, 1.0) for one in merged])
    # a slope that cannot move 1 by half a rounding over the whole text is no slope
    slopes[slopes * tokens < 1e-18] = 0.0
    parts = zip(*(_weights(one, heads) for one in merged), strict=True)
    here, there, first, sinks, weights = (np.stack(part) for part in parts)
    margins = [one.diagonal + one.first - one.sinks for one in merged]
    alone = np.array(
        [one.weights @ np.exp(-np.logaddexp(0, -margin)) for one, margin in zip(merged, margins, strict=True)]
    )
    gone = np.array(
        [one.weights @ np.exp(-np.logaddexp(0, margin)) for one, margin in zip(merged, margins, strict=True)]
    )
    tables, table_of = np.unique(slopes, axis=0, return_inverse=True)
    sums = table_of.reshape(-1)[same].astype(np.int64)
    column = (first != 1.0).any(axis=1)
    with np.errstate(divide="ignore"):
        lifted = 41.5 + np.maximum(np.log(np.maximum(first, 1.0)).max(axis=1), 0.0)
        reach = np.ceil(lifted / slopes.min(axis=1)) + column
        limit = -1.0 / np.expm1(-tables)
    saturated = np.minimum(reach, tokens).astype(np.int64)
    exact = np.exp(-slopes.astype(np.longdouble))
    gamma = exact.astype(np.float64)
    gamma[gamma < FLOOR] = 0.0
    slack = np.zeros_like(gamma)
    np.divide(exact - gamma, gamma, out=slack, where=gamma > 0, casting="same_kind")
    blocks = np.arange(-(-int(saturated.max()) // BLOCK), dtype=np.float64) * BLOCK
    offsets = np.arange(BLOCK, dtype=np.float64)
    return Plan(
        mixing=np.array(mixing, dtype=np.float64),
        keep=1.0 - np.array(mixing, dtype=np.float64),
        gamma=gamma[same],
        slack=slack[same],
        here=here[same],
        there=there[same],
        first=first[same],
        sinks=sinks[same],
        weights=weights[same],
        same=same,
        sums=sums,
        saturated=saturated[same],
        column=column[same],
        alone=alone[same],
        gone=gone[same],
        limit=np.where(np.isfinite(limit), limit, 0.0),
        start=_geometric(tables, blocks),
        whole=np.exp(-tables[:, None, :] * (blocks if column.any() else blocks[:0])[None, :, None]),
        inside=_geometric(tables, offsets),
        powers=np.exp(-tables[:, None, :] * offsets[None, :, None]),
    )


def merge(logits: HeadLogits) -> HeadLogits:
    """The same layer with heads of equal logits made one, their weights added."""
    rows = np.stack([_slopes(logits), logits.diagonal, logits.first, logits.sinks], axis=1)
    places: dict[bytes, int] = {}
    place_of = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    if len(places) == len(rows):
        return logits
    kept = np.unique(place_of, return_index=True)[1]
    weights = np.bincount(place_of, weights=logits.weights)
    return HeadLogits(*rows[kept].T, weights=weights)


def _slopes(logits: HeadLogits) -> Float[np.ndarray, "head"]:
    if logits.slopes is None:
        raise InvalidValueError("positional: not an exponential family, which the sweep needs")
    return logits.slopes


def _padded(values: np.ndarray, heads: int, fill: float) -> np.ndarray:
    return np.concatenate([values, np.full(heads - len(values), fill)])


def _weights(logits: HeadLogits, heads: int) -> tuple[np.ndarray, ...]:
    """exp of δ, −m and sink divided by the largest of them, exp f, and the weights of the heads, padded."""
    slopes = _slopes(logits)
    largest = np.maximum(np.maximum(logits.diagonal, -slopes), logits.sinks)
    return (
        _padded(np.exp(logits.diagonal - largest), heads, 1.0),
        _padded(np.exp(-slopes - largest), heads, 0.0),
        _padded(np.exp(logits.first), heads, 1.0),
        _padded(np.exp(logits.sinks - largest), heads, 0.0),
        _padded(logits.weights, heads, 0.0),
    )


def _geometric(
    slopes: Float[np.ndarray, "table head"], terms: Float[np.ndarray, "offset"]
) -> Float[np.ndarray, "table offset head"]:
    """(1 − γ^k)/(1 − γ) for each number of terms k, without cancellation; k itself where γ = 1."""
    m, k = slopes[:, None, :], terms[None, :, None]
    with np.errstate(invalid="ignore"):
        return np.where(m > 0, np.expm1(-m * k) / np.expm1(-m), k)


def plan_bytes(stack: Sequence[Layer], tokens: int) -> int:
    """Bytes that a sweep over `tokens` tokens will take at most: the row, its copy, tables and their making."""
    layers = set(stack)
    heads = max(layer.heads for layer in layers)
    slopes = [layer.head_logits().slopes for layer in layers]
    least = min((float(one.min()) for one in slopes if one is not None), default=1.0)
    reach = tokens if least * tokens <= 41.5 else 41.5 / least
    tables = 3 * len(layers) * heads * (reach / BLOCK + 3 * BLOCK)
    return int(8 * (3 * tokens + tables + 10 * len(stack) * heads))
