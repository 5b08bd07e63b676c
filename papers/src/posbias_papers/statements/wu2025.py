"""Wu et al. 2025, what a mask does (Sections 4.1, B and C) and what an encoding does (Sections 4.2, 4.3, D to I).

A query after position j sends at least jε before it in every layer (after every h layers, under a window). The
theorems claim that constants exist, which for a fixed text says little, so each takes those its proof gives: ε the
smallest admitted weight, C = 1 − ε, and limits in t are made concrete by the bound at every t. Positions and
layers count from 0, so that as many kernels as the paper's t + 1 make P⁽ᵗ⁾.

Any two positive numbers are Θ of each other, so constants of encodings are tried too: those that the proofs print,
and those of `posbias_papers.closed_forms.bounds`. Under a bias −b(i − j) with b convex or concave and b(0) = 0,
steps over a distance d in T layers cost between b(d) and T·b(d/T). A cosine lies between 1 − x²/2 and 1 − 2x²/π²
up to half a turn, which is where queries and keys of RoPE are drawn, at the edge exactly there. Beyond a quarter
turn it is negative: that is what the printed constants miss. L(x) is the log of the count of walks times the
envelope; where it is highest is looked for over whole distances, and over real ones by the sign of its slope.
"""

import math
from functools import partial, reduce
from itertools import accumulate
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import loggamma

from posbias.theory import critical_distances
from posbias.theory.architecture import Layer
from posbias.theory.masks import Causal, Prefix, SlidingWindow
from posbias.theory.normalisers import ReLU
from posbias.theory.positional import KerpleLog, KerplePower, RoPE
from posbias.theory.rollout.kernel import layer_kernel, masked_softmax
from posbias_papers.closed_forms import bounds
from posbias_papers.statements.draws import MASKS, Instance, Sampler, admitted, in_turn, mask_of
from posbias_papers.statements.margins import (
    Stack,
    below,
    distances,
    floor_of,
    inside,
    largest_product,
    least,
    log_below,
    log_softmax,
    operator_norm,
    rollouts,
    room,
    run_network,
    suffixes,
)
from posbias_papers.statements.record import OURS, STEP, statement

Angles = Float[np.ndarray, "pair"]
FAR = 0.01
"""RoPE's decay is called far below another where its logarithm is at most this many times the other's."""


# --- Theorems 4.1 to 4.3 and their proofs --------------------------------------------------------------------


CAUSAL, WINDOW, PREFIX = (partial(Sampler.masked, kind=kind) for kind in ("causal", "window", "prefix"))


def _slack_after(P: Stack, first: int, printed: Any, missing: Any) -> float:
    """ln bounds, `printed` on each position from `first` on, and `missing` on all of them together."""
    each, together = P[:, :, first:].max(axis=1), P[:, :, first:].sum(axis=2).max(axis=1)
    return min(below(each, printed), below(together, missing))


def slack_of_collapse(P: Stack, floor: float, first: int) -> float:
    """C(1 − (j − K)ε)^t with C = 1 − ε for the positions j > K = `first`, and what those before have not drawn."""
    tokens = P.shape[-1]
    t, j = np.arange(len(P))[:, None], np.arange(first, tokens)
    printed = math.log1p(-floor) + t * np.log1p(-(j + 1 - first) * floor)
    missing = bounds.log_collapse_bound(np.full(len(P), floor), first) if first < tokens else 0.0
    return min(_slack_after(P, first, printed, missing), 1 - tokens * floor)


@statement("wu-4.1", "Theorem 4.1", CAUSAL)
def theorem_4_1(kernels: Stack, size: int) -> float:
    """causal: P_ij ≤ C(1 − (j − 1)ε)^t for j > 1, and P_i1 → 1 (tried: C = 1 − ε, ε the smallest admitted weight,
    1 − P_i1 ≤ (1 − ε)^(t+1))

    Holds with the proof's constants; the sharper (1 − (j − 1)ε)^(t+1) holds for all positions ≥ j together. Nε < 1
    wants an ε below the smallest weight where attention is uniform (there Nε = 1).
    """
    return slack_of_collapse(rollouts(kernels), floor_of(kernels), 1)


@statement("wu-4.2", "Theorem 4.2", WINDOW)
def theorem_4_2(kernels: Stack, size: int) -> float:
    """window: P_ij ≤ C(1 − (j − 1)εʰ)^(t/2h), h = ⌈(N − 1)/(w − 1)⌉ (tried: C = 1 − εʰ, ε the smallest admitted
    weight)

    Holds, but not by its proof (see Appendix B.2). (1 − (j − 1)εʰ)^⌊(t+1)/h⌋ holds for all positions ≥ j
    together, without the ½ and without N − 1 divisible by w − 1. The rate is far from sharp: every layer sends at
    least ε of a token's mass back, so 1 − P_i1 is at most (1 − ε)^t times a polynomial of degree below N: N/w
    sets when that begins, not its rate.
    """
    floor, depth, tokens = floor_of(kernels), *kernels.shape[:2]
    h = bounds.hops(tokens, size)
    t, j = np.arange(depth)[:, None], np.arange(1, tokens)
    printed = math.log1p(-(floor**h)) + t / (2 * h) * np.log1p(-j * floor**h)
    missing = bounds.log_block_bound(floor, h, depth)
    return min(_slack_after(rollouts(kernels), 1, printed, missing), 1 - tokens * floor**h)


@statement("wu-4.3", "Theorem 4.3", PREFIX)
def theorem_4_3(kernels: Stack, size: int) -> float:
    """prefix: P_ij ≤ C(1 − (j − K)ε)^t for j > K, and P_ik ≥ κ > 0 in the limit for k ≤ K (tried: C = 1 − ε, κ =
    ε, the smallest weight)

    Holds, κ at every depth and not only in the limit: P_ik is an average of column k of the bottom kernel, which
    is at least ε. (1 − (j − 1)ε)^(t+1) is sharper. The proof's ratio fails (see Appendix C).
    """
    P, floor, share = rollouts(kernels), floor_of(kernels), bounds.prefix_share(kernels[0], size)
    kept = float((1 - share / P[:, :, :size]).min())
    return min(slack_of_collapse(P, floor, size), kept, float(1 - floor / share.min()))


@statement("wu-B.1", "Lemma B.1", WINDOW)
def lemma_b_1(kernels: Stack, size: int) -> float:
    """window: εʰ ≤ (A⁽ᵗ⁺ʰ⁻¹⁾⋯A⁽ᵗ⁾)_ij ≤ 1 for j ≤ i, h = ⌈(N − 1)/(w − 1)⌉

    Holds with c = εʰ. The proof's upper index N/w − 1 is (N − 1)/(w − 1) − 1.
    """
    floor, tokens = floor_of(kernels), kernels.shape[-1]
    h = bounds.hops(tokens, size)
    products = [rollouts(in_turn(np.roll(kernels, -first, axis=0), h))[-1] for first in range(3)]
    weights = np.stack(products)[:, np.tri(tokens, dtype=bool)]
    return min(room(floor**h, weights, lower=True), room(weights, 1.0))


@statement("wu-B.2", "Theorem 4.2, proof (Appendix B.2)", WINDOW, provenance="ours", **STEP)
def b_2(kernels: Stack, size: int, corrected: bool) -> float:
    """P_ij ≤ (1 − ε)^((t+1)/(w−1)) for t < h and j > 1

    Corrected: P_ij ≤ 1 − ε at every t (so ≤ (1 − ε)^((t+1)/h) for t < h), and all positions ≥ j hold at most (1 −
    (j − 1)εʰ)^⌊(t+1)/h⌋ together

    Shows: P_32 of three tokens, w = 2, two layers

    Erratum: appendix-b.2
    """
    P, floor, tokens = rollouts(kernels), floor_of(kernels), kernels.shape[-1]
    largest, h = P[:, :, 1:].max(axis=1), bounds.hops(tokens, size)
    if not corrected:
        few = largest[:h]
        return below(few, np.arange(1, len(few) + 1)[:, None] / (size - 1) * math.log1p(-floor), P)
    blocks = [bounds.log_block_bound(floor, h, len(P), j) for j in range(1, tokens)]
    return min(below(largest, math.log1p(-floor)), below(suffixes(P)[:, 1:], np.stack(blocks, axis=1)))


@statement("wu-C", "Theorem 4.3, proof (Appendix C)", PREFIX, provenance="ours", **STEP)
def c(kernels: Stack, size: int, corrected: bool) -> float:
    """P_ik₁/P_ik₂ ≥ min A_lk₁⁽⁰⁾/A_lk₂⁽⁰⁾ over l ≤ min(i, K), for t > 0

    Corrected: the same over l ≤ max(i, K)

    Shows: P_31/P_32 of three tokens, K = 2, two layers

    Erratum: appendix-c
    """
    P, slack, rows = rollouts(kernels), 1.0, max if corrected else min
    bottom = kernels[0][:, :size, None] / kernels[0][:, None, :size]
    for i in range(P.shape[-1]):
        ratio = P[1:, i, :size, None] / P[1:, i, None, :size]
        bound = bottom[: rows(i + 1, size)].min(axis=0)
        slack = min(slack, least(1 - bound / ratio, ratio, bound, P[1:]))
    return slack


# --- networks: Lemma A.1 and Equation (4) --------------------------------------------------------------------


@statement("wu-A.1", "Lemma A.1", Sampler.masked_network)
def lemma_a_1(hidden: Any, queries: Any, keys: Any, values: Any, kind: str, size: int) -> float:
    """there is ε > 0 with A_ij ≥ ε at all depths (tried: 1/(1 + (k − 1)e^(2M)), M = (max‖X_i⁽⁰⁾‖·C_V·C)², k the
    most keys a query sees; ‖X_i⁽ᵗ⁾‖ ≤ max‖X_i⁽⁰⁾‖·C_V, C_V ≥ 1 a bound of ‖ΠW_V‖)

    Holds, and the floor is attained. The C of Eq. (6) is not that of A1: it is max‖X_i‖·C_V·C. The display after
    Eq. (3) prints R_i for R_(i−j) in its second line.
    """
    allowed = mask_of(kind, size).allowed(len(hidden))
    states, kernels = run_network(hidden, queries, keys, values, allowed)
    C = max(operator_norm(weights).max() for weights in (queries, keys))
    C_V, start = max(1.0, largest_product(values)), float(np.linalg.norm(hidden, axis=1).max())
    log_floor = bounds.log_attention_floor(int(allowed.sum(axis=1).max()), (start * C_V * C) ** 2)
    norms = np.linalg.norm(states, axis=-1)
    return min(log_below(log_floor, np.log(kernels[:, allowed])), room(norms, start * C_V))


@statement("wu-4-selection", "Equation 4", Sampler.masked_network, **STEP)
def equation_4(hidden: Any, queries: Any, keys: Any, values: Any, kind: str, size: int) -> float:
    """X⁽ᵗ⁺¹⁾ = A⁽ᵗ⁾⋯A⁽⁰⁾·X⁽⁰⁾·W_V⁽⁰⁾⋯W_V⁽ᵗ⁾, the rows of A⁽ᵗ⁾⋯A⁽⁰⁾ distributions

    Holds for Eq. (1), which has neither residual connections nor normalisation.
    """
    states, kernels = run_network(hidden, queries, keys, values, mask_of(kind, size).allowed(len(hidden)))
    products, carried = rollouts(kernels), np.stack([*accumulate(values, np.matmul, initial=hidden)][1:])
    scale = float(operator_norm(hidden)) * max(1.0, largest_product(values))
    rows = np.abs(products.sum(axis=-1) - 1).max()
    return -max(float(np.abs(states - products @ carried).max()) / scale, float(rows))


# --- center nodes: any mask in which every token attends to itself -------------------------------------------


def _graph(s: Sampler, tokens: int) -> Bool[np.ndarray, "query key"]:
    """Who attends to whom: a mask of ours, with sinks or without, or a random graph with a centre."""
    width = s.whole(2, tokens)
    masks = Causal(), SlidingWindow(width, sinks=s.whole(0, 2)), Prefix(width)
    mask = s.one_of(*masks, None, None)
    if mask is not None:
        return mask.allowed(tokens)
    allowed = np.eye(tokens, dtype=bool) | (s.rng.random((tokens, tokens)) < s.rng.choice([0.0, 0.2]))
    order = s.rng.permutation(tokens)  # a tree from the root order[0]: each attends to one before it
    allowed[order[1:], order[s.rng.integers(np.arange(1, tokens))]] = True
    return allowed


def one_graph(s: Sampler, by_layer: bool = False) -> Instance:
    """Kernels with weight on what a mask admits, used in turn; `by_layer` each kernel with a mask of its own."""
    tokens, period = s.length(), s.whole(1, 3)
    allowed = np.stack([_graph(s, tokens) for _ in range(period)])
    if by_layer and s.coin():  # edges of one graph with a centre, dealt out to the layers
        dealt = s.rng.integers(period, size=(tokens, tokens)) == np.arange(period)[:, None, None]
        allowed = allowed[:1] & dealt | np.eye(tokens, dtype=bool)
    elif not by_layer:
        allowed = np.broadcast_to(allowed[0], allowed.shape)
    logits = s.rng.choice([0.0, 0.5, 3.0]) * s.rng.normal(size=allowed.shape)
    kernels = np.stack([masked_softmax(*layer) for layer in zip(logits, allowed, strict=True)])
    return {"kernels": kernels, "depth": s.layers()}


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
    floor, P = floor_of(kernels), rollouts(in_turn(kernels, max(depth, block)))
    kept = log_below(block * math.log(floor), np.log(P[block - 1 :, :, centre]))
    left = bounds.log_block_bound(floor, block, len(P))
    return min(below(P[:, :, ~centre].sum(axis=2).max(axis=1), left), kept)


@statement("wu-4.1-masks", "Section 4.1, center nodes", one_graph, **OURS)
def center_nodes(kernels: Stack, depth: int) -> float:
    """any mask with center nodes: all other tokens hold at most (1 − εʰ)^⌊(t+1)/h⌋ together, each center node at
    least εʰ from h layers on, ε the smallest admitted weight, h the layers in which every center node reaches
    every token

    Holds; the text says that center nodes come to dominate, the bound is ours. Tried on causal, prefix and window
    masks, with sinks and without, and on random graphs with a center, self-loops in all. Center nodes attend to
    center nodes alone, so what has reached them stays.
    """
    return _slack_centre(kernels, depth)


@statement("wu-3.2-masks", "Section 3.2, time-varying masks", partial(one_graph, by_layer=True), **OURS)
def masks_by_layer(kernels: Stack, depth: int) -> float:
    """masks that repeat with a period, all with self-loops, whose edges together have center nodes: the same
    bounds, h a multiple of the period

    Holds; the text names no regularity conditions, these are ours. Where the edges together have no center node
    nothing is claimed. A single layer's graph need not have one.
    """
    return _slack_centre(kernels, depth)


# --- the role of softmax: logits are drawn, with ReLU an edge is kept where its logit is positive ----------------


def any_logits(s: Sampler) -> Instance:
    """Logits of any layers under one of the masks of §4.1, so far apart at the edge that weights underflow."""
    tokens, depth = s.length(), s.layers(6)
    logits = s.pick([0.3, 3.0], [0.0, 1.0, 2000.0]) * s.rng.normal(size=(depth, tokens, tokens))
    return {"logits": logits, "kind": str(s.rng.choice(MASKS)), "size": s.whole(1, tokens)}


@statement("wu-4.1-softmax", "Section 4.1, the role of softmax", any_logits)
def softmax_keeps_edges(logits: Stack, kind: str, size: int) -> float:
    """softmax disconnects no edge: every weight that the mask admits is at least e^(min − max)/N of its row's
    logits

    Holds, for finite logits; in float64 a weight may underflow to zero, so logarithms are compared.
    """
    allowed = mask_of(kind, size).allowed(logits.shape[-1])
    rows = np.where(allowed, logits, np.nan)
    span = np.nanmax(rows, axis=-1, keepdims=True) - np.nanmin(rows, axis=-1, keepdims=True)
    floor = np.broadcast_to(-span - math.log(logits.shape[-1]), logits.shape)
    return log_below(floor[:, allowed], log_softmax(logits, allowed)[:, allowed])


def signs_with_a_way(s: Sampler, apart: bool = False) -> Instance:
    """Logits of either sign under the causal mask, by layer; the first token's own is positive.

    Every token has a positive one on an earlier token, some edges being lost; `apart`: a set of tokens has
    positive logits within and none outside.
    """
    tokens, depth = max(3, s.length()), s.layers()
    signs = np.where(s.rng.random((depth, tokens, tokens)) < s.rng.choice([0.2, 0.5, 0.8]), 1.0, -1.0)
    signs[:, 0, 0], signs[:, -1, -2] = 1.0, -1.0
    if apart:
        group = (np.arange(tokens) > 0) & (s.rng.random(tokens) < 0.5)
        group[-1] = True
        signs[:, group] = np.where(group, 1.0, -1.0)
    else:
        earlier = s.rng.integers(0, np.arange(1, tokens), (depth, tokens - 1))
        np.put_along_axis(signs[:, 1:], earlier[..., None], 1.0, axis=2)
    return {"logits": signs * s.rng.uniform(0.1, 3, signs.shape)}


def _relu_kernels(logits: Stack) -> Stack:
    """The kernels of causal layers whose rows ReLU makes of these logits."""
    return ReLU().weights_of(np.where(Causal().allowed(logits.shape[-1]), logits, -np.inf))


@statement(
    "wu-4.1-relu-apart", "Section 4.1, ReLU, edges lost", partial(signs_with_a_way, apart=True), **OURS
)
def relu_loses_edges(logits: Stack) -> float:
    """ReLU in place of softmax, logits of either sign: an edge is kept where its logit is positive; tokens from
    which no kept edges lead to the first draw nothing on it at any depth, while under the softmax of the same
    logits all but the first hold at most Π(1 − ε)

    Holds: the collapse onto the first token need not happen; these instances show that it can fail to, not that
    trained networks do so. The text says that others found ReLU to mitigate sinks, and why it can. Rows are
    divided by their sums; one without a positive logit is empty.
    """
    allowed = Causal().allowed(logits.shape[-1])
    ways = rollouts((allowed & (logits > 0)).astype(float))[:, :, 0]
    cut = (ways == 0).all(axis=0)
    if not cut.any():  # every token is led to the first one: nothing to show
        return -1.0
    drawn = float(rollouts(_relu_kernels(logits))[:, cut, 0].max())
    log_kernels = log_softmax(logits, allowed)
    floors = np.exp(log_kernels[:, allowed].min(axis=1))
    left = rollouts(np.exp(log_kernels))[:, :, 1:].sum(axis=2).max(axis=1)
    return below(left, bounds.log_collapse_bound(floors, 1)) if drawn == 0 else -drawn


@statement("wu-4.1-relu-reach", "Section 4.1, ReLU, edges kept", signs_with_a_way, **OURS)
def relu_keeps_reach(logits: Stack) -> float:
    """ReLU in place of softmax, every token with a positive logit on an earlier one: all but the first hold at
    most (1 − εʰ)^⌊(t+1)/h⌋ together, h = N − 1, ε the least weight that is kept

    Holds: where the edges that are kept lead everywhere back to the first token the collapse stays, however many
    others are lost.
    """
    weights = _relu_kernels(logits)
    bound = bounds.log_block_bound(floor_of(weights), logits.shape[-1] - 1, len(logits))
    left = rollouts(weights)[:, :, 1:].sum(axis=2).max(axis=1)
    return below(left[left > 0], bound[left > 0])


# --- windows without content -----------------------------------------------------------------------------------

# Where logits depend on the key alone, with a decay or without, a row of attention is one set of weights, cut off
# by the window. Cut off later it lies on earlier keys, and that of an earlier query lies on earlier keys too; so
# every layer more, and every wider window, moves the context to the front.


def two_windows(s: Sampler) -> Instance:
    """Logits of keys by layer, a decay m or none, and two windows."""
    tokens, spread = s.length(), s.pick([0.5, 3.0], [0.0, 50.0])
    narrow, wide = np.sort(s.rng.integers(1, tokens + 1, 2)).tolist()
    rate = s.pick([0.0, 0.5, 1.0, 2.0], [0.0, 1e-9, 20.0])
    logits = spread * s.rng.normal(size=(s.layers(), tokens))
    return {"logits": logits, "rate": float(rate), "narrow": narrow, "wide": wide}


@statement(
    "wu-4.2-narrower", "Section 4.1, narrower windows", two_windows, provenance="ours", strength="hedged"
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
    masks = (admitted(tokens, width) for width in (narrow, wide))
    less, more = (rollouts(masked_softmax(biased, allowed)).cumsum(axis=-1) for allowed in masks)
    return room(less, more)


def window_of_text(s: Sampler) -> Instance:
    """A length of text and the width of a window."""
    tokens = s.whole(2, 256, (2, 3, 256))
    return {"tokens": tokens, "width": s.whole(2, tokens, (2, tokens))}


@statement("wu-4.2-rate", "Section 4.1, rate by window", window_of_text, **OURS)
def rate_by_window(tokens: int, width: int) -> float:
    """even attention: the first token holds half of the last one's context after 2(N − w)/(w − 1) + c·ln w
    layers, 1 ≤ c ≤ 2.5, for 2 ≤ w ≤ N ≤ 256

    Holds; the text says that N/w determines the rate, the constants are ours. A layer goes back (w − 1)/2 tokens
    on average, until the window reaches the front; from there on ln w counts, so that for windows near N the rate
    is not one of N/w.
    """
    kernel = layer_kernel(Layer(mask=SlidingWindow(int(width))), int(tokens))
    row, layers = kernel[-1], 1
    while row[0] < 0.5 - 1e-9:  # sums round
        row, layers = row @ kernel, layers + 1
    walked = 2 * (tokens - width) / (width - 1)
    low, high = walked + math.log(width), walked + 2.5 * math.log(width)
    return min(layers - low, high - layers) / layers


# --- Lemma 4.4 and Theorem 4.5: the decay mask, and other decays than the linear one -----------------------------


def _content(s: Sampler) -> Stack:
    """Content of layers, at the edge one key as high as can be and all others as low."""
    tokens, depth = s.length(), s.layers(12)
    content = s.rng.uniform(-0.5, 0.5, (depth, tokens, tokens))
    if s.edge and s.coin():
        content = np.where(s.rng.integers(tokens, size=(depth, tokens, 1)) == np.arange(tokens), 0.5, -0.5)
    return s.pick([0.3, 2.0], [0.0, 1e-6, 50.0]) * content


def decay_and_content(s: Sampler) -> Instance:
    """Content of layers, and the decay m."""
    rate = s.rng.choice([0.0, 1e-9, 1e-3, 10.0, 500.0]) if s.edge else s.rng.exponential()
    return {"content": _content(s), "rate": float(rate)}


def _decay(content: Stack, bias: Any) -> tuple[Stack, float]:
    """ln of the kernels of content under a bias by distance, and how far admitted content ranges."""
    distance = distances(content.shape[-1])
    log_kernels = log_softmax(content - bias[np.abs(distance)], distance >= 0)
    return log_kernels, float(np.ptp(content[:, distance >= 0]))


def _slack_decay(corrected: bool, layers: bool, content: Stack, rate: float) -> float:
    """Every weight (`layers`) or rollout against its envelope, printed in Appendix D (m > 0) or corrected."""
    tokens = content.shape[-1]
    log_kernels, span = _decay(content, rate * np.arange(tokens))
    envelope = bounds.decay_envelope(rate, span, tokens)
    if not corrected:
        low, high = math.log(-math.expm1(-rate)) - span, span - math.log1p(math.exp(-rate))
        envelope = bounds.Envelope(low, high, rate, rate, power=1)
    return inside(envelope.log_bounds, log_kernels, layers)


@statement("wu-4.4", "Lemma 4.4", decay_and_content)
def lemma_4_4(corrected: bool, **decay: Any) -> float:
    """C_min = (1 − e^−m)e^(I_min−I_max), C_max = e^(I_max−I_min)/(1 + e^−m), as Appendix D prints them

    Corrected: C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)

    Asserts: there are C_min, C_max > 0 with C_min·e^(−(i−j)m) ≤ A_ij ≤ C_max·e^(−(i−j)m) in every layer

    Shows: A_11 of two tokens, m = 1, no content

    Erratum: lemma-4.4
    """
    return _slack_decay(corrected, True, **decay)


@statement("wu-4.5", "Theorem 4.5", decay_and_content, proof=OURS)
def theorem_4_5(corrected: bool, **decay: Any) -> float:
    """C_min^(t+1) ≤ P_ij/(binom(t+i−j, i−j)·e^(−(i−j)m)) ≤ C_max^(t+1) with Appendix D's constants

    Corrected: the same with C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)

    Asserts: P_ij = Θ(binom(t+i−j, i−j)·e^(−(i−j)m)) for all j ≤ i and t ≤ T (N and T fixed)

    Alias: wu2025/lemma-4.4-proof

    Shows: P_11 of two tokens, m = 1, no content, one layer

    Erratum: theorem-4.5
    """
    return _slack_decay(corrected, False, **decay)


def kerple(s: Sampler) -> Instance:
    """Content of layers, and one of KERPLE's biases with its two parameters."""
    scale, second = (s.real(0.01, 2.0, (1e-9, 1e-3, 1.0, 2.0, 100.0)) for _ in range(2))
    kind = s.one_of("log", "power")
    second = min(second, 2.0) if kind == "power" else second
    return {"content": _content(s), "kind": kind, "scale": scale, "second": second}


def _slack_kerple(layers: bool, content: Stack, kind: str, scale: float, second: float) -> float:
    """Every weight (`layers`), or the rollout at every depth, between its envelopes."""
    kernel = KerpleLog((scale,), (second,)) if kind == "log" else KerplePower((scale,), (second,))

    def bias(distance: Any) -> Any:
        """b(d) ≥ 0 at distances, which need not be whole."""
        return -kernel.logits_at(np.asarray(distance, dtype=float), 1)[0]

    every = bias(np.arange(content.shape[-1]))
    log_kernels, span = _decay(content, every)
    log_least = -span - float(np.logaddexp.reduce(-every))

    def envelope(far: Any, steps: int) -> tuple[Any, Any]:
        ends, walks = np.stack([bias(far), steps * bias(far / steps)]), bounds.log_walks(steps, far)
        return walks + steps * log_least - ends.max(axis=0), walks + steps * span - ends.min(axis=0)

    return inside(envelope, log_kernels, layers)


@statement("wu-4.4-kerple", "Lemma 4.4, KERPLE", kerple, **OURS)
def lemma_4_4_kerple(**bias: Any) -> float:
    """e^(I_min−I_max)·e^(−b(i−j))/Σ_k e^(−b(k)) ≤ A_ij ≤ e^(I_max−I_min)·e^(−b(i−j)), −b KERPLE's logarithmic or
    power bias

    Holds; §3.3 says that the decay mask can be generalised so, the constants are ours.
    """
    return _slack_kerple(True, **bias)


@statement("wu-4.5-kerple", "Theorem 4.5, KERPLE", kerple, **OURS)
def theorem_4_5_kerple(**bias: Any) -> float:
    """C_min^(t+1)·e^(−max) ≤ P_ij/binom(t+i−j, i−j) ≤ C_max^(t+1)·e^(−min), max and min those of b(i−j) and
    (t+1)·b((i−j)/(t+1))

    Holds, with the constants of Lemma 4.4 for KERPLE. Θ with e^(−b(i−j)) alone is true for N and T fixed; but
    where b is not linear equal steps cost otherwise than one, so the envelope itself changes with depth.
    """
    return _slack_kerple(False, **bias)


# --- the critical distance of Theorem 4.5 ----------------------------------------------------------------------


def depth_and_decay(s: Sampler) -> Instance:
    """A depth of two layers or more and the decay m, at the edge such that two distances tie."""
    depth = int(s.rng.choice([1, 2, 3]) if s.edge else s.rng.integers(2, 200))
    if s.edge and depth > 1 and s.coin():  # x* a whole number
        return {"depth": depth, "rate": math.log1p((depth - 1) / s.whole(1, 19))}
    return {"depth": max(depth, 2), "rate": s.real(0.01, 3, (5e-3, 1.0, 30.0))}


def any_depth_and_decay(s: Sampler) -> Instance:
    """The same, or a single layer."""
    drawn = depth_and_decay(s)
    return {**drawn, "depth": 1} if s.edge and s.rng.random() < 0.2 else drawn


def _heights(depth: int, fall: Any, count: int) -> Any:
    """L at 0, 1, …, `count` − 1: ln of the number of walks less what the envelope takes."""
    far = np.arange(count)
    return bounds.log_walks(depth, far) - fall(far)


@statement("wu-4.5-stirling", "Theorem 4.5, critical point", depth_and_decay)
def stirling(depth: int, rate: float) -> float:
    """under Stirling's approximation L(x) = log(binom(t+x, x)e^(−xm)) is not monotone for t ≥ 1: it rises to
    t/(e^m − 1) and falls from there; that point falls with m and grows with t

    Holds for L without the ½·log terms of Stirling's formula.
    """
    critical, t = critical_distances.critical_distance, depth - 1
    star = t / math.expm1(rate)

    def slope(x: float) -> float:
        return math.log1p(t / x) - rate

    deeper = critical(depth + 1, rate) - critical(depth, rate)
    steeper = critical(depth, rate) - critical(depth, 1.1 * rate)
    return min(-abs(slope(star)) / rate, slope(0.9 * star), -slope(1.1 * star), deeper, steeper)


@statement("wu-4.5-monotone", "Theorem 4.5, L", depth_and_decay, **OURS)
def monotone(depth: int, rate: float) -> float:
    """as exactly as Stirling's approximation is, to one token: L(x) = log(binom(t+x, x)e^(−xm)) is not a monotone
    function of the distance x but rises at first, where t/(e^m − 1) > 1

    Scope: t/(e^m − 1) > 1, which the paper does not ask for: else L falls from the start

    Holds over whole distances, see the critical distance.
    """
    first = math.log(depth) - rate
    count = 2 * critical_distances.modal_distance(depth, rate) + 6
    rises = bool((np.diff(_heights(depth, lambda x: rate * x, count)) > 0).any())
    return abs(first) if rises == (depth - 1 > math.expm1(rate)) else -abs(first)


@statement("wu-4.5-distance", "Theorem 4.5, critical distance", any_depth_and_decay, **OURS)
def highest(depth: int, rate: float, corrected: bool) -> float:
    """L(x) = log(binom(t+x, x)e^(−xm)), Γ for factorials, is highest at t/(e^m − 1)

    Corrected: highest at ⌊x*⌋ over whole x, in (x* − 1, x* − ½] or at 0 over real x; x* grows with t, falls with m

    Erratum: theorem-4.5-distance
    """
    critical, t = critical_distances.critical_distance, depth - 1
    star = critical(depth, rate)
    if not corrected:
        near = np.linspace(max(0.0, star - 1), star + 1, 41)
        x = np.concatenate([[star], np.arange(math.ceil(star) + 3.0), near])
        height = loggamma(t + x + 1) - loggamma(x + 1) - loggamma(t + 1) - x * rate
        rises = math.log1p(t) - rate if t else -rate
        return least(min(height[0] - height.max(), rises), height.max(), height[0])

    def slope(x: float) -> float:
        return float((1.0 / (x + np.arange(1, depth))).sum()) - rate

    best = critical_distances.modal_distance(depth, rate)
    heights = _heights(depth, lambda x: rate * x, 2 * best + 6)
    left = slope(star - 1) if star > 1 else math.inf
    right = -slope(max(star - 0.5, 0.0)) if star > 0.5 else math.inf
    moves = critical(depth + 1, rate) - star, star - critical(depth, 1.1 * rate)
    return min(float(heights[best] - heights.max()), left, right, *moves)


# --- Lemma 4.6, Theorem 4.7, Appendix I: RoPE in one and in several pairs of dimensions ----------------------


def one_pair(s: Sampler, depth: int | None = None) -> Instance:
    """d = 2, |φ| ≤ δθ and (δ + N − 1)θ ≤ π, at the boundary where `edge`."""
    tokens = s.length()
    shape = (2, s.layers(10) if depth is None else depth, tokens)
    turn = np.pi if s.edge else s.rng.uniform(0.001, np.pi)
    delta = float(s.rng.choice([1e-9, 1.0, tokens]) if s.edge else s.rng.exponential())
    angle = turn / (delta + tokens - 1)
    sides = s.rng.choice([-0.5, 0.5], shape) if s.edge else s.rng.uniform(-0.5, 0.5, shape)
    norms = np.exp(s.rng.normal(0, s.rng.choice([0.0, 0.3, 1.0]), shape)) * s.rng.choice([0.05, 1.0, 4.0])
    turned = sides * delta * angle
    vectors = norms[..., None] * np.stack([np.cos(turned), np.sin(turned)], axis=-1)
    return {"queries": vectors[0], "keys": vectors[1], "angles": np.array([angle]), "delta": delta}


def some_pairs(s: Sampler, depth: int | None = None) -> Instance:
    """d = 4 or 6: queries and keys near one direction; at `edge` angles as large as Lemma I.1 allows."""
    tokens, pairs = s.length(), s.whole(2, 3)
    shape = (2, s.layers(8) if depth is None else depth, tokens)
    base = s.rng.normal(size=(pairs, 2))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    away = s.pick([0.01, 0.05], [0.0, 1e-6, 0.02])
    vectors = (base + away * s.rng.uniform(-1, 1, (*shape, pairs, 2))).reshape(*shape, 2 * pairs)
    vectors *= np.exp(s.rng.normal(0, s.rng.choice([0.0, 1.0]), (*shape, 1))) * s.rng.choice([0.2, 2.0])
    apart = float(_angle(vectors[0][..., :, None, :], vectors[1][..., None, :, :]).max())
    ratios = np.sort([1.0, *s.rng.choice([1.0, 100.0], pairs - 1)] if s.edge else s.rng.uniform(1, 5, pairs))
    turn = (np.pi - _stretch(*vectors) * apart) * (1.0 if s.edge else s.rng.uniform(0.01, 1))
    angles = turn / (tokens - 1) * ratios / ratios[-1]
    delta = float(apart / angles[0]) * (1 + 1e-12) + 1e-12
    return {"queries": vectors[0], "keys": vectors[1], "angles": angles, "delta": delta}


def _angle(u: Any, v: Any) -> Any:
    """The angle between vectors along the last axis, accurate where it is small."""
    u, v = (one / np.linalg.norm(one, axis=-1, keepdims=True) for one in (u, v))
    return 2 * np.arctan2(np.linalg.norm(u - v, axis=-1), np.linalg.norm(u + v, axis=-1))


def _segments(vectors: Any) -> Any:
    return vectors.reshape(*vectors.shape[:-1], -1, 2)


def _stretch(*vectors: Any) -> float:
    """½π/√(β_q β_k) of Lemma I.3, β of A3: the least share of a segment in a vector's norm."""
    norms = ((np.linalg.norm(_segments(v), axis=-1), np.linalg.norm(v, axis=-1)[..., None]) for v in vectors)
    return np.pi / 2 / math.sqrt(math.prod(float((part / of).min()) for part, of in norms))


def _slack_rope(
    corrected: bool, layers: bool, queries: Any, keys: Any, angles: Angles, delta: float
) -> float:
    """Weights or rollouts against their envelope; those of a rollout as printed with ½ in place of 1/(t + 1).

    Printed for weights: least·(1 − δ²θ² − d²θ²) below, largest·(1 − (d²/2 − δ²)θ²/c) above.
    """
    tokens, allowed, pairs = queries.shape[1], np.tri(queries.shape[1], dtype=bool), len(angles)
    turn = np.exp(1j * np.arange(tokens)[:, None] * angles)
    query, key = (turn * (v[..., ::2] + 1j * v[..., 1::2]) for v in (queries, keys))
    logits = np.einsum("til,tjl->tij", query, key.conj()).real
    amplitudes = (np.abs(query)[:, :, None] * np.abs(key)[:, None])[:, allowed]
    deviation = (_stretch(queries, keys) if pairs > 1 else 1.0) * delta * float(angles.min())
    extremes = amplitudes.min(axis=(0, 1)), amplitudes.max(axis=(0, 1))
    envelope = bounds.rope_envelope(*extremes, angles, deviation, tokens)
    if layers and not corrected:
        smallest, largest = float(amplitudes.min()), float(amplitudes.max())
        low = pairs * (smallest * (1 - deviation**2) - largest) - math.log(tokens)
        high, reach = pairs * largest * (2 + 2 * deviation**2 / np.pi**2), float((angles**2).sum())
        envelope = bounds.Envelope(low, high, smallest * reach, largest * reach / np.pi**2, power=2)

    def between(distance: Any, depth: int) -> tuple[Any, Any]:
        low, high = envelope.log_bounds(distance, depth)
        half = 0.0 if layers or corrected else envelope.upper_rate * (1 / depth - 1 / 2)
        return low, high + half * distance.astype(float) ** 2

    return inside(between, log_softmax(logits, allowed), layers)


def _half_turn(pairs: int) -> Instance:
    """Lemma 4.6's counterexample, in each of some `pairs` of dimensions: half a turn between two tokens."""
    queries, keys = (
        np.tile([[one, 0.0], [other, 0.0]], pairs).tolist() for one, other in ((0.02, 1.0), (5.0, 5.0))
    )
    return {"queries": [queries], "keys": [keys], "angles": [math.pi - 1e-6] * pairs, "delta": 1e-9}


def _stepping(pairs: int) -> Instance:
    """Theorem 4.7's: half a turn over the text in as many equal steps as layers, with large equal norms."""
    vectors = np.tile([math.sqrt(200.0 / pairs), 0.0], (20, 21, pairs)).tolist()
    return {"queries": vectors, "keys": vectors, "angles": [(math.pi - 1e-6) / 20] * pairs, "delta": 1e-9}


@statement("wu-4.6", "Lemma 4.6", lambda s: one_pair(s, 1), witness=_half_turn(1), proof=OURS)
def lemma_4_6(corrected: bool, **rotary: Any) -> float:
    """c = min|q||k|, c′ = max|q||k|/π² (cos x ≤ 1 − 2x²/π² for |x| ≤ π), where Appendix F says constants exist

    Corrected: c = a = max|q||k|, c′ = a/π², b = min|q||k|, s = δθ: C_min = e^(b − a − as²)/N and C_max = e^(a −
    b + 2as²/π² + ½as²)

    Asserts: there are C_min, C_max, c, c′ > 0 with C_min·e^(−c(i−j)²θ²) ≤ A_ij ≤ C_max·e^(−c′(i−j)²θ²)

    Shows: weight of a token half a turn away

    Erratum: lemma-4.6
    """
    return _slack_rope(corrected, True, **rotary)


@statement("wu-4.7", "Theorem 4.7", one_pair, witness=_stepping(1), proof=OURS)
def theorem_4_7(corrected: bool, **rotary: Any) -> float:
    """C_min^(t+1)·e^(−cx²) ≤ P_ij/binom(t+i−j, i−j) ≤ C_max^(t+1)·e^(−½c′x²) with x = (i−j)θ: Eqs. (15), (16) with
    the constants of Eq. (14), those of Lemma 4.6 as amended

    Corrected: the same with e^(−c′x²/(t+1)) above

    Asserts: there is c > 0 with P_ij = Θ(binom(t+i−j, i−j)·e^(−c(i−j)²θ²)) for t ≤ T (N and T fixed: any c serves)

    Shows: P_(21)1 after 20 layers, half a turn in 20 equal steps

    Erratum: theorem-4.7
    """
    return _slack_rope(corrected, False, **rotary)


@statement("wu-I.1", "Lemma I.1", lambda s: some_pairs(s, 1), witness=_half_turn(2), proof=OURS)
def lemma_i_1(corrected: bool, **rotary: Any) -> float:
    """c = min|q_l||k_l|, c′ = max|q_l||k_l|/π², constants as in Appendix I.2, δ′ by Lemma I.3

    Corrected: c·Σα² = Σα_l² max|q_l||k_l|, c′ = c/π²

    Asserts: there are C_min, C_max, c, c′ > 0 with e^(−cx²) and e^(−c′x²) around A_ij, x² = Σ_l(i−j)²θ_l²

    Alias: wu2025/lemma-4.6-proof

    Shows: weight of a token half a turn away in two pairs

    Erratum: lemma-i.1
    """
    return _slack_rope(corrected, True, **rotary)


@statement("wu-I.2", "Theorem I.2", some_pairs, witness=_stepping(2), proof=OURS)
def theorem_i_2(corrected: bool, **rotary: Any) -> float:
    """Eqs. (15) and (16) for Σ_l (i−j)²θ_l², Lemma I.1 amended

    Corrected: the same with c′/(t + 1) in place of c′/2

    Asserts: there is c > 0 with P_ij = Θ(binom(t+i−j, i−j)·e^(−cΣ_l(i−j)²θ_l²)) for t ≤ T (N, T fixed: any c
    serves)

    Alias: wu2025/theorem-4.7-proof

    Shows: P_(21)1 after 20 layers in two pairs

    Erratum: theorem-i.2
    """
    return _slack_rope(corrected, False, **rotary)


def query_and_key(s: Sampler) -> Instance:
    """A query and a key of 2 to 8 dimensions, at the edge alike or opposite."""
    query, other = s.rng.normal(size=(2, 2 * s.whole(1, 4)))
    return {"query": query, "key": query * s.edge + s.pick([1.0], [0.0, 1e-7, 10.0]) * other}


@statement("wu-I.3", "Lemma I.3", query_and_key)
def lemma_i_3(query: Any, key: Any) -> float:
    """|φ_l| ≤ ½π·|φ|/√(β_qβ_k), β the least share of a segment in its vector's norm

    Holds.
    """
    bound = _stretch(query, key) * float(_angle(query, key))
    largest = float(_angle(_segments(query), _segments(key)).max())
    return 1 - largest / bound if bound else -largest


# --- the critical distance of Theorem 4.7, and RoPE's decay against the decay mask's --------------------------


def depth_and_angle(s: Sampler) -> Instance:
    """A depth of two layers or more and the base angle θ."""
    depth, angle = s.whole(2, 99, (2, 3)), s.rng.choice([0.01, 0.5, 3.0]) if s.edge else 10 ** s.real(-2, 0)
    return {"depth": depth, "angle": float(angle)}


@statement("wu-4.7-distance", "Theorem 4.7, critical distance (Appendix H)", depth_and_angle)
def rope_distance(depth: int, angle: float, corrected: bool) -> float:
    """by Stirling's approximation the critical point of L solves log((t+x)/x) = 2θx, as Appendix H prints it

    Corrected: by Stirling's approximation it solves log((t+x)/x) = 2θ²x, grows with t, falls with θ; the highest
    whole distance lies in (x* − 1, x* + ½)

    Asserts: the critical point x* of L grows with the depth t and falls with the base angle θ

    Erratum: theorem-4.7-distance
    """
    critical, t = critical_distances.rope_critical_distance, depth - 1
    # the printed equation is the right one for √θ in place of θ
    x = critical(depth, angle if corrected else math.sqrt(angle))
    rise, fall = math.log1p(t / x), 2 * angle**2 * x
    if not corrected:
        return least(-abs(rise - fall) / max(rise, fall), rise, fall)
    best = critical_distances.rope_modal_distance(depth, angle)
    heights = _heights(depth, lambda x: (angle * x) ** 2, best + 4 + best // 4)
    peak = min(float(heights[best] - heights.max()), best - (x - 1), x + 0.5 - best)
    moves = critical(depth + 1, angle) / x - 1, 1 - critical(depth, 1.01 * angle) / x
    return min(-abs(1 - fall / rise), peak, *moves)


def two_models(s: Sampler) -> Instance:
    """One query and key for all tokens (d = 2, no angle between them), θ ≤ 1/10,000 and a decay m ≥ .05."""
    tokens, product = s.whole(2, 2048, (2, 2048)), s.real(0.1, 10, (10.0,))
    angle = 1e-4 if s.edge else 10 ** s.real(-6, -4)
    return {"tokens": tokens, "product": product, "angle": angle, "rate": s.real(0.05, 2, (0.05,))}


@statement("wu-4.6-decay", "Section 4.3, the two decays", two_models, **OURS)
def two_decays(tokens: int, product: float, angle: float, rate: float) -> float:
    """one layer, content alike for all tokens: with θ ≤ 1/10,000 the logarithm of the last token's weight over
    the first's is under RoPE at most a hundredth of that under the decay mask, for |q||k| ≤ 10, m ≥ .05 and N ≤
    2,048

    Holds; the text says significantly smaller, the hundredth and the ranges are ours: the ratio is below |q||k|(N
    − 1)θ²/(2m), which longer texts, larger norms or a slower decay mask exceed. At 256 tokens, θ = 1/10,000,
    |q||k| = 1 and m = −log .8 the weights' ratios are 1.0003 and 5e24.
    """
    rope, ends = RoPE(((product,),), frequencies=(angle,)), np.array([0, int(tokens) - 1])
    # logarithms of ratios of weights are differences of logits
    rotary = -np.diff(rope.logits_at(ends, 1)[0])[0]
    return float(1 - rotary / (FAR * rate * (tokens - 1)))
