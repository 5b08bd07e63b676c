"""A row vector through one layer, query by query: any mask, any logits, O(tokens) memory, additions only.

The exact path where no faster one applies, O(tokens² · heads) time. For logits by distance exp(bias) is
computed once per distance, the sums Z_i of all queries are running sums, and what is left is one
multiplication and one addition per pair and head, four queries at a time so that a key is fetched once for
four. Logits too far apart for that, and dense matrices, take one softmax per query.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from posbias.core import machine
from posbias.core.errors import wrong
from posbias.core.machine import compiled
from posbias.theory import masks
from posbias.theory.architecture import Layer
from posbias.theory.masks import lookahead
from posbias.theory.normalisers import Softmax
from posbias.theory.positional import DenseLogits
from posbias.theory.rollout.kernel import FLOOR, Row, through

RANGE = 600.0
"""Logits of a head that span no more than this may stand in any order: their exponentials all fit a double."""
NEAR = 40.0
"""Beyond `RANGE`, every query must have a logit this close to the head's largest, so that what is lost to
underflow is below 1e-280 of its weight."""
LEAST = -690.0
"""Logits this far below the largest of their head weigh nothing; this keeps denormals away."""


class Tables(NamedTuple):
    """exp of diagonal, first column, sink and bias of a layer, each head divided by its largest.

    `bias` runs over distances from −behind to the farthest; `first` is a factor on the bias of key 0.
    """

    here: Float[np.ndarray, "head"]
    first: Float[np.ndarray, "head"]
    sinks: Float[np.ndarray, "head"]
    bias: Float[np.ndarray, "head distance"]


def push(layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """row · R for one layer, R = (1 − λ)I + λA, and the mass that its learned sink takes.

    Every entry is a sum of positive terms, within 1e-12 relative of the dense product (below 1e-250 it may
    be 0). Raises `InvalidValueError` for logits that the layer cannot give for this many tokens, and for a row
    that sums to more than one.
    """
    apart = isinstance(layer.positional, DenseLogits) or layer.query_scale is not None
    by_distance = isinstance(layer.normaliser, Softmax) and not apart
    bounds = masks.bounds(layer.mask, len(row)) if by_distance else None
    merged = tables(layer, len(row)) if bounds is not None else None
    if bounds is None or merged is None:
        drawn, lost = _by_query(layer, row)
    else:
        drawn = np.zeros(len(row))
        behind = lookahead(layer.mask, len(row))
        weights = layer.head_logits.weights.copy()  # read-only arrays would be compiled for anew
        lost = float(_by_distance(row, *merged, behind, *bounds, weights, drawn))
    return (1.0 - mixing) * row + mixing * drawn, mixing * lost


def tables(layer: Layer, tokens: int) -> Tables | None:
    """The layer's exponentials for a text of `tokens` tokens; None where a double cannot hold them."""
    fixed = layer.head_logits
    behind, far = lookahead(layer.mask, tokens), layer.mask.farthest(tokens)
    bias = layer.bias(np.arange(-behind, far + 1))
    here = bias[:, behind] + fixed.diagonal
    high, low = bias.max(axis=1), bias.min(axis=1)
    largest = np.maximum.reduce([high, here, high + fixed.first, fixed.sinks])
    present = np.where(np.isfinite(fixed.sinks), fixed.sinks, largest)
    least = np.minimum.reduce([low, here, low + fixed.first, here + fixed.first, present])
    # what the first query and every later one see at the least
    start = np.maximum(here + fixed.first, fixed.sinks)
    later = np.maximum(here, fixed.sinks)
    if isinstance(layer.mask, masks.Banded):
        later = np.maximum(later, bias[:, min(behind + 1, bias.shape[1] - 1)])
    close = (largest - np.minimum(start, later) <= NEAR) & (np.abs(fixed.first) <= NEAR)
    if not ((largest - least <= RANGE) | close).all():
        return None
    shifted = bias - largest[:, None]
    vanished = shifted < LEAST if (low - largest < LEAST).any() else None
    np.exp(shifted, out=shifted)
    if vanished is not None:
        shifted[vanished] = 0.0
    return Tables(np.exp(here - largest), np.exp(fixed.first), np.exp(fixed.sinks - largest), shifted)


@compiled()
def _running_sums(terms):
    """0 and the sums of the first 1, 2, … terms, each carried with its rounding error (Kahan)."""
    sums = np.zeros(len(terms) + 1)
    total, missing = 0.0, 0.0
    for k in range(len(terms)):
        term = terms[k] - missing
        grown = total + term
        missing = (grown - total) - term
        total = grown
        sums[k + 1] = total
    return sums


@compiled()
def denominators(table, here, first, sink, behind, low, high, always):
    """Z_i of every query for one head, by additions only; `table` is its row of `Tables.bias`."""
    before, after = _running_sums(table[behind + 1 :]), _running_sums(table[:behind][::-1])
    sums = np.empty(len(low))
    for i in range(len(low)):
        total = sink + after[high[i] - i]
        if i == 0:
            sums[i] = total + here * first
            continue
        # keys from the first seen but not key 0 to i − 1; key 0 has its own factor
        total += here + before[i - max(low[i], 1)]
        if low[i] == 0 or always > 0:
            total += table[behind + i] * first
        for j in range(1, min(always, low[i])):
            total += table[behind + i - j]
        sums[i] = total
    return sums


@compiled()
def _by_distance(row, here, first, sinks, bias, behind, low, high, always, weights, drawn):
    """Add Σ_i row_i·A_ij to `drawn`; what the learned sinks take."""
    lost = 0.0
    for h in range(bias.shape[0]):
        table = bias[h]
        far = len(table) - 1 - behind
        sums = denominators(table, here[h], first[h], sinks[h], behind, low, high, always)
        u = np.zeros(len(row))
        for i in range(len(row)):
            if row[i] < FLOOR:
                continue
            u[i] = row[i] * weights[h] / sums[i]
            lost += u[i] * sinks[h]
            if i == 0:
                drawn[0] += u[0] * here[h] * first[h]
                continue
            drawn[i] += u[i] * here[h]
            if low[i] == 0 or always > 0:
                drawn[0] += u[i] * table[behind + i] * first[h]
            for j in range(1, min(always, low[i])):
                drawn[j] += u[i] * table[behind + i - j]
        while far > 0 and table[behind + far] == 0.0:
            far -= 1
        scatter(u, table[: behind + far + 1][::-1].copy(), far, low, high, drawn)
    return lost


@compiled()
def scatter(u, table, far, low, high, drawn):
    """Add Σ_i u_i·g(i − j) to every drawn_j with low_i ≤ j ≤ high_i, j ≠ i, j > 0 and i − j ≤ far.

    `table` holds g at distance d in place far − d. Keys that four neighbouring queries see are passed once.
    """
    for i in range(0, len(u), 4):
        end = min(i + 4, len(u))
        seen = 0
        for k in range(i, end):
            seen += u[k] != 0.0
        before, after = i, end
        if end == i + 4 and seen > 1:
            before = min(max(low[i + 3], 1, i + 3 - far), i)
            after = max(high[i] + 1, end)
            _four(u[i:end], table, far - i, before, i, drawn)
            _four(u[i:end], table, far - i, end, after, drawn)
        for k in range(i, end):
            if u[k] == 0.0:
                continue
            start = max(low[k], 1, k - far)
            _one(u[k], table, far - k, start, before, drawn)
            _one(u[k], table, far - k, max(start, i), k, drawn)
            _one(u[k], table, far - k, k + 1, min(end, high[k] + 1), drawn)
            _one(u[k], table, far - k, after, high[k] + 1, drawn)


@compiled("contract", inlined=True)
def _four(u, table, place, start, end, drawn):
    """The keys start … end − 1 of four queries; `place` is that of key 0 for the first of them."""
    if end <= start:
        return
    part = drawn[start:end]
    first, second = table[place + start : place + end], table[place - 1 + start : place - 1 + end]
    third, fourth = table[place - 2 + start : place - 2 + end], table[place - 3 + start : place - 3 + end]
    u0, u1, u2, u3 = u[0], u[1], u[2], u[3]
    for j in range(len(part)):
        part[j] += (u0 * first[j] + u1 * second[j]) + (u2 * third[j] + u3 * fourth[j])


@compiled("contract", inlined=True)
def _one(u, table, place, start, end, drawn):
    """The keys start … end − 1 of one query; `place` is that of key 0."""
    if end <= start:
        return
    part, values = drawn[start:end], table[place + start : place + end]
    for j in range(len(part)):
        part[j] += u * values[j]


def _keys_of(layer: Layer, tokens: int) -> Callable[[int], Int[np.ndarray, "key"]]:
    """The keys that each query sees; of a mask that has no `keys` from its matrix."""
    bounds = masks.bounds(layer.mask, tokens)
    if bounds is None and (by_query := getattr(layer.mask, "keys", None)) is not None:
        return lambda query: by_query(query, tokens)
    if bounds is None:
        machine.require(9 * tokens**2, "tokens", tokens)
        allowed = layer.mask.allowed(tokens)
        return lambda query: np.flatnonzero(allowed[query])
    low, high, always = bounds

    def keys_of(query: int) -> Int[np.ndarray, "key"]:
        keys = np.arange(low[query], high[query] + 1)
        return np.concatenate([np.arange(min(always, low[query])), keys])

    return keys_of


def _by_query(layer: Layer, row: Row) -> tuple[Row, float]:
    """Σ_i row_i·A_ij query by query, each softmax against its own largest logit; and what reaches no token."""
    tokens = len(row)
    fixed = layer.head_logits
    keys_of = _keys_of(layer, tokens)
    behind, far = lookahead(layer.mask, tokens), layer.mask.farthest(tokens)
    dense = layer.positional if isinstance(layer.positional, DenseLogits) else None
    known = layer.bias(np.arange(-behind, far + 1)) if dense is None else np.empty((0, 0))
    normaliser = None if isinstance(layer.normaliser, Softmax) else layer.at(tokens).normaliser
    factors, sink_logits = layer.factors(np.arange(tokens)), layer.sink_logits(np.arange(tokens))
    drawn, lost = np.zeros(tokens), 0.0
    for query in np.flatnonzero(row).tolist():
        keys = keys_of(query)
        if dense is None:
            logits = known[:, query - keys + behind]
        else:
            logits = dense.logits_of(np.array([query]), keys, layer.heads, layer.groups)[:, 0]
            logits = logits / layer.temperature
        logits[:, keys == query] += fixed.diagonal[:, None]
        logits[:, keys == 0] += fixed.first[:, None]
        if normaliser is not None:
            logits += layer.constant[:, None]
        if factors is not None:
            np.multiply(logits, factors[:, query, None], out=logits, where=logits > -np.inf)
        if normaliser is not None:
            part = through(fixed.weights, normaliser.weights_of(logits))
            if not (total := float(part.sum())) <= 1 + 1e-12:
                made = f"{total:.6g} at query {query}"
                raise wrong("normaliser", "rows that sum to at most 1 (shares make a profile)", got=made)
            drawn[keys] += row[query] * part
            lost += row[query] * max(0.0, 1.0 - total)
            continue
        if not np.isfinite(highest := logits.max(axis=1)).all():
            raise wrong("logits", "numbers or −∞, one finite at least", got=f"others at query {query}")
        largest = np.maximum(highest, sink_logits[:, query])
        shares = np.exp(logits - largest[:, None])
        sinks = np.exp(sink_logits[:, query] - largest)
        u = row[query] * fixed.weights / (shares.sum(axis=1) + sinks)
        drawn[keys] += through(u, shares)
        lost += float((u * sinks).sum())
    return drawn, lost
