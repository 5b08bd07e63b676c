"""What Wu et al. 2025 say beyond their numbered statements: any mask, masks by layer, other decays, RoPE's decay.

Sentences without a bound are given one here. Masks may be any in which every token attends to itself: tokens of
the centre attend to the centre alone, so what has reached it stays, and others send some there in every block of
h layers. Under a bias −b(i − j) with b convex or concave and b(0) = 0, steps over a distance d in T layers cost
between b(d) and T·b(d/T).
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.theory.closed_forms import collapse_bounds
from posbias.theory.distance import KerpleLog, KerplePower
from posbias.theory.masks import Causal, Prefix, SlidingWindow
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.margins import (
    Stack,
    below,
    distances,
    largest_product,
    log_below,
    log_rollouts,
    log_softmax,
    operator_norm,
    rollouts,
)
from posbias_papers.statements.statement import OURS, STEP, Instance, Statement, statement
from posbias_papers.statements.wu import draws
from posbias_papers.statements.wu.floor import draw_network

FAR = 0.01
"""RoPE's decay is called far below another where its logarithm is at most so many times the other's."""


# --- masks -------------------------------------------------------------------------------------------------


def _graph(rng: Generator, tokens: int) -> Any:
    """Who attends to whom: a mask of ours, with sinks or without, or a random graph with a centre."""
    masks = (
        Causal(),
        SlidingWindow(int(rng.integers(2, tokens + 1)), sinks=int(rng.integers(3))),
        Prefix(int(rng.integers(1, tokens + 1))),
    )
    choice = int(rng.integers(len(masks) + 2))
    if choice < len(masks):
        return masks[choice].allowed(tokens)
    allowed = np.eye(tokens, dtype=bool) | (rng.random((tokens, tokens)) < rng.choice([0.0, 0.2]))
    order = rng.permutation(tokens)
    for place in range(1, tokens):  # a tree from the root order[0]: each attends to one before it
        allowed[order[place], order[rng.integers(place)]] = True
    return allowed


def _draw_masks(rng: Generator, edge: bool, by_layer: bool) -> Instance:
    """Kernels with weight on what a mask admits, used in turn; `by_layer` each kernel with a mask of its own."""
    tokens, period = draws.length(rng, edge), int(rng.integers(1, 4))
    spread = 0.0 if edge and rng.random() < 0.5 else float(rng.choice([0.5, 3.0]))
    allowed = np.stack([_graph(rng, tokens) for _ in range(period)])
    if by_layer and rng.random() < 0.5:  # edges of one graph with a centre, dealt out to the layers
        dealt = rng.integers(period, size=(tokens, tokens)) == np.arange(period)[:, None, None]
        allowed = allowed[:1] & dealt | np.eye(tokens, dtype=bool)
    if not by_layer:
        allowed = np.broadcast_to(allowed[0], allowed.shape)
    kernels = np.stack([masked_softmax(rng.normal(0, spread, one.shape), one) for one in allowed])
    return {"kernels": kernels, "depth": draws.depth(rng, edge)}


def _reach(allowed: Any, layers: int) -> Any:
    """Which keys have reached which query after so many layers, the masks used in turn."""
    reached = np.eye(allowed.shape[-1], dtype=bool)
    for layer in range(layers):
        reached = (allowed[layer % len(allowed)].astype(int) @ reached.astype(int)) > 0
    return reached


def _slack_centre(kernels: Stack, depth: int) -> float:
    """(1 − εʰ)^⌊(t+1)/h⌋ on all but the centre, and εʰ on each of its nodes from h layers on.

    h is the least multiple of the period after which every centre node has reached every query. Without a centre
    node nothing is claimed: slack 1.
    """
    allowed, period = kernels > 0, len(kernels)
    centre = _reach(allowed, period * kernels.shape[-1]).all(axis=0)
    if not centre.any():
        return 1.0
    block = period
    while not _reach(allowed, block)[:, centre].all():
        block += period
    log_least = block * math.log(float(kernels[allowed].min()))
    P = rollouts(kernels[np.arange(max(depth, block)) % period])
    blocks = np.arange(1, len(P) + 1) // block
    escaped = np.log1p(-math.exp(log_least)) if log_least < 0 else -math.inf
    left = np.where(blocks > 0, blocks * escaped, 0.0) if math.isfinite(escaped) else np.zeros(len(P))
    kept = log_below(log_least, np.log(P[block - 1 :, :, centre]))
    return min(below(P[:, :, ~centre].sum(axis=2).max(axis=1), left), kept)


# --- Equation (4) ------------------------------------------------------------------------------------------


def _slack_selection(hidden: Any, queries: Any, keys: Any, values: Any, kind: str, size: int) -> float:
    """Minus the deviation of the network's states from P⁽ᵗ⁾X⁽⁰⁾W_V⁽⁰⁾⋯W_V⁽ᵗ⁾, in units of what they can be."""
    X, allowed, kernels, worst = hidden, draws.mask_of(kind, size).allowed(len(hidden)), [], 0.0
    carried = hidden
    scale = float(operator_norm(hidden)) * max(1.0, largest_product(values))
    for query, key, value in zip(queries, keys, values, strict=True):
        kernels.append(masked_softmax((X @ query) @ (X @ key).T, allowed))
        X, carried = kernels[-1] @ X @ value, carried @ value
        product = rollouts(np.stack(kernels))[-1]
        worst = max(worst, float(np.abs(X - product @ carried).max()) / scale)
        worst = max(worst, float(np.abs(product.sum(axis=1) - 1).max()))
    return -worst


# --- other decays than the linear one ------------------------------------------------------------------------


def _draw_kerple(rng: Generator, edge: bool) -> Instance:
    tokens, depth = draws.length(rng, edge), draws.depth(rng, edge, 12)
    spread = float(rng.choice([0.0, 1e-6, 50.0]) if edge else rng.choice([0.3, 2.0]))
    content = spread * rng.uniform(-0.5, 0.5, (depth, tokens, tokens))
    kind = str(rng.choice(["log", "power"]))
    if kind == "log":
        second = float(rng.choice([1e-3, 1.0, 1e3]) if edge else rng.exponential() + 1e-3)
    else:
        second = float(rng.choice([1e-3, 1.0, 2.0]) if edge else rng.uniform(0.01, 2))
    scale = float(rng.choice([1e-9, 1e-3, 10.0, 100.0]) if edge else rng.exponential())
    return {"content": content, "kind": kind, "scale": scale, "second": second}


def _bias(kind: str, scale: float, second: float, distance: Any) -> Any:
    """b(d) ≥ 0 of KERPLE's logarithmic or power kernel at a row of distances, which need not be whole."""
    kernel = KerpleLog((scale,), (second,)) if kind == "log" else KerplePower((scale,), (second,))
    return -kernel.logits_at(np.asarray(distance, dtype=float), 1)[0]


def _slack_kerple(content: Stack, kind: str, scale: float, second: float, layers: bool) -> float:
    """Every weight (`layers`), or the rollout at every depth, between its envelopes."""
    tokens, slack = content.shape[-1], 1.0
    distance = distances(tokens)
    lower = distance >= 0
    bias = partial(_bias, kind, scale, second)
    log_kernels = log_softmax(content - bias(np.arange(tokens))[np.abs(distance)], lower)
    span = float(content[:, lower].max() - content[:, lower].min())
    log_least = -span - float(np.logaddexp.reduce(-bias(np.arange(tokens))))
    far = distance[lower]
    for t, log_values in enumerate(log_kernels if layers else log_rollouts(log_kernels)):
        steps = 1 if layers else t + 1
        ends = np.stack([bias(far), steps * bias(far / steps)])
        walks = collapse_bounds.log_walks(steps, far)
        low, high = walks + steps * log_least - ends.max(axis=0), walks + steps * span - ends.min(axis=0)
        slack = min(slack, log_below(low, log_values[lower]), log_below(log_values[lower], high))
    return slack


# --- RoPE's decay against the decay mask's -------------------------------------------------------------------


def _draw_decays(rng: Generator, edge: bool) -> Instance:
    """One query and key for all tokens (d = 2, no angle between them), θ ≤ 1/10,000 and a decay m ≥ .05."""
    tokens = int(rng.choice([2, 2048]) if edge else rng.integers(2, 2049))
    product = 10.0 if edge else float(rng.uniform(0.1, 10))
    angle = 1e-4 if edge else float(10 ** rng.uniform(-6, -4))
    rate = 0.05 if edge else float(rng.uniform(0.05, 2))
    return {"tokens": tokens, "product": product, "angle": angle, "rate": rate}


def decays(tokens: int, product: float, angle: float, rate: float) -> tuple[float, float]:
    """ln of the last token's own weight over the first token's weight: under RoPE, and under the decay mask.

    Queries and keys are one vector of squared length `product`, so that content tells no token from another.
    """
    turns = np.arange(tokens) * angle
    rotated = math.sqrt(product) * np.stack([np.cos(turns), np.sin(turns)], axis=-1)
    logits = rotated @ rotated[-1], product - rate * np.arange(tokens)[::-1]
    rotary, decay = (log_softmax(row[None], np.ones((1, tokens), dtype=bool))[0] for row in logits)
    return float(rotary[-1] - rotary[0]), float(decay[-1] - decay[0])


def _slack_decays(tokens: int, product: float, angle: float, rate: float) -> float:
    """What RoPE's decay lacks of `FAR` times the decay mask's, relative to that."""
    rotary, decay = decays(int(tokens), product, angle, rate)
    return 1 - rotary / (FAR * decay)


EXTENSIONS: tuple[Statement, ...] = (
    statement(
        "wu-4.1-masks",
        "Section 4.1, center nodes",
        "any mask with center nodes: all other tokens hold at most (1 − εʰ)^⌊(t+1)/h⌋ together, each center "
        "node at least εʰ from h layers on, ε the smallest admitted weight, h the layers in which every center "
        "node reaches every token",
        partial(_draw_masks, by_layer=False),
        _slack_centre,
        about=OURS,
        note="Holds; the text says that center nodes come to dominate, the bound is ours. Tried on causal, "
        "prefix and window masks, with sinks and without, and on random graphs with a center, self-loops "
        "in all. Center nodes attend to center nodes alone, so what has reached them stays.",
    ),
    statement(
        "wu-3.2-masks",
        "Section 3.2, time-varying masks",
        "masks that repeat with a period, all with self-loops, whose edges together have center nodes: the same "
        "bounds, h a multiple of the period",
        partial(_draw_masks, by_layer=True),
        _slack_centre,
        about=OURS,
        note="Holds; the text names no regularity conditions, these are ours. Where the edges together have "
        "no center node nothing is claimed. A single layer's graph need not have one.",
    ),
    statement(
        "wu-4-selection",
        "Equation 4",
        "X⁽ᵗ⁺¹⁾ = A⁽ᵗ⁾⋯A⁽⁰⁾·X⁽⁰⁾·W_V⁽⁰⁾⋯W_V⁽ᵗ⁾, the rows of A⁽ᵗ⁾⋯A⁽⁰⁾ distributions",
        draw_network,
        _slack_selection,
        about=STEP,
        note="Holds for Eq. (1), which has neither residual connections nor normalisation.",
    ),
    statement(
        "wu-4.4-kerple",
        "Lemma 4.4, KERPLE",
        "e^(I_min−I_max)·e^(−b(i−j))/Σ_k e^(−b(k)) ≤ A_ij ≤ e^(I_max−I_min)·e^(−b(i−j)), −b KERPLE's "
        "logarithmic or power bias",
        _draw_kerple,
        partial(_slack_kerple, layers=True),
        about=OURS,
        note="Holds; §3.3 says that the decay mask can be generalised so, the constants are ours.",
    ),
    statement(
        "wu-4.5-kerple",
        "Theorem 4.5, KERPLE",
        "C_min^(t+1)·e^(−max) ≤ P_ij/binom(t+i−j, i−j) ≤ C_max^(t+1)·e^(−min), max and min those of b(i−j) and "
        "(t+1)·b((i−j)/(t+1))",
        _draw_kerple,
        partial(_slack_kerple, layers=False),
        about=OURS,
        note="Holds, with the constants of Lemma 4.4 for KERPLE. Θ with e^(−b(i−j)) alone is true for N and T "
        "fixed; but where b is not linear equal steps cost otherwise than one, so the envelope itself "
        "changes with depth.",
    ),
    statement(
        "wu-4.6-decay",
        "Section 4.3, the two decays",
        "one layer, content alike for all tokens: with θ ≤ 1/10,000 the logarithm of the last token's weight "
        "over the first's is under RoPE at most a hundredth of that under the decay mask, for |q||k| ≤ 10, "
        "m ≥ .05 and N ≤ 2,048",
        _draw_decays,
        _slack_decays,
        about=OURS,
        note="Holds; the text says significantly smaller, the hundredth and the ranges are ours: the ratio is "
        "below |q||k|(N − 1)θ²/(2m), which longer texts, larger norms or a slower decay mask exceed. At "
        "256 tokens, θ = 1/10,000, |q||k| = 1 and m = −log .8 the weights' ratios are 1.0003 and 5e24.",
    ),
)
"""Sentences of §3.2, §3.3, §4.1 and §4.3, and Equation (4)."""
