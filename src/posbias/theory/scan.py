"""The compiled sweep: a row vector through all layers in O(tokens · heads · depth), additions only.

With logits δ·1[i = j] − m·(i − j), the product (p·A)_j needs, per head, one running sum taken from the last
token to the first:

    (p·A)_j = s_j + p_j·e/Z_j,     s_{j−1} = γ·s_j + p_j·g/Z_j,     γ = exp(−m)

where e and g are exp(δ) and exp(−m), both divided by the larger, and Z_j = e + g·(1 − γ^j)/(1 − γ). Every term
is positive, so every entry keeps its relative accuracy down to the smallest. Three things make it fast:

- The layers are swept together, a block of tokens at a time: layer t needs from layer t + 1 only the tokens
  at and after its own. One block stays in the cache while it passes through all layers, and several threads
  form a pipeline over layers that gives the same bits as one thread.
- The weights g/Z of a block are computed once and shared by all layers with equal logits; beyond 41.5/m
  tokens γ^j has vanished beside 1 and one row of weights serves all blocks.
- Sums below `FLOOR` become zero before they can turn into denormals, on which processors crawl.

The rounding of γ itself would grow with distance; each block multiplies its running sums by the correction
1 + ε·length, with ε the relative error of the rounded γ.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Semaphore

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from posbias.theory.architecture import Architecture, HeadLogits

BLOCK = 128
"""Tokens that pass through all layers together."""
FLOOR = 1e-290
"""Sums below this are taken as zero; entries above 1e-250 are not affected at 1e-12 relative."""
TINY = 1e-300
"""Keeps the first token's 0/0 away when its own weight underflows; its true row is set right after."""
CHUNK = 32
"""Blocks that one thread hands to the next at a time."""


@dataclass(frozen=True)
class Plan:
    """What the sweep needs of an architecture for a number of tokens, layer 0 at the bottom.

    Rows of `gamma`, `slack` (relative error of gamma), `here` (e), `there` (g) and `weights` are layers,
    columns heads (padded with weight zero). `same` numbers layers with equal logits alike; `sums` says which
    table of partial sums a layer uses; from token `saturated` on, (1 − γ^j)/(1 − γ) is its limit.
    """

    mixing: Float[np.ndarray, "layer"]
    gamma: Float[np.ndarray, "layer head"]
    slack: Float[np.ndarray, "layer head"]
    here: Float[np.ndarray, "layer head"]
    there: Float[np.ndarray, "layer head"]
    weights: Float[np.ndarray, "layer head"]
    same: Int[np.ndarray, "layer"]
    sums: Int[np.ndarray, "layer"]
    saturated: Int[np.ndarray, "layer"]
    limit: Float[np.ndarray, "table head"]
    start: Float[np.ndarray, "table block head"]
    inside: Float[np.ndarray, "table offset head"]
    powers: Float[np.ndarray, "table offset head"]


def plan(architecture: Architecture, tokens: int) -> Plan:
    """Prepare the sweep of `architecture` over `tokens` tokens."""
    distinct: dict = {}
    pattern = [distinct.setdefault(layer, len(distinct)) for layer in architecture.layers]
    logits = [layer.head_logits() for layer in distinct]
    heads = max(layer.heads for layer in distinct)
    slopes = np.stack([_padded(one.slopes, heads, 1.0) for one in logits])
    # a slope that cannot move 1 by half a rounding over the whole text is no slope
    slopes[slopes * tokens < 1e-18] = 0.0
    here, there, weights = (
        np.stack(parts) for parts in zip(*(_weights(o, heads) for o in logits), strict=True)
    )
    tables, table_of = np.unique(slopes, axis=0, return_inverse=True)
    same = np.array(pattern * (architecture.depth // len(pattern)), dtype=np.int64)
    sums = table_of.reshape(-1)[same].astype(np.int64)
    with np.errstate(divide="ignore"):
        reach = np.ceil(41.5 / tables.min(axis=1))
        limit = -1.0 / np.expm1(-tables)
    saturated = np.minimum(reach, tokens).astype(np.int64)
    exact = np.exp(-slopes.astype(np.longdouble))
    gamma = exact.astype(np.float64)
    gamma[gamma < FLOOR] = 0.0
    slack = np.zeros_like(gamma)
    np.divide(exact - gamma, gamma, out=slack, where=gamma > 0, casting="same_kind")
    blocks = -(-int(saturated.max()) // BLOCK)
    offsets = np.arange(BLOCK, dtype=np.float64)
    return Plan(
        mixing=architecture.coefficients,
        gamma=gamma[same],
        slack=slack[same],
        here=here[same],
        there=there[same],
        weights=weights[same],
        same=same,
        sums=sums,
        saturated=saturated[sums],
        limit=np.where(np.isfinite(limit), limit, 0.0),
        start=_geometric(tables, np.arange(blocks, dtype=np.float64) * BLOCK),
        inside=_geometric(tables, offsets),
        powers=np.exp(-tables[:, None, :] * offsets[None, :, None]),
    )


def _padded(values: np.ndarray, heads: int, fill: float) -> np.ndarray:
    return np.concatenate([values, np.full(heads - len(values), fill)])


def _weights(logits: HeadLogits, heads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """exp(δ) and exp(−m) divided by the larger of the two, and the weights of the heads, padded."""
    largest = np.maximum(logits.diagonal, -logits.slopes)
    return (
        _padded(np.exp(logits.diagonal - largest), heads, 1.0),
        _padded(np.exp(-logits.slopes - largest), heads, 0.0),
        _padded(logits.weights, heads, 0.0),
    )


def _geometric(
    slopes: Float[np.ndarray, "table head"], terms: Float[np.ndarray, "offset"]
) -> Float[np.ndarray, "table offset head"]:
    """(1 − γ^k)/(1 − γ) for each number of terms k, without cancellation; k itself where γ = 1."""
    m, k = slopes[:, None, :], terms[None, :, None]
    with np.errstate(invalid="ignore"):
        return np.where(m > 0, np.expm1(-m * k) / np.expm1(-m), k)


def plan_bytes(architecture: Architecture, tokens: int) -> int:
    """Bytes that a sweep over `tokens` tokens will take: the row, its copy, and the tables of sums."""
    layers = set(architecture.layers)
    heads = max(layer.heads for layer in layers)
    least = min(float(layer.head_logits().slopes.min()) for layer in layers)
    reach = tokens if least * tokens <= 41.5 else 41.5 / least
    return int(8 * (3 * tokens + len(layers) * heads * (reach / BLOCK + 3 * BLOCK)))


def sweep(plan: Plan, row: Float[np.ndarray, "key"], threads: int = 1) -> Float[np.ndarray, "key"]:
    """Return row · R_T ⋯ R_1, for a row vector over positions; the same bits for any number of threads."""
    row = np.array(row, dtype=np.float64)
    tokens, depth = len(row), len(plan.mixing)
    state = np.zeros_like(plan.gamma)
    spans = _spans(tokens)
    stages = [(int(top), int(bottom)) for bottom, top in _parts(depth, min(threads, depth, len(spans)))]
    if len(stages) == 1:
        _sweep_span(row, 0, tokens, depth, 0, state, *_arrays(plan))
        return row
    arrays = _arrays(plan)
    ready = [Semaphore(0) for _ in stages]
    ready[0].release(len(spans))

    def pass_through(stage: int) -> None:
        try:
            for low, high in spans:
                ready[stage].acquire()
                _sweep_span(row, low, high, *stages[stage], state, *arrays)
                if stage + 1 < len(stages):
                    ready[stage + 1].release()
        finally:
            # if this stage failed, those below must not wait for it for ever
            if stage + 1 < len(stages):
                ready[stage + 1].release(len(spans))

    with ThreadPoolExecutor(len(stages)) as pool:
        for stage in [pool.submit(pass_through, stage) for stage in range(len(stages))]:
            stage.result()
    return row


def _spans(tokens: int) -> list[tuple[int, int]]:
    """The tokens in spans of whole blocks, last span first; only the last may be shorter."""
    step = CHUNK * BLOCK
    return [(start, min(tokens, start + step)) for start in range((tokens - 1) // step * step, -1, -step)]


def _parts(depth: int, stages: int) -> list[tuple[int, int]]:
    """Layers in contiguous parts of nearly equal size, as (bottom, top), the top part first."""
    edges = np.linspace(0, depth, stages + 1).round().astype(int)
    return [(edges[k], edges[k + 1]) for k in range(stages)][::-1]


def _arrays(plan: Plan) -> tuple:
    return (
        plan.mixing,
        plan.gamma,
        plan.slack,
        plan.here,
        plan.there,
        plan.weights,
        plan.same,
        plan.sums,
        plan.saturated,
        plan.limit,
        plan.start,
        plan.inside,
        plan.powers,
    )


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan", "ninf"})
def _sweep_span(row, low, high, top, bottom, state, mixing, gamma, slack, here, there, weights, same, sums,
                saturated, limit, start, inside, powers):  # fmt: skip
    """Take tokens low … high − 1 of `row`, in place, through layers top − 1 down to bottom."""
    heads = gamma.shape[1]
    tile = np.empty((BLOCK, heads))
    own = np.empty(BLOCK)
    partial = np.empty(heads)
    for block in range((high - 1) // BLOCK, low // BLOCK - 1, -1):
        first = block * BLOCK
        length = min(high, first + BLOCK) - first
        filled = -1
        for layer in range(top - 1, bottom - 1, -1):
            flat = first >= saturated[layer]
            if same[layer] != filled:
                filled = same[layer]
                table = sums[layer]
                for k in range(1 if flat else length):
                    if flat:
                        partial[:] = limit[table]
                    else:
                        for h in range(heads):
                            partial[h] = inside[table, k, h] + powers[table, k, h] * start[table, block, h]
                    own[k] = _weigh(tile[k], partial, here[layer], there[layer], weights[layer])
                if first == 0:
                    # the first token sees itself alone, whatever its logit
                    tile[0, :] = 0.0
                    own[0] = weights[layer].sum()
            _sweep_block(row, first, length, mixing[layer], gamma[layer], state[layer], tile, own, flat)
            for h in range(heads):
                s = state[layer, h] * (1.0 + slack[layer, h] * length)
                state[layer, h] = s if s > FLOOR else 0.0


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan", "ninf"}, inline="never")
def _sweep_block(row, first, length, lam, gamma, state, tile, own, flat):
    """One block of tokens through one layer, four tokens at a time, from the last to the first."""
    heads = gamma.shape[0]
    step = 0 if flat else 1
    k = length - 1
    while k >= 3:
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
        row[first + k] = _mixed(p0, a0, own[step * k], lam)
        row[first + k - 1] = _mixed(p1, a1, own[step * (k - 1)], lam)
        row[first + k - 2] = _mixed(p2, a2, own[step * (k - 2)], lam)
        row[first + k - 3] = _mixed(p3, a3, own[step * (k - 3)], lam)
        k -= 4
    while k >= 0:
        p0 = row[first + k]
        c0 = tile[step * k]
        a0 = 0.0
        for h in range(heads):
            s = state[h]
            a0 += s
            s = gamma[h] * s + c0[h] * p0
            state[h] = s if s > FLOOR else 0.0
        row[first + k] = _mixed(p0, a0, own[step * k], lam)
        k -= 1


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan", "ninf"})
def _weigh(there_row, partial, here, there, weights):
    """Fill `there_row` with each head's share g/Z for later tokens; return what a token keeps, Σ e/Z."""
    kept = 0.0
    for h in range(partial.shape[0]):
        weight = weights[h] / (here[h] + there[h] * partial[h] + TINY)
        there_row[h] = weight * there[h]
        kept += weight * here[h]
    return kept


@njit(cache=True, nogil=True, inline="always")
def _mixed(p, received, own, lam):
    """(1 − λ)·p + λ·(what later tokens pass on + what the token keeps of itself)."""
    out = (1.0 - lam) * p + lam * (received + own * p)
    return out if out > FLOOR else 0.0
