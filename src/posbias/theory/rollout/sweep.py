"""The compiled sweep of causal layers: a row through all of them in O(tokens · heads · depth), additions only.

With logits δ·1[i = j] − m·(i − j), the product (p·A)_j needs, per head, one running sum taken from the last
token to the first:

    (p·A)_j = s_j + p_j·e/Z_j,     s_{j−1} = γ·s_j + p_j·g/Z_j,     γ = exp(−m)

where e and g are exp(δ) and exp(−m), both divided by the larger, and Z_j = e + g·(1 − γ^j)/(1 − γ). A logit f
on the first column multiplies the last term of Z_j and what arrives at token 0 by exp(f); a learned sink adds
its own term to Z_j. Every term is positive, so every entry keeps its relative accuracy down to the smallest.
Heads with equal logits are one head with their weights added. Three things make it fast:

- The layers are swept together, a block of tokens at a time: layer t needs from layer t + 1 only the tokens
  at and after its own. One block stays in the cache while it passes through all layers, and several threads
  form a pipeline over layers that gives the same bits as one thread.
- The weights g/Z of a block are computed once and shared by all layers with equal logits; beyond 41.5/m
  tokens γ^j is negligible against 1 and one row of weights serves all blocks.
- Sums below `FLOOR` become zero before they can turn into denormals, on which processors crawl.

The rounding of γ itself would grow with distance; each block multiplies its running sums by the correction
1 + ε·length, with ε the relative error of the rounded γ.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Semaphore
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.core.errors import InvalidValueError
from posbias.core.machine import SUMS, compiled
from posbias.theory.architecture import HeadLogits, Layer
from posbias.theory.rollout.kernel import FLOOR, Row

BLOCK = 128
"""Tokens that pass through all layers together."""
VANISHED = 41.5
"""exp(−41.5) is less than half a rounding of 1."""
TINY = 1e-300
"""Keeps the first token's 0/0 away when its own weight underflows; its true row is set right after."""
CHUNK = 32
"""Blocks that one thread hands to the next at a time."""


class Weights(NamedTuple):
    """exp of the logits that a query sees, by head (or by layer and head), and the weights of the heads.

    Of the token itself, of the one before, of the one after and of the sink (0 where there is none), divided by
    the largest of them. `first` multiplies those of the first column and is not divided.
    """

    here: Float[np.ndarray, "*layer head"]
    there: Float[np.ndarray, "*layer head"]
    after: Float[np.ndarray, "*layer head"]
    sinks: Float[np.ndarray, "*layer head"]
    first: Float[np.ndarray, "*layer head"]
    heads: Float[np.ndarray, "*layer head"]


class Plan(NamedTuple):
    """What the sweep needs of a stack of layers for a number of tokens, layer 0 at the bottom.

    `keep` is 1 − λ, `slack` the relative error of `gamma`. Layers have as many heads each, padded with heads of
    weight zero. `same` numbers layers with equal logits alike; `sums` says which table of sums a layer uses; from
    token `saturated` on, Z has its limit. The first token sees only itself and the sink: it keeps `alone` and
    loses `gone`. Tables hold (1 − γ^k)/(1 − γ) up to a block (`start`) and inside one, and γ^k likewise.
    """

    mixing: Float[np.ndarray, "layer"]
    keep: Float[np.ndarray, "layer"]
    gamma: Float[np.ndarray, "layer head"]
    slack: Float[np.ndarray, "layer head"]
    weights: Weights
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
    heads = _stacked([exponential(layer, tokens) for layer in distinct])
    assert heads.slopes is not None
    margin = heads.diagonal + heads.first - heads.sinks
    column = (heads.first != 0.0).any(axis=1)
    tables, table_of = np.unique(heads.slopes, axis=0, return_inverse=True)
    with np.errstate(divide="ignore"):
        lifted = VANISHED + np.maximum(heads.first, 0.0).max(axis=1)
        saturated = np.minimum(np.ceil(lifted / heads.slopes.min(axis=1)) + column, tokens).astype(np.int64)
        limit = -1.0 / np.expm1(-tables)
    gamma, slack = rounded_power(heads.slopes, 1)
    blocks = np.arange(-(-int(saturated.max()) // BLOCK), dtype=np.float64)[:, None] * BLOCK
    offsets = np.arange(BLOCK, dtype=np.float64)[:, None]
    return Plan(
        mixing=np.array(mixing, dtype=np.float64),
        keep=1.0 - np.array(mixing, dtype=np.float64),
        gamma=gamma[same],
        slack=slack[same],
        weights=Weights(*(part[same] for part in weights_of(heads))),
        same=same,
        sums=table_of.reshape(-1)[same].astype(np.int64),
        saturated=saturated[same],
        column=column[same],
        alone=(heads.weights * np.exp(-np.logaddexp(0, -margin))).sum(axis=1)[same],
        gone=(heads.weights * np.exp(-np.logaddexp(0, margin))).sum(axis=1)[same],
        limit=np.where(np.isfinite(limit), limit, 0.0),
        start=geometric(tables[:, None], blocks),
        whole=np.exp(-tables[:, None] * (blocks if column.any() else blocks[:0])),
        inside=geometric(tables[:, None], offsets),
        powers=np.exp(-tables[:, None] * offsets),
    )


def plan_bytes(stack: Sequence[Layer], tokens: int) -> int:
    """Bytes that a sweep over `tokens` tokens will take at most: the row, its copy, tables and their making."""
    layers = set(stack)
    heads = max(layer.heads for layer in layers)
    slopes = [layer.head_logits().slopes for layer in layers]
    least = min((float(one.min()) for one in slopes if one is not None), default=1.0)
    reach = tokens if least * tokens <= VANISHED else VANISHED / least
    tables = 3 * len(layers) * heads * (reach / BLOCK + 3 * BLOCK)
    return int(8 * (3 * tokens + tables + 10 * len(stack) * heads))


# --- logits of an exponential family, here and under windows ------------------------------------------------


def exponential(layer: Layer, tokens: int) -> HeadLogits:
    """The logits of a layer, heads merged, for a text of `tokens` tokens.

    Raises `InvalidValueError` for other encodings.
    """
    logits = merge(layer.head_logits())
    assert logits.slopes is not None
    # a slope that cannot move 1 by half a rounding over the whole text is no slope
    return replace(logits, slopes=np.where(logits.slopes * tokens < 1e-18, 0.0, logits.slopes))


def merge(logits: HeadLogits) -> HeadLogits:
    """The same layer with heads of equal logits made one, their weights added. Raises as `exponential`."""
    if logits.slopes is None:
        raise InvalidValueError("positional: expected an exponential family for the sweep, got another")
    rows = np.stack([logits.slopes, logits.diagonal, logits.first, logits.sinks], axis=1)
    places: dict[bytes, int] = {}
    place_of = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    if len(places) == len(rows):
        return logits
    kept = np.unique(place_of, return_index=True)[1]
    return HeadLogits(*rows[kept].T, weights=np.bincount(place_of, weights=logits.weights))


def _stacked(layers: Sequence[HeadLogits]) -> HeadLogits:
    """The logits of several layers, layer by head, with as many heads in each, padded with heads of no weight."""
    shape = len(layers), max(len(one.weights) for one in layers)
    none = {"slopes": 1.0, "diagonal": 0.0, "first": 0.0, "sinks": -np.inf, "weights": 0.0}
    rows = {name: np.full(shape, number) for name, number in none.items()}
    for name, numbers in rows.items():
        for row, one in zip(numbers, layers, strict=True):
            row[: len(one.weights)] = getattr(one, name)
    return HeadLogits(**rows)


def weights_of(logits: HeadLogits, later: float | Float[np.ndarray, "head"] = np.inf) -> Weights:
    """The weights of queries that see a key before them and, where `later` is finite, one after at −`later`."""
    assert logits.slopes is not None
    ahead = -later + np.zeros_like(logits.slopes)
    largest = np.maximum.reduce([logits.diagonal, -logits.slopes, ahead, logits.sinks])
    return Weights(
        here=np.exp(logits.diagonal - largest),
        there=np.exp(-logits.slopes - largest),
        after=np.exp(ahead - largest),
        sinks=np.exp(logits.sinks - largest),
        first=np.exp(logits.first),
        heads=logits.weights.copy(),
    )


def geometric(slopes: Float[np.ndarray, "*table head"], terms: Float[np.ndarray, "offset 1"]) -> np.ndarray:
    """(1 − γ^k)/(1 − γ) for each number of terms k, without cancellation; k itself where γ = 1."""
    with np.errstate(invalid="ignore"):
        return np.where(slopes > 0, np.expm1(-slopes * terms) / np.expm1(-slopes), terms)


def rounded_power(slopes: Float[np.ndarray, "*layer head"], tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """γ^tokens in double precision, without denormals, and its relative error."""
    exact = np.exp(-slopes.astype(np.longdouble) * tokens)
    power = exact.astype(np.float64)
    power[power < FLOOR] = 0.0
    error = np.zeros_like(power)
    return power, np.divide(exact - power, power, out=error, where=power > 0, casting="same_kind")


# --- the sweep ----------------------------------------------------------------------------------------------


def sweep(plan: Plan, row: Row, threads: int = 1) -> tuple[Row, float]:
    """row · R_T ⋯ R_1 over positions, and the mass lost to learned sinks; the same bits for any threads."""
    row = np.array(row, dtype=np.float64)
    tokens, depth = len(row), len(plan.mixing)
    state, lost = np.zeros_like(plan.gamma), np.zeros(depth)
    spans = _spans(tokens)
    stages = [(int(top), int(bottom)) for bottom, top in _parts(depth, min(threads, depth, len(spans)))]
    if len(stages) == 1:
        _sweep_span(row, 0, tokens, depth, 0, state, lost, plan)
        return row, float(lost.sum())
    ready = [Semaphore(0) for _ in stages]
    ready[0].release(len(spans))

    def pass_through(stage: int) -> None:
        try:
            for low, high in spans:
                ready[stage].acquire()
                _sweep_span(row, low, high, *stages[stage], state, lost, plan)
                if stage + 1 < len(stages):
                    ready[stage + 1].release()
        finally:
            # if this stage failed, those below must not wait for it for ever
            if stage + 1 < len(stages):
                ready[stage + 1].release(len(spans))

    with ThreadPoolExecutor(len(stages)) as pool:
        for stage in [pool.submit(pass_through, stage) for stage in range(len(stages))]:
            stage.result()
    return row, float(lost.sum())


def _spans(tokens: int) -> list[tuple[int, int]]:
    """The tokens in spans of whole blocks, last span first; only the last may be shorter."""
    step = CHUNK * BLOCK
    return [(start, min(tokens, start + step)) for start in range((tokens - 1) // step * step, -1, -step)]


def _parts(depth: int, stages: int) -> list[tuple[int, int]]:
    """Layers in contiguous parts of nearly equal size, as (bottom, top), the top part first."""
    edges = np.linspace(0, depth, stages + 1).round().astype(int)
    return [(edges[k], edges[k + 1]) for k in range(stages)][::-1]


@compiled(*SUMS)
def _sweep_span(row, low, high, top, bottom, state, lost, plan):
    """Take tokens low … high − 1 of `row`, in place, through layers top − 1 down to bottom."""
    heads = plan.gamma.shape[1]
    tile, partial = np.empty((BLOCK, heads)), np.empty(heads)
    own, taken = np.empty(BLOCK), np.empty(BLOCK)
    for block in range((high - 1) // BLOCK, low // BLOCK - 1, -1):
        origin = block * BLOCK
        length = min(high, origin + BLOCK) - origin
        filled = -1
        for layer in range(top - 1, bottom - 1, -1):
            flat = origin >= plan.saturated[layer]
            if plan.same[layer] != filled:
                filled = plan.same[layer]
                _fill(plan, layer, block, 1 if flat else length, flat, partial, tile, own, taken)
            drawn = 0.0
            for k in range(length):
                drawn += row[origin + k] * taken[0 if flat else k]
            lost[layer] += plan.mixing[layer] * drawn
            lam, rest, factor, held = plan.mixing[layer], plan.keep[layer], plan.gamma[layer], state[layer]
            stop = 1 if origin == 0 else 0
            _sweep_block(row, origin, stop, length, lam, rest, factor, held, tile, own, flat)
            if origin == 0:
                for h in range(heads):
                    state[layer, h] *= plan.weights.first[layer, h]
                _sweep_block(row, 0, 0, 1, lam, rest, factor, held, tile, own, False)
            for h in range(heads):
                s = state[layer, h] * (1.0 + plan.slack[layer, h] * length)
                state[layer, h] = s if s > FLOOR else 0.0


@compiled(*SUMS, inlined=True, error_model="numpy")
def _fill(plan, layer, block, length, flat, partial, tile, own, taken):
    """Fill in each head's share g/Z for the tokens of a block, and Σ e/Z kept and Σ sink/Z lost of each token."""
    weights, table, origin = plan.weights, plan.sums[layer], block * BLOCK
    inside, powers = plan.inside[table], plan.powers[table]
    for k in range(length):
        if flat:
            for h in range(len(partial)):
                partial[h] = plan.limit[table, h]
        elif plan.column[layer] and origin + k > 0:
            # all keys but the first, then the first with its own logit
            q, r = (origin + k - 1) // BLOCK, (origin + k - 1) % BLOCK
            for h in range(len(partial)):
                most = inside[r, h] + powers[r, h] * plan.start[table, q, h]
                partial[h] = most + weights.first[layer, h] * powers[r, h] * plan.whole[table, q, h]
        else:
            for h in range(len(partial)):
                partial[h] = inside[k, h] + powers[k, h] * plan.start[table, block, h]
        here, there, sinks = weights.here[layer], weights.there[layer], weights.sinks[layer]
        kept, lost = 0.0, 0.0
        for h in range(len(partial)):
            share = weights.heads[layer, h] / (here[h] + there[h] * partial[h] + sinks[h] + TINY)
            tile[k, h] = share * there[h]
            kept += share * here[h]
            lost += share * sinks[h]
        own[k], taken[k] = kept, lost
    if origin == 0:
        tile[0, :] = 0.0
        own[0], taken[0] = plan.alone[layer], plan.gone[layer]


@compiled(*SUMS, inlined=True)
def _sweep_block(row, first, stop, length, lam, keep, gamma, state, tile, own, flat):
    """Tokens stop … length − 1 of a block through one layer, four at a time, from the last to the first."""
    heads = gamma.shape[0]
    step = 0 if flat else 1
    k = length - 1
    while k >= stop + 3:
        p0, p1, p2, p3 = row[first + k], row[first + k - 1], row[first + k - 2], row[first + k - 3]
        c0, c1, c2, c3 = tile[step * k], tile[step * (k - 1)], tile[step * (k - 2)], tile[step * (k - 3)]
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for h in range(heads):
            s = state[h]
            a0 += s
            s = gamma[h] * s + c0[h] * p0
            a1 += s
            s = gamma[h] * s + c1[h] * p1
            a2 += s
            s = gamma[h] * s + c2[h] * p2
            a3 += s
            s = gamma[h] * s + c3[h] * p3
            state[h] = s if s > FLOOR else 0.0
        row[first + k] = _mixed(p0, a0, own[step * k], lam, keep)
        row[first + k - 1] = _mixed(p1, a1, own[step * (k - 1)], lam, keep)
        row[first + k - 2] = _mixed(p2, a2, own[step * (k - 2)], lam, keep)
        row[first + k - 3] = _mixed(p3, a3, own[step * (k - 3)], lam, keep)
        k -= 4
    while k >= stop:
        p0 = row[first + k]
        c0 = tile[step * k]
        a0 = 0.0
        for h in range(heads):
            s = state[h]
            a0 += s
            s = gamma[h] * s + c0[h] * p0
            state[h] = s if s > FLOOR else 0.0
        row[first + k] = _mixed(p0, a0, own[step * k], lam, keep)
        k -= 1


@compiled(*SUMS, inlined=True)
def _mixed(p, received, own, lam, keep):
    """(1 − λ)·p + λ·(what later tokens pass on + what the token keeps of itself).

    1 − λ comes as a number of its own: a compiler that may reassociate would take the difference apart.
    """
    out = keep * p + lam * (received + own * p)
    return out if out > FLOOR else 0.0
