"""The compiled sweep of exponential families: O(tokens · heads) for each layer, additions only.

With logits δ·1[i = j] − m·(i − j), the product (p·A)_j needs, per head, one running sum taken from the last
token to the first:

    (p·A)_j = s_j + p_j·e/Z_j,     s_{j−1} = γ·s_j + p_j·g/Z_j,     γ = exp(−m)

where e and g are exp(δ) and exp(−m), both divided by the largest weight that a query sees, and under a causal mask
Z_j = e + g·(1 − γ^j)/(1 − γ). A logit f on the first column multiplies the last term of Z_j and what arrives at
token 0 by exp(f); a learned sink adds its own term to Z_j. Every term is positive, so every entry keeps its
relative accuracy down to the smallest. Heads with equal logits are one head with their weights added.

Causal layers are swept together (`sweep`). Three things make it fast:

- The layers take a block of tokens at a time: layer t needs from layer t + 1 only the tokens at and after its own.
  One block stays in the cache while it passes through all layers, and several threads form a pipeline over layers
  that gives the same bits as one thread.
- The weights g/Z of a block are computed once and shared by all layers with equal logits; beyond 41.5/m
  tokens γ^j is negligible against 1 and one row of weights serves all blocks.
- Sums below `FLOOR` become zero before they can turn into denormals, on which processors crawl.

The rounding of γ itself would grow with distance; each block multiplies its running sums by the correction
1 + ε·length, with ε the relative error of the rounded γ.

Layers under any other band go one by one (`push`). What leaves a window of V tokens is not subtracted, since that
would cancel: the text is cut into parts of V tokens (van Herk 1992), and j sees the rest of its own part, a sum
that runs down, and the beginning of the next one, a sum that runs up. The first tokens that all see get the sums
of all parts, and what the earlier queries of a prefix or full mask add is the mirror image of a causal text. Sums
run inside a block here and are carried from block to block with their rounding errors, so that none add up over a
long window.

Compiled loops over tokens take entries by their indices: Numba counts references to every view of a row and every
field of a tuple, atomically, which took a third of the time.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.core.errors import wrong
from posbias.core.machine import SUMS, compiled
from posbias.theory.architecture import HeadLogits, Layer
from posbias.theory.masks import ALL, Band, Banded
from posbias.theory.positional import DecayBias
from posbias.theory.rollout import stream
from posbias.theory.rollout.kernel import FLOOR, Row, distinct_rows

BLOCK = 128
"""Tokens that pass through all layers together, and whose sums run together under a window."""
VANISHED = 41.5
"""exp(−41.5) is less than half a rounding of 1."""
TINY = 1e-300
"""Keeps the first token's 0/0 away when its own weight underflows; its true row is set right after."""
CHUNK = 32
"""Blocks that one thread hands to the next at a time."""
STEEPEST = 600.0
"""Steeper slopes are left to the stream where keys after the query have logit 0: both would not fit a double."""
CAUSAL = Band(ALL)


class Weights(NamedTuple):
    """exp of the logits that a query sees, by layer and head, and the weights of the heads.

    Of the token itself, of the one before and of the sink (0 where there is none), divided by the largest of them
    and of the one after, where it is seen. `first` multiplies those of the first column and is not divided;
    `begin` is what the first token gives itself.
    """

    here: Float[np.ndarray, "layer head"]
    there: Float[np.ndarray, "layer head"]
    sinks: Float[np.ndarray, "layer head"]
    first: Float[np.ndarray, "layer head"]
    begin: Float[np.ndarray, "layer head"]
    heads: Float[np.ndarray, "layer head"]


class Plan(NamedTuple):
    """What the sweep needs of a stack of layers for a number of tokens, layer 0 at the bottom.

    `keep` is 1 − λ, `slack` the relative error of `gamma`. Layers have as many heads each, padded with heads of
    weight zero. `same` numbers layers with equal logits alike; `sums` says which table of sums a layer uses; from
    token `saturated` on, Z has its limit. Under a mask that looks back the first token sees only itself and the
    sink: it keeps `alone` and loses `gone`. Tables hold (1 − γ^k)/(1 − γ) up to a block (`start`) and inside one,
    and γ^k likewise (`whole`, `powers`). `behind`, `always` and `prefix` are those of the `Band`; `level`: logits
    of keys after the query are 0.
    """

    mixing: Float[np.ndarray, "layer"]
    keep: Float[np.ndarray, "layer"]
    slopes: Float[np.ndarray, "layer head"]
    gamma: Float[np.ndarray, "layer head"]
    slack: Float[np.ndarray, "layer head"]
    weights: Weights
    same: Int[np.ndarray, "layer"]
    sums: Int[np.ndarray, "layer"]
    saturated: Int[np.ndarray, "layer"]
    column: Bool[np.ndarray, "layer"]
    alone: Float[np.ndarray, "layer"]
    gone: Float[np.ndarray, "layer"]
    start: Float[np.ndarray, "table block head"]
    whole: Float[np.ndarray, "table block head"]
    inside: Float[np.ndarray, "table offset head"]
    powers: Float[np.ndarray, "table offset head"]
    level: bool
    behind: int
    always: int
    prefix: int


def plan(
    stack: Sequence[Layer], mixing: Float[np.ndarray, "layer"], tokens: int, band: Band = CAUSAL
) -> Plan:
    """Prepare the sweep over `tokens` tokens of layers with exponential logits under one band, bottom first.

    Raises `InvalidValueError` for other encodings.
    """
    behind, always, prefix = band.at(tokens)
    level = prefix > 1 and isinstance(stack[0].positional, DecayBias)
    distinct: dict[Layer, int] = {}
    same = np.array([distinct.setdefault(layer, len(distinct)) for layer in stack], dtype=np.int64)
    heads = _stacked([exponential(layer, tokens) for layer in distinct])
    assert heads.slopes is not None
    margin = heads.diagonal + heads.first - heads.sinks
    column = (heads.first != 0.0).any(axis=1)
    first_of, table_of = distinct_rows(heads.slopes)
    tables = heads.slopes[first_of][:, None]
    saturated = np.minimum(np.maximum(_saturated(heads, behind, always), prefix - 1), tokens).astype(np.int64)
    gamma, slack = rounded_power(heads.slopes, 1)
    blocks = np.arange(int(saturated.max()) // BLOCK + 2, dtype=np.float64)[:, None] * BLOCK
    offsets = np.arange(BLOCK, dtype=np.float64)[:, None]
    return Plan(
        mixing=np.array(mixing, dtype=np.float64),
        keep=1.0 - np.array(mixing, dtype=np.float64),
        slopes=heads.slopes[same],
        gamma=gamma[same],
        slack=slack[same],
        weights=Weights(*(part[same] for part in _weights(heads, prefix > 1, level))),
        same=same,
        sums=np.array(table_of)[same],
        saturated=saturated[same],
        column=column[same],
        alone=(heads.weights * np.exp(-np.logaddexp(0, -margin))).sum(axis=1)[same],
        gone=(heads.weights * np.exp(-np.logaddexp(0, margin))).sum(axis=1)[same],
        start=geometric(tables, blocks),
        whole=np.exp(-tables * (blocks if column.any() or always else blocks[:0])),
        inside=geometric(tables, offsets),
        powers=np.exp(-tables * offsets),
        level=level,
        behind=behind,
        always=always,
        prefix=prefix,
    )


def _saturated(heads: HeadLogits, behind: int, always: int) -> Float[np.ndarray, "layer"]:
    """The token from which on Z is the same, by layer."""
    assert heads.slopes is not None
    lifted = VANISHED + np.maximum(heads.first, 0.0).max(axis=1, keepdims=True) + np.log1p(always)
    with np.errstate(divide="ignore"):
        fading = np.ceil(lifted / heads.slopes) + (heads.first != 0.0).any(axis=1, keepdims=True)
    seen = always + np.where(heads.slopes > 0, fading, behind) if always else np.minimum(fading, behind + 1)
    return seen.max(axis=1)


def plan_bytes(stack: Sequence[Layer], tokens: int) -> int:
    """Bytes that a sweep over `tokens` tokens will take at most: the row, its copy, tables and their making."""
    layers = set(stack)
    heads = max(layer.heads for layer in layers)
    slopes = [layer.head_logits.slopes for layer in layers]
    least = min((float(one.min()) for one in slopes if one is not None), default=1.0)
    reach = tokens if least * tokens <= VANISHED else VANISHED / least
    tables = 3 * len(layers) * heads * (reach / BLOCK + 3 * BLOCK)
    return int(8 * (3 * tokens + tables + 10 * len(stack) * heads))


# --- logits of an exponential family ------------------------------------------------------------------------


def exponential(layer: Layer, tokens: int) -> HeadLogits:
    """The logits of a layer, heads merged, for a text of `tokens` tokens.

    Raises `InvalidValueError` for other encodings.
    """
    logits = layer.head_logits
    if logits.slopes is None:
        raise wrong("positional", "an exponential family for the sweep", got="another")
    # a slope that cannot move 1 by half a rounding over the whole text is no slope
    slopes = np.where(logits.slopes * tokens < 1e-18, 0.0, logits.slopes)
    rows = np.stack([slopes, logits.diagonal, logits.first, logits.sinks], axis=1)
    kinds, kind_of = distinct_rows(rows)
    return HeadLogits(*rows[kinds].T, weights=np.bincount(kind_of, weights=logits.weights))


def _stacked(layers: Sequence[HeadLogits]) -> HeadLogits:
    """The logits of several layers, layer by head, with as many heads in each, padded with heads of no weight."""
    shape = len(layers), max(len(one.weights) for one in layers)
    none = {"slopes": 1.0, "diagonal": 0.0, "first": 0.0, "sinks": -np.inf, "weights": 0.0}
    rows = {name: np.full(shape, number) for name, number in none.items()}
    for name, numbers in rows.items():
        for row, one in zip(numbers, layers, strict=True):
            row[: len(one.weights)] = getattr(one, name)
    return HeadLogits(**rows)


def _weights(logits: HeadLogits, ahead: bool, level: bool) -> Weights:
    """The weights of queries, which see a key after them where `ahead`, at logit 0 if `level`."""
    assert logits.slopes is not None
    after = 0.0 if level else -logits.slopes
    largest = np.maximum.reduce([logits.diagonal, -logits.slopes, logits.sinks])
    largest = np.maximum(largest, after) if ahead else largest
    here, first = np.exp(logits.diagonal - largest), np.exp(logits.first)
    there, sinks = np.exp(-logits.slopes - largest), np.exp(logits.sinks - largest)
    return Weights(here, there, sinks, first, here * first, logits.weights.copy())


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
                _fill(plan, layer, origin, length, partial, tile, own, taken)
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


@compiled(*SUMS, inlined=True)
def _fill(plan, layer, origin, length, partial, tile, own, taken):
    """Fill in each head's share g/Z for tokens from `origin` on, and Σ e/Z kept and Σ sink/Z lost of each token.

    One row, where Z is the same for all of them.
    """
    weights, table, column = plan.weights, plan.sums[layer], 1 if plan.column[layer] else 0
    here, there, sinks = weights.here[layer], weights.there[layer], weights.sinks[layer]
    first, begin, heads = weights.first[layer], weights.begin[layer], weights.heads[layer]
    inside, powers = plan.inside[table], plan.powers[table]
    start, whole = plan.start[table], plan.whole[table]
    behind, always, prefix = plan.behind, plan.always, plan.prefix
    level, gamma = plan.level, plan.gamma[layer]
    if origin >= plan.saturated[layer]:
        origin, length = plan.saturated[layer], 1
    for k in range(length):
        query = origin + k
        # keys of the window, the first of all with its own logit
        apart = column if 0 < query <= behind else 0
        terms = min(query, behind) - apart
        q, r = terms // BLOCK, terms % BLOCK
        for h in range(len(partial)):
            partial[h] = inside[r, h] + powers[r, h] * start[q, h]
        if apart:
            for h in range(len(partial)):
                partial[h] += first[h] * powers[r, h] * whole[q, h]
        if query > behind and always > 0:
            _add_far(partial, query, min(query - behind, always), column, first, inside, powers, start, whole)
        if query < prefix - 1:
            _add_later(partial, prefix - 1 - query, level, gamma, inside, powers, start)
        _share(k, partial, here, there, sinks, heads, tile, own, taken)
    if origin == 0 and prefix > 1:
        partial[:] = 0.0
        _add_later(partial, prefix - 1, level, gamma, inside, powers, start)
        _share(0, partial, begin, there, sinks, heads, tile, own, taken)
    elif origin == 0:
        tile[0, :] = 0.0
        own[0], taken[0] = plan.alone[layer], plan.gone[layer]


@compiled(*SUMS, inlined=True)
def _add_far(partial, query, far, column, first, inside, powers, start, whole):
    """Add what a query sees of the first `far` tokens, before its window."""
    q, r = (far - column) // BLOCK, (far - column) % BLOCK
    a, b = (query - far) // BLOCK, (query - far) % BLOCK
    for h in range(len(partial)):
        partial[h] += powers[b, h] * whole[a, h] * (inside[r, h] + powers[r, h] * start[q, h])
    if column:
        a, b = (query - 1) // BLOCK, (query - 1) % BLOCK
        for h in range(len(partial)):
            partial[h] += first[h] * powers[b, h] * whole[a, h]


@compiled(*SUMS, inlined=True)
def _add_later(partial, later, level, gamma, inside, powers, start):
    """Add what a query sees of `later` tokens after it, relative to the one before it."""
    q, r = later // BLOCK, later % BLOCK
    for h in range(len(partial)):
        partial[h] += later / gamma[h] if level else inside[r, h] + powers[r, h] * start[q, h]


@compiled(*SUMS, inlined=True, error_model="numpy")
def _share(k, partial, here, there, sinks, heads, tile, own, taken):
    """What a query gives to others, to itself and to the sink; `partial` is what it sees of others."""
    kept, lost = 0.0, 0.0
    for h in range(len(partial)):
        share = heads[h] / (here[h] + there[h] * partial[h] + sinks[h] + TINY)
        tile[k, h] = share * there[h]
        kept += share * here[h]
        lost += share * sinks[h]
    own[k], taken[k] = kept, lost


@compiled(*SUMS, inlined=True)
def _sweep_block(row, first, stop, length, lam, keep, gamma, state, tile, own, flat):
    """Tokens stop … length − 1 of a block through one layer, four at a time, from the last to the first."""
    heads = gamma.shape[0]
    step = 0 if flat else 1
    k = length - 1
    while k >= stop + 3:
        p0, p1, p2, p3 = row[first + k], row[first + k - 1], row[first + k - 2], row[first + k - 3]
        c0, c1, c2, c3 = step * k, step * (k - 1), step * (k - 2), step * (k - 3)
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for h in range(heads):
            s = state[h]
            a0 += s
            s = gamma[h] * s + tile[c0, h] * p0
            a1 += s
            s = gamma[h] * s + tile[c1, h] * p1
            a2 += s
            s = gamma[h] * s + tile[c2, h] * p2
            a3 += s
            s = gamma[h] * s + tile[c3, h] * p3
            state[h] = s if s > FLOOR else 0.0
        row[first + k] = _mixed(p0, a0, own[step * k], lam, keep)
        row[first + k - 1] = _mixed(p1, a1, own[step * (k - 1)], lam, keep)
        row[first + k - 2] = _mixed(p2, a2, own[step * (k - 2)], lam, keep)
        row[first + k - 3] = _mixed(p3, a3, own[step * (k - 3)], lam, keep)
        k -= 4
    while k >= stop:
        p0, c0, a0 = row[first + k], step * k, 0.0
        for h in range(heads):
            s = state[h]
            a0 += s
            s = gamma[h] * s + tile[c0, h] * p0
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


# --- one layer under any band ---------------------------------------------------------------------------------


class Room(NamedTuple):
    """Working memory: a block's weights, what its tokens keep and lose, sums within it and over blocks.

    `total` is the sum over the blocks so far, and what roundings added to it too much.
    """

    tile: Float[np.ndarray, "offset head"]
    own: Float[np.ndarray, "offset"]
    taken: Float[np.ndarray, "offset"]
    made: Float[np.ndarray, "offset"]
    partial: Float[np.ndarray, "head"]
    local: Float[np.ndarray, "head"]
    ahead: Float[np.ndarray, "head"]
    total: Float[np.ndarray, "2 head"]


class Steps(NamedTuple):
    """γ^`BLOCK` and its relative error; γ to the power of a part's tokens before a block, after it, and both."""

    block: Float[np.ndarray, "head"]
    slack: Float[np.ndarray, "head"]
    before: Float[np.ndarray, "block head"]
    after: Float[np.ndarray, "block head"]
    both: Float[np.ndarray, "block head"]


def push(layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """row · R for one layer, R = (1 − λ)I + λA, and the mass that its learned sink takes.

    The layer's logits are an exponential family (`slopes_of` is not None), its first-column logits and learned
    sinks at most `dispatch.LARGEST`; the row has no negative entry. Every entry is a sum of positive terms, within
    1e-12 relative of the dense product (below 1e-250 it may be 0). Raises `InvalidValueError` for other encodings
    or a prefix beyond the text.
    """
    tokens = len(row)
    layer.mask.reach(0, tokens)
    if not isinstance(layer.mask, Banded):
        raise wrong("mask", "one with a band", got=type(layer.mask).__name__)
    band = layer.mask.band().at(tokens)
    made = plan([layer], np.array([mixing]), tokens, band)
    slopes = made.slopes[0]
    if band.behind == 0 or (made.level and slopes.max() > STEEPEST):
        return stream.push(layer, mixing, row)
    starts = np.arange(0, band.behind, BLOCK, dtype=np.float64)[:, None]
    stops = np.minimum(starts + BLOCK, band.behind)
    powers = (np.exp(-slopes * n) for n in (starts, band.behind - stops, band.behind - (stops - starts)))
    steps = Steps(*rounded_power(slopes, BLOCK), *(np.where(one < FLOOR, 0.0, one) for one in powers))
    count = len(slopes)
    shapes = (BLOCK, count), BLOCK, BLOCK, BLOCK, count, count, count, (2, count)
    room = Room(*(np.zeros(shape) for shape in shapes))
    # whole parts: the keys before an incomplete one see all of it
    given = np.concatenate([row, np.zeros(band.behind if band.behind < tokens - 1 else 0)])
    received = np.zeros(len(given))
    if band.prefix > 1:
        _ascend(given, received, made, steps, room)
    lost = _descend(given, received, tokens, made, steps, room)
    out = given[:tokens] + made.mixing[0] * received[:tokens]
    out[out < FLOOR] = 0.0
    return out, float(made.mixing[0] * lost)


@compiled()
def _descend(row, received, tokens, plan, steps, room):
    """Take a row, in place, through what tokens keep and get within their own part; the rest goes to `received`.

    What the sink takes.
    """
    behind, start, lost, steady = plan.behind, max(plan.always, 1), 0.0, False
    carry, everything, slopes = np.zeros_like(room.total), np.zeros_like(room.total), plan.slopes[0]
    for part in range((tokens - 1 - start) // behind, -3, -1):
        if part >= 0:
            begin, stop = start + part * behind, min(start + (part + 1) * behind, tokens)
            carry[:] = 0.0
        elif part == -1:
            begin, stop = 1, min(start, tokens)
            carry[:] = everything
        else:
            begin, stop = 0, 1
            carry[0] *= plan.weights.first[0]
        if part > 0:
            steady = _reach_back(row, received, begin, steady, plan, steps, room)
        for a in range(begin + (stop - 1 - begin) // BLOCK * BLOCK, begin - 1, -BLOCK):
            length = min(BLOCK, stop - a)
            steady = _weigh(a, length, steady, plan, room)
            lost += _block(row, received, a, length, carry, plan, room)
            _carry_on(carry, length, plan.powers[0], steps.block, steps.slack, room.local)
        if part == 0 or (part > 0 and plan.always > 0):
            for h in range(carry.shape[1]):
                _add(everything, h, everything[0, h], np.exp(-slopes[h] * part * behind) * carry[0, h])
    return lost


@compiled(inlined=True)
def _weigh(start, length, steady, plan, room):
    """Have the weights of a block in `room`, where it is not `steady` already; whether it is."""
    flat = start >= plan.saturated[0]
    if not (flat and steady):
        _fill(plan, 0, start, length, room.partial, room.tile, room.own, room.taken)
    return flat


@compiled(*SUMS, inlined=True)
def _block(row, received, start, length, carry, plan, room):
    """A block of a part: what its tokens keep and give each other, in place, and what arrives from after it.

    That is γ^(last − k)·carry. What the sink takes.
    """
    powers, made, tile, own, taken = plan.powers[0], room.made, room.tile, room.own, room.taken
    flat, last, lost = start >= plan.saturated[0], length - 1, 0.0
    for k in range(length):
        lost += row[start + k] * taken[0 if flat else k]
    for k in range(0, length, 4):
        # what is beyond the block is not used
        q = last - k
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for h in range(carry.shape[1]):
            s = carry[0, h]
            a0 += powers[q, h] * s
            a1 += powers[q - 1, h] * s
            a2 += powers[q - 2, h] * s
            a3 += powers[q - 3, h] * s
        made[k], made[k + 1], made[k + 2], made[k + 3] = a0, a1, a2, a3
    for k in range(length):
        received[start + k] += made[k]
    room.local[:] = 0.0
    lam, keep, gamma = plan.mixing[0], plan.keep[0], plan.gamma[0]
    _sweep_block(row, start, 0, length, lam, keep, gamma, room.local, tile, own, flat)
    return lost


@compiled(inlined=True)
def _reach_back(row, received, begin, steady, plan, steps, room):
    """Give the keys of a part what the queries of the next one, from token `begin` on, that see them give.

    Whether the weights in `room` are `steady`.
    """
    total, local, before = room.total, room.local, steps.before
    total[:] = 0.0
    for place in range(len(before)):
        start = begin + place * BLOCK
        length = min(BLOCK, begin + plan.behind - start)
        steady = _weigh(start, length, steady, plan, room)
        _fall(row, received, start, length, place, plan, steps, room)
        for h in range(len(local)):
            _add(total, h, total[0, h], before[place, h] * local[h])
    return steady


@compiled(*SUMS, inlined=True)
def _fall(row, received, start, length, place, plan, steps, room):
    """A block of them: keys before it get γ^(last − k)·(ahead + far·Σ_{i≤k} γ^i·tile_i·row_i)."""
    powers, made, local, ahead, far = plan.powers[0], room.made, room.local, room.ahead, steps.both[place]
    tile, total, after = room.tile, room.total[0], steps.after[place]
    step, last = 0 if start >= plan.saturated[0] else 1, length - 1
    for h in range(len(local)):
        s = after[h] * total[h]
        ahead[h], local[h] = s if s > FLOOR else 0.0, 0.0
    made[:] = 0.0
    for k in range(length):
        made[k] = row[start + k]
    for k in range(0, length, 4):
        p0, p1, p2, p3 = made[k], made[k + 1], made[k + 2], made[k + 3]
        q, c0, c1, c2, c3 = last - k, step * k, step * (k + 1), step * (k + 2), step * (k + 3)
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for h in range(len(local)):
            s = local[h] + powers[k, h] * tile[c0, h] * p0
            a0 += powers[q, h] * (ahead[h] + far[h] * s)
            s += powers[k + 1, h] * tile[c1, h] * p1
            a1 += powers[q - 1, h] * (ahead[h] + far[h] * s)
            s += powers[k + 2, h] * tile[c2, h] * p2
            a2 += powers[q - 2, h] * (ahead[h] + far[h] * s)
            s += powers[k + 3, h] * tile[c3, h] * p3
            a3 += powers[q - 3, h] * (ahead[h] + far[h] * s)
            local[h] = s if s > FLOOR else 0.0
        made[k], made[k + 1], made[k + 2], made[k + 3] = a0, a1, a2, a3
    for k in range(length):
        received[start - plan.behind + k] += made[k]


@compiled()
def _ascend(row, received, plan, steps, room):
    """Give every token of a prefix what the earlier ones give: the mirror image, at logit 0 if `level`."""
    gamma, powers, block, slack = plan.gamma[0], plan.powers[0], steps.block, steps.slack
    lift = np.ones_like(gamma)
    if plan.level:
        lift = 1.0 / gamma
        gamma, powers = np.ones_like(gamma), np.ones_like(powers)
        block, slack = np.ones_like(block), np.zeros_like(slack)
    room.total[:] = 0.0
    for a in range(0, plan.prefix, BLOCK):
        length = min(BLOCK, plan.prefix - a)
        _fill(plan, 0, a, length, room.partial, room.tile, room.own, room.taken)
        _rise(row, received, a, length, room.tile, gamma, powers, lift, room.total[0], room.local)
        _carry_on(room.total, length, powers, block, slack, room.local)


@compiled(*SUMS, inlined=True)
def _rise(row, received, start, length, tile, gamma, powers, lift, carry, local):
    """Give tokens from `start` on γ^k·carry + Σ_{i<k} γ^(k−i−1)·tile_i·row_i; the sum over all in `local`."""
    local[:] = 0.0
    for k in range(length):
        given, c, g, total = row[start + k], tile[k], powers[k], 0.0
        for h in range(len(local)):
            s = local[h]
            total += s + g[h] * carry[h]
            s = gamma[h] * s + lift[h] * c[h] * given
            local[h] = s if s > FLOOR else 0.0
        received[start + k] += total


@compiled(inlined=True)
def _add(carry, h, kept, term):
    """carry = kept + term for one head, with its rounding error (Kahan)."""
    term -= carry[1, h]
    s = kept + term
    carry[1, h] = (s - kept) - term
    carry[0, h] = s
    if s < FLOOR:
        carry[0, h], carry[1, h] = 0.0, 0.0


@compiled(inlined=True)
def _carry_on(carry, length, powers, block, slack, local):
    """Take `carry` over a block of which `local` is the sum."""
    for h in range(len(local)):
        power, off = (block[h], slack[h]) if length == BLOCK else (powers[length, h], 0.0)
        kept = carry[0, h] * power
        carry[1, h] *= power
        _add(carry, h, kept, local[h] + kept * off)
