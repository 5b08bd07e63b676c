"""The compiled sweep: a row vector through all layers in O(tokens · heads · depth), additions only.

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
  tokens γ^j has vanished beside 1 and one row of weights serves all blocks.
- Sums below `FLOOR` become zero before they can turn into denormals, on which processors crawl.

The rounding of γ itself would grow with distance; each block multiplies its running sums by the correction
1 + ε·length, with ε the relative error of the rounded γ.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

import numpy as np

from posbias.core.compiling import SUMS, compiled
from posbias.theory.rollout.kernel import Row
from posbias.theory.rollout.plan import BLOCK, FLOOR, Plan

TINY = 1e-300
"""Keeps the first token's 0/0 away when its own weight underflows; its true row is set right after."""
CHUNK = 32
"""Blocks that one thread hands to the next at a time."""


def sweep(plan: Plan, row: Row, threads: int = 1) -> tuple[Row, float]:
    """row · R_T ⋯ R_1 over positions, and the mass lost to learned sinks; the same bits for any threads."""
    row = np.array(row, dtype=np.float64)
    tokens, depth = len(row), len(plan.mixing)
    state, lost = np.zeros_like(plan.gamma), np.zeros(depth)
    spans = _spans(tokens)
    stages = [(int(top), int(bottom)) for bottom, top in _parts(depth, min(threads, depth, len(spans)))]
    arrays = tuple(getattr(plan, name) for name in Plan.__dataclass_fields__)
    if len(stages) == 1:
        _sweep_span(row, 0, tokens, depth, 0, state, lost, *arrays)
        return row, float(lost.sum())
    ready = [Semaphore(0) for _ in stages]
    ready[0].release(len(spans))

    def pass_through(stage: int) -> None:
        try:
            for low, high in spans:
                ready[stage].acquire()
                _sweep_span(row, low, high, *stages[stage], state, lost, *arrays)
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
def _sweep_span(row, low, high, top, bottom, state, lost, mixing, keep, gamma, slack, here, there, first, sinks,
                weights, same, sums, saturated, column, alone, gone, limit, start, whole, inside,
                powers):  # fmt: skip
    """Take tokens low … high − 1 of `row`, in place, through layers top − 1 down to bottom."""
    heads = gamma.shape[1]
    tile = np.empty((BLOCK, heads))
    own, taken = np.empty(BLOCK), np.empty(BLOCK)
    partial = np.empty(heads)
    for block in range((high - 1) // BLOCK, low // BLOCK - 1, -1):
        origin = block * BLOCK
        length = min(high, origin + BLOCK) - origin
        filled = -1
        for layer in range(top - 1, bottom - 1, -1):
            flat = origin >= saturated[layer]
            if same[layer] != filled:
                filled = same[layer]
                table = sums[layer]
                for k in range(1 if flat else length):
                    if flat:
                        for h in range(heads):
                            partial[h] = limit[table, h]
                    elif column[layer] and origin + k > 0:
                        # all keys but the first, then the first with its own logit
                        q, r = (origin + k - 1) // BLOCK, (origin + k - 1) % BLOCK
                        for h in range(heads):
                            most = inside[table, r, h] + powers[table, r, h] * start[table, q, h]
                            partial[h] = most + first[layer, h] * powers[table, r, h] * whole[table, q, h]
                    else:
                        for h in range(heads):
                            partial[h] = inside[table, k, h] + powers[table, k, h] * start[table, block, h]
                    own[k], taken[k] = _weigh(
                        tile[k], partial, here[layer], there[layer], sinks[layer], weights[layer]
                    )
                if origin == 0:
                    tile[0, :] = 0.0
                    own[0], taken[0] = alone[layer], gone[layer]
            drawn = 0.0
            for k in range(length):
                drawn += row[origin + k] * taken[0 if flat else k]
            lost[layer] += mixing[layer] * drawn
            lam, rest, factor, held = mixing[layer], keep[layer], gamma[layer], state[layer]
            stop = 1 if origin == 0 else 0
            _sweep_block(row, origin, stop, length, lam, rest, factor, held, tile, own, flat)
            if origin == 0:
                for h in range(heads):
                    state[layer, h] *= first[layer, h]
                _sweep_block(row, 0, 0, 1, lam, rest, factor, held, tile, own, False)
            for h in range(heads):
                s = state[layer, h] * (1.0 + slack[layer, h] * length)
                state[layer, h] = s if s > FLOOR else 0.0


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


@compiled(*SUMS, inlined=True, error_model="numpy")
def _weigh(there_row, partial, here, there, sinks, weights):
    """Fill `there_row` with each head's share g/Z for later tokens; return Σ e/Z kept and Σ sink/Z lost."""
    kept, lost = 0.0, 0.0
    for h in range(partial.shape[0]):
        weight = weights[h] / (here[h] + there[h] * partial[h] + sinks[h] + TINY)
        there_row[h] = weight * there[h]
        kept += weight * here[h]
        lost += weight * sinks[h]
    return kept, lost


@compiled(*SUMS, inlined=True)
def _mixed(p, received, own, lam, keep):
    """(1 − λ)·p + λ·(what later tokens pass on + what the token keeps of itself).

    1 − λ comes as a number of its own: a compiler that may reassociate would take the difference apart.
    """
    out = keep * p + lam * (received + own * p)
    return out if out > FLOOR else 0.0
