"""Wu et al. 2025, what a mask does: collapse on the first token or on a prefix, windows, center nodes, ReLU.

A query after position j sends at least jε before it in every layer (after every h layers, under a window). The
theorems claim that constants exist, which for a fixed text says little, so each takes those its proof gives: ε
the smallest admitted weight, C = 1 − ε, and limits in t are made concrete by the bound at every t. Positions and
layers count from 0, `depth` is the paper's t + 1.
"""

import math
from functools import partial, reduce
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy.random import Generator

from posbias.theory.masks import Causal, Prefix, SlidingWindow
from posbias.theory.normalisers import ReLU
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.closed_forms import bounds
from posbias_papers.statements import draws
from posbias_papers.statements.margins import (
    Stack,
    below,
    distances,
    largest_product,
    least,
    log_below,
    log_softmax,
    operator_norm,
    rollouts,
    room,
    suffixes,
)
from posbias_papers.statements.record import OURS, STEP, Instance, statement

CAUSAL, WINDOW, PREFIX = (partial(draws.masked, kind=kind) for kind in ("causal", "window", "prefix"))


# --- Theorems 4.1 to 4.3 and their proofs --------------------------------------------------------------------


def _deep(kernels: Stack, depth: int) -> Stack:
    """P⁽ᵗ⁾ for every t, the kernels used in turn."""
    return rollouts(kernels[np.arange(depth) % len(kernels)])


def floor_of(kernels: Stack) -> float:
    """ε: the least weight; what a mask leaves out is 0."""
    return float(kernels[kernels > 0].min())


def slack_after(P: Stack, floor: float, first: int) -> float:
    """C(1 − (j − K)ε)^t with C = 1 − ε for the positions j > K = `first`, and what those before have not drawn."""
    tokens = P.shape[-1]
    t, j = np.arange(len(P))[:, None], np.arange(first, tokens)
    printed = math.log1p(-floor) + t * np.log1p(-(j + 1 - first) * floor)
    missing = bounds.log_collapse_bound(np.full(len(P), floor), first) if first < tokens else 0.0
    largest, others = P[:, :, first:].max(axis=1), P[:, :, first:].sum(axis=2).max(axis=1)
    return min(below(largest, printed), below(others, missing), 1 - tokens * floor)


@statement("wu-4.1", "Theorem 4.1", CAUSAL)
def theorem_4_1(kernels: Stack, size: int, depth: int) -> float:
    """causal: P_ij ≤ (1 − ε)(1 − (j − 1)ε)^t and 1 − P_i1 ≤ (1 − ε)^(t+1), ε the smallest admitted weight

    Holds with the proof's constants; the sharper (1 − (j − 1)ε)^(t+1) holds for all positions ≥ j together. Nε < 1
    wants an ε below the smallest weight where attention is uniform (there Nε = 1).
    """
    return slack_after(_deep(kernels, depth), floor_of(kernels), 1)


@statement("wu-4.2", "Theorem 4.2", WINDOW)
def theorem_4_2(kernels: Stack, size: int, depth: int) -> float:
    """window: P_ij ≤ (1 − εʰ)(1 − (j − 1)εʰ)^(t/2h), h = ⌈(N − 1)/(w − 1)⌉, ε the smallest admitted weight

    Holds, but not by its proof (see Appendix B.2). (1 − (j − 1)εʰ)^⌊(t+1)/h⌋ holds for all positions ≥ j
    together, without the ½ and without N − 1 divisible by w − 1. The rate is far from sharp: every layer sends at
    least ε of a token's mass back, so 1 − P_i1 is at most (1 − ε)^t times a polynomial of degree below N: N/w
    sets when that begins, not its rate.
    """
    P, floor, tokens = _deep(kernels, depth), floor_of(kernels), kernels.shape[-1]
    h = bounds.hops(tokens, size)
    t, j = np.arange(len(P))[:, None], np.arange(1, tokens)
    printed = math.log1p(-(floor**h)) + t / (2 * h) * np.log1p(-j * floor**h)
    missing = bounds.log_window_bound(floor, 1, tokens, size, len(P))
    largest, others = P[:, :, 1:].max(axis=1), P[:, :, 1:].sum(axis=2).max(axis=1)
    return min(below(largest, printed), below(others, missing), 1 - tokens * floor**h)


@statement("wu-4.3", "Theorem 4.3", PREFIX)
def theorem_4_3(kernels: Stack, size: int, depth: int) -> float:
    """prefix: P_ij ≤ (1 − ε)(1 − (j − K)ε)^t for j > K, P_ik ≥ κ = ε for k ≤ K; ε the smallest weight

    Holds, κ at every depth and not only in the limit: P_ik is an average of column k of the bottom kernel, which
    is at least ε. (1 − (j − 1)ε)^(t+1) is sharper. The proof's ratio fails (see Appendix C).
    """
    P, floor = _deep(kernels, depth), floor_of(kernels)
    share = bounds.prefix_share(kernels[0], size)
    kept = float((1 - share / P[:, :, :size]).min())
    return min(slack_after(P, floor, size), kept, float(1 - floor / share.min()))


@statement("wu-B.1", "Lemma B.1", WINDOW)
def lemma_b_1(kernels: Stack, size: int, depth: int) -> float:
    """window: εʰ ≤ (A⁽ᵗ⁺ʰ⁻¹⁾⋯A⁽ᵗ⁾)_ij ≤ 1 for j ≤ i, h = ⌈(N − 1)/(w − 1)⌉

    Holds with c = εʰ. The proof's upper index N/w − 1 is (N − 1)/(w − 1) − 1.
    """
    floor, tokens = floor_of(kernels), kernels.shape[-1]
    h, causal = bounds.hops(tokens, size), np.tri(tokens, dtype=bool)
    products = [_deep(np.roll(kernels, -first, axis=0), h)[-1] if h else causal * 1.0 for first in range(3)]
    weights = np.stack(products)[:, causal]
    return min(room(floor**h, weights, lower=True), room(weights, 1.0))


@statement(
    "wu-B.2",
    "Theorem 4.2, proof (Appendix B.2)",
    WINDOW,
    erratum="appendix-b.2",
    witness={"kernels": [[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]], "size": 2, "depth": 2},
    **STEP,
)
def b_2(kernels: Stack, size: int, depth: int, corrected: bool) -> float:
    """P_ij ≤ (1 − ε)^((t+1)/(w−1)) for t < h and j > 1

    Corrected: P_ij ≤ 1 − ε at every t (so ≤ (1 − ε)^((t+1)/h) for t < h), and all positions ≥ j hold at most (1 −
    (j − 1)εʰ)^⌊(t+1)/h⌋ together

    Shows: P_32 of three tokens, w = 2, two layers
    """
    P, floor, tokens = _deep(kernels, depth), floor_of(kernels), kernels.shape[-1]
    largest = P[:, :, 1:].max(axis=1)
    if not corrected:
        few = largest[: bounds.hops(tokens, size)]
        return below(few, np.arange(1, len(few) + 1)[:, None] / (size - 1) * math.log1p(-floor), P)
    blocks = [bounds.log_window_bound(floor, j, tokens, size, len(P)) for j in range(1, tokens)]
    return min(below(largest, math.log1p(-floor)), below(suffixes(P)[:, 1:], np.stack(blocks, axis=1)))


@statement(
    "wu-C",
    "Theorem 4.3, proof (Appendix C)",
    PREFIX,
    erratum="appendix-c",
    witness={
        "kernels": [
            [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.01, 0.49, 0.5]],
            [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.01, 0.01, 0.98]],
        ],
        "size": 2,
        "depth": 2,
    },
    **STEP,
)
def c(kernels: Stack, size: int, depth: int, corrected: bool) -> float:
    """P_ik₁/P_ik₂ ≥ min A_lk₁⁽⁰⁾/A_lk₂⁽⁰⁾ over l ≤ min(i, K), for t > 0

    Corrected: the same over l ≤ max(i, K)

    Shows: P_31/P_32 of three tokens, K = 2, two layers
    """
    P, slack, rows = _deep(kernels, depth), 1.0, max if corrected else min
    bottom = kernels[0][:, :size, None] / kernels[0][:, None, :size]
    for i in range(P.shape[-1]):
        ratio = P[1:, i, :size, None] / P[1:, i, None, :size]
        bound = bottom[: rows(i + 1, size)].min(axis=0)
        slack = min(slack, least(1 - bound / ratio, ratio, bound, P[1:]))
    return slack


# --- networks: Lemma A.1 and Equation (4) --------------------------------------------------------------------


@statement("wu-A.1", "Lemma A.1", draws.masked_network)
def lemma_a_1(hidden: Any, queries: Any, keys: Any, values: Any, kind: str, size: int) -> float:
    """A_ij ≥ 1/(1 + (k − 1)e^(2M)) with M = (max‖X_i⁽⁰⁾‖·C_V·C)² and k the most keys a query sees; ‖X_i⁽ᵗ⁾‖ ≤
    max‖X_i⁽⁰⁾‖·C_V

    Holds, and the floor is attained. The C of Eq. (6) is not that of A1: it is max‖X_i‖·C_V·C. Eq. (3)'s second
    line prints R_i for R_(i−j).
    """
    X, allowed = hidden, draws.mask_of(kind, size).allowed(len(hidden))
    C = max(operator_norm(weights).max() for weights in (queries, keys))
    C_V, start = max(1.0, largest_product(values)), float(np.linalg.norm(X, axis=1).max())
    bound = (start * C_V * C) ** 2
    log_floor, slack = bounds.log_attention_floor(int(allowed.sum(axis=1).max()), bound), 1.0
    for query, key, value in zip(queries, keys, values, strict=True):
        log_kernel = log_softmax((X @ query) @ (X @ key).T, allowed)
        X = np.exp(log_kernel) @ X @ value
        slack = min(
            slack, log_below(log_floor, log_kernel[allowed]), room(np.linalg.norm(X, axis=1), start * C_V)
        )
    return slack


@statement("wu-4-selection", "Equation 4", draws.masked_network, **STEP)
def equation_4(hidden: Any, queries: Any, keys: Any, values: Any, kind: str, size: int) -> float:
    """X⁽ᵗ⁺¹⁾ = A⁽ᵗ⁾⋯A⁽⁰⁾·X⁽⁰⁾·W_V⁽⁰⁾⋯W_V⁽ᵗ⁾, the rows of A⁽ᵗ⁾⋯A⁽⁰⁾ distributions

    Holds for Eq. (1), which has neither residual connections nor normalisation.
    """
    X = carried = hidden
    allowed, kernels, off = draws.mask_of(kind, size).allowed(len(hidden)), [], 0.0
    scale = float(operator_norm(hidden)) * max(1.0, largest_product(values))
    for query, key, value in zip(queries, keys, values, strict=True):
        kernels.append(masked_softmax((X @ query) @ (X @ key).T, allowed))
        X, carried = kernels[-1] @ X @ value, carried @ value
        product = rollouts(np.stack(kernels))[-1]
        off = max(off, np.abs(X - product @ carried).max() / scale, np.abs(product.sum(axis=1) - 1).max())
    return -off


# --- center nodes: any mask in which every token attends to itself -------------------------------------------


def _graph(rng: Generator, tokens: int) -> Bool[np.ndarray, "query key"]:
    """Who attends to whom: a mask of ours, with sinks or without, or a random graph with a centre."""
    width = int(rng.integers(2, tokens + 1))
    masks = (Causal(), SlidingWindow(width, sinks=int(rng.integers(3))), Prefix(width))
    choice = int(rng.integers(len(masks) + 2))
    if choice < len(masks):
        return masks[choice].allowed(tokens)
    allowed = np.eye(tokens, dtype=bool) | (rng.random((tokens, tokens)) < rng.choice([0.0, 0.2]))
    order = rng.permutation(tokens)  # a tree from the root order[0]: each attends to one before it
    allowed[order[1:], order[rng.integers(np.arange(1, tokens))]] = True
    return allowed


def _draw_masks(rng: Generator, edge: bool, by_layer: bool) -> Instance:
    """Kernels with weight on what a mask admits, used in turn; `by_layer` each kernel with a mask of its own."""
    tokens, period = draws.length(rng, edge), int(rng.integers(1, 4))
    allowed = np.stack([_graph(rng, tokens) for _ in range(period)])
    if by_layer and rng.random() < 0.5:  # edges of one graph with a centre, dealt out to the layers
        dealt = rng.integers(period, size=(tokens, tokens)) == np.arange(period)[:, None, None]
        allowed = allowed[:1] & dealt | np.eye(tokens, dtype=bool)
    elif not by_layer:
        allowed = np.broadcast_to(allowed[0], allowed.shape)
    logits = rng.choice([0.0, 0.5, 3.0]) * rng.normal(size=allowed.shape)
    kernels = np.stack([masked_softmax(*layer) for layer in zip(logits, allowed, strict=True)])
    return {"kernels": kernels, "depth": draws.layers(rng, edge)}


def _log_escaped(log_least: float, block: int, layers: int) -> Any:
    """ln (1 − εʰ)^⌊(t+1)/h⌋ at every t, h layers to a block: what has not been sent to the centre."""
    escaped = math.log1p(-math.exp(log_least)) if log_least < 0 else -math.inf
    return np.array([count * escaped if count else 0.0 for count in np.arange(1, layers + 1) // block])


def _slack_centre(kernels: Stack, depth: int) -> float:
    """(1 − εʰ)^⌊(t+1)/h⌋ on all but the centre, and εʰ on each of its nodes from h layers on.

    h is the least multiple of the period after which every centre node has reached every query. Without a centre
    node nothing is claimed: slack 1.
    """
    period = reduce(lambda reach, layer: layer @ reach, kernels > 0)
    centre = (np.linalg.matrix_power(period.astype(int), len(period)) > 0).all(axis=0)
    if not centre.any():
        return 1.0
    reach, block = period, len(kernels)
    while not reach[:, centre].all():
        reach, block = period @ reach, block + len(kernels)
    log_least, P = block * math.log(floor_of(kernels)), _deep(kernels, max(depth, block))
    kept = log_below(log_least, np.log(P[block - 1 :, :, centre]))
    left = _log_escaped(log_least, block, len(P)) if log_least < 0 else np.zeros(len(P))
    return min(below(P[:, :, ~centre].sum(axis=2).max(axis=1), left), kept)


@statement("wu-4.1-masks", "Section 4.1, center nodes", partial(_draw_masks, by_layer=False), **OURS)
def center_nodes(kernels: Stack, depth: int) -> float:
    """any mask with center nodes: all other tokens hold at most (1 − εʰ)^⌊(t+1)/h⌋ together, each center node at
    least εʰ from h layers on, ε the smallest admitted weight, h the layers in which every center node reaches
    every token

    Holds; the text says that center nodes come to dominate, the bound is ours. Tried on causal, prefix and window
    masks, with sinks and without, and on random graphs with a center, self-loops in all. Center nodes attend to
    center nodes alone, so what has reached them stays.
    """
    return _slack_centre(kernels, depth)


@statement("wu-3.2-masks", "Section 3.2, time-varying masks", partial(_draw_masks, by_layer=True), **OURS)
def masks_by_layer(kernels: Stack, depth: int) -> float:
    """masks that repeat with a period, all with self-loops, whose edges together have center nodes: the same
    bounds, h a multiple of the period

    Holds; the text names no regularity conditions, these are ours. Where the edges together have no center node
    nothing is claimed. A single layer's graph need not have one.
    """
    return _slack_centre(kernels, depth)


# --- the role of softmax: logits are drawn, with ReLU an edge is kept where its logit is positive ----------------


def _draw_logits(rng: Generator, edge: bool) -> Instance:
    """Logits of any layers under one of the masks of §4.1, so far apart at the edge that weights underflow."""
    tokens, depth = draws.length(rng, edge), draws.layers(rng, edge, 6)
    logits = rng.choice([0.0, 1.0, 2000.0] if edge else [0.3, 3.0]) * rng.normal(size=(depth, tokens, tokens))
    return {"logits": logits, "kind": str(rng.choice(draws.MASKS)), "size": int(rng.integers(1, tokens + 1))}


@statement("wu-4.1-softmax", "Section 4.1, the role of softmax", _draw_logits)
def softmax_keeps_edges(logits: Stack, kind: str, size: int) -> float:
    """softmax disconnects no edge: every weight that the mask admits is at least e^(min − max)/N of its row's
    logits

    Holds, for finite logits; in float64 a weight may underflow to zero, so logarithms are compared.
    """
    allowed = draws.mask_of(kind, size).allowed(logits.shape[-1])
    rows = np.where(allowed, logits, np.nan)
    span = np.nanmax(rows, axis=-1, keepdims=True) - np.nanmin(rows, axis=-1, keepdims=True)
    floor = np.broadcast_to(-span - math.log(logits.shape[-1]), logits.shape)
    return log_below(floor[:, allowed], log_softmax(logits, allowed)[:, allowed])


def _draw_signs(rng: Generator, edge: bool, apart: bool) -> Instance:
    """Logits of either sign under the causal mask, by layer; the first token's own is positive.

    `apart`: a set of other tokens has positive logits within and none outside; else every token has a positive one
    on an earlier token, some edges being lost.
    """
    tokens, depth = max(3, draws.length(rng, edge)), draws.layers(rng, edge)
    signs = np.where(rng.random((depth, tokens, tokens)) < rng.choice([0.2, 0.5, 0.8]), 1.0, -1.0)
    signs[:, 0, 0], signs[:, -1, -2] = 1.0, -1.0
    if apart:
        group = (np.arange(tokens) > 0) & (rng.random(tokens) < 0.5)
        group[-1] = True
        signs[:, group] = np.where(group, signs[:, group], -1.0)
        signs[:, group, group] = 1.0
    else:
        earlier = rng.integers(0, np.arange(1, tokens), (depth, tokens - 1))
        np.put_along_axis(signs[:, 1:], earlier[..., None], 1.0, axis=2)
    return {"logits": signs * rng.uniform(0.1, 3, signs.shape)}


def _relu_kernels(logits: Stack) -> Stack:
    """The kernels of causal layers whose rows ReLU makes of these logits."""
    return ReLU().weights_of(np.where(Causal().allowed(logits.shape[-1]), logits, -np.inf))


@statement("wu-4.1-relu-apart", "Section 4.1, ReLU, edges lost", partial(_draw_signs, apart=True), **OURS)
def relu_loses_edges(logits: Stack) -> float:
    """ReLU in place of softmax, logits of either sign: an edge is kept where its logit is positive; tokens from
    which no kept edges lead to the first draw nothing on it at any depth, while under the softmax of the same
    logits all but the first hold at most Π(1 − ε)

    Holds: the collapse onto the first token need not happen; these instances show that it can fail to, not that
    trained networks do so. The text says that others found ReLU to mitigate sinks, and why it can. Rows are
    divided by their sums; one without a positive logit is empty.
    """
    causal = Causal().allowed(logits.shape[-1])
    reach, cut = np.eye(logits.shape[-1], dtype=bool), np.ones(logits.shape[-1], dtype=bool)
    for kept in causal & (logits > 0):
        reach = kept @ reach
        cut &= ~reach[:, 0]
    if not cut.any():  # every token is led to the first one: nothing to show
        return -1.0
    drawn = float(rollouts(_relu_kernels(logits))[:, cut, 0].max())
    log_kernels = log_softmax(logits, causal)
    floors = np.exp(log_kernels[:, causal].min(axis=1))
    left = rollouts(np.exp(log_kernels))[:, :, 1:].sum(axis=2).max(axis=1)
    return below(left, bounds.log_collapse_bound(floors, 1)) if drawn == 0 else -drawn


@statement("wu-4.1-relu-reach", "Section 4.1, ReLU, edges kept", partial(_draw_signs, apart=False), **OURS)
def relu_keeps_reach(logits: Stack) -> float:
    """ReLU in place of softmax, every token with a positive logit on an earlier one: all but the first hold at
    most (1 − εʰ)^⌊(t+1)/h⌋ together, h = N − 1, ε the least weight that is kept

    Holds: where the edges that are kept lead everywhere back to the first token the collapse stays, however many
    others are lost.
    """
    weights, block = _relu_kernels(logits), logits.shape[-1] - 1
    bound = _log_escaped(block * math.log(floor_of(weights)), block, len(logits))
    left = rollouts(weights)[:, :, 1:].sum(axis=2).max(axis=1)
    return below(left[left > 0], bound[left > 0])


# --- windows without content -----------------------------------------------------------------------------------

# Where logits depend on the key alone, with a decay or without, a row of attention is one set of weights, cut off
# by the window. Cut off later it lies on earlier keys, and that of an earlier query lies on earlier keys too; so
# every layer more, and every wider window, moves the context to the front.


def _draw_widths(rng: Generator, edge: bool) -> Instance:
    """Logits of keys by layer, a decay m or none, and two windows."""
    tokens = draws.length(rng, edge)
    narrow, wide = np.sort(rng.integers(1, tokens + 1, 2)).tolist()
    logits = rng.choice([0.0, 50.0] if edge else [0.5, 3.0]) * rng.normal(
        size=(draws.layers(rng, edge), tokens)
    )
    rate = float(rng.choice([0.0, 1e-9, 20.0]) if edge else rng.choice([0.0, 1.0]) * rng.exponential())
    return {"logits": logits, "rate": rate, "narrow": narrow, "wide": wide}


@statement(
    "wu-4.2-narrower", "Section 4.1, narrower windows", _draw_widths, provenance="ours", strength="hedged"
)
def narrower_windows(logits: Any, rate: float, narrow: int, wide: int) -> float:
    """where logits depend on the key alone, with or without the decay mask, a narrower window leaves no more of
    any token's context on the first j tokens, for every j and depth

    Holds; the text says that a smaller window helps, and gives no condition: content for which queries differ can
    make a narrow window prefer the front. Rows are one set of weights cut off by the window, so that they order as
    the windows do, and products keep the order.
    """
    tokens = logits.shape[-1]
    biased = logits[:, None, :] - rate * distances(tokens)
    masks = (SlidingWindow(int(width)).allowed(tokens) for width in (narrow, wide))
    less, more = (rollouts(masked_softmax(biased, allowed)).cumsum(axis=-1) for allowed in masks)
    return room(less, more)


def _draw_layers(rng: Generator, edge: bool) -> Instance:
    tokens = draws.whole(2, 256, (2, 3, 256))(rng, edge)
    return {"tokens": tokens, "width": draws.whole(2, tokens, (2, tokens))(rng, edge)}


def layers_to_half(tokens: int, width: int) -> int:
    """Layers of even attention in a window after which the first token holds half of the last one's context.

    A half is one up to 1e-9, since sums round.
    """
    first = np.maximum(np.arange(tokens) - width + 1, 0)
    keys = np.arange(tokens) - first + 1
    mass, layers = np.zeros(tokens), 0
    mass[-1] = 1.0
    while mass[0] < 0.5 - 1e-9:
        # what every key gets: from all queries at or after it whose window begins at or before it
        each = mass / keys
        begun = np.cumsum(np.bincount(first, each, tokens))
        mass, layers = begun - np.concatenate([[0.0], np.cumsum(each)[:-1]]), layers + 1
    return layers


@statement("wu-4.2-rate", "Section 4.1, rate by window", _draw_layers, **OURS)
def rate_by_window(tokens: int, width: int) -> float:
    """even attention: the first token holds half of the last one's context after 2(N − w)/(w − 1) + c·ln w
    layers, 1 ≤ c ≤ 2.5, for 2 ≤ w ≤ N ≤ 256

    Holds; the text says that N/w determines the rate, the constants are ours. A layer goes back (w − 1)/2 tokens
    on average, until the window reaches the front; from there on ln w counts, so that for windows near N the rate
    is not one of N/w.
    """
    tokens, width = int(tokens), int(width)
    layers, walked = layers_to_half(tokens, width), 2 * (tokens - width) / (width - 1)
    low, high = walked + math.log(width), walked + 2.5 * math.log(width)
    return min(layers - low, high - layers) / layers
