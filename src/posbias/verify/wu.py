"""The statements of Wu et al. 2025 (§4, Appendices A to I), each as something that can be tried.

The theorems claim that constants exist. For a fixed text and depth that alone says little (any two positive
numbers are Θ of each other), so each reading takes the constants that its proof gives: ε is the smallest
admitted weight or Lemma A.1's, C = 1 − ε, and for the envelopes those of `posbias.theory.limits` or, as
printed, of the appendix. Limits in t are made concrete by the bound at every t.

Networks run: X ← A·X·W_V with A = softmax(X W_Q (X W_K)ᵀ), no residual, no 1/√d (§3.2). Weights are kept as
logarithms wherever they may underflow. Positions and layers count from 0, `depth` is the paper's t + 1.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.random import Generator
from scipy.special import loggamma, logsumexp

from posbias.theory import limits
from posbias.theory.architecture import Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.distance import RoPE
from posbias.theory.kernel import layer_kernel, masked_softmax
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias.theory.positional import ALiBi, Decay, NoPE
from posbias.theory.residual import smallest_admitted
from posbias.verify.statement import Instance, Reading, Statement

SOURCE = "wu2025"

Matrix = Float[np.ndarray, "query key"]
Stack = Float[np.ndarray, "layer query key"]
Distances = Int[np.ndarray, "query key"]


# --- what is drawn -----------------------------------------------------------------------------------------


def _depth(rng: Generator, edge: bool, most: int = 40) -> int:
    return int(rng.integers(1, 3) if edge and rng.random() < 0.5 else rng.integers(1, most + 1))


def _tokens(rng: Generator, edge: bool) -> int:
    return 2 if edge and rng.random() < 0.4 else int(rng.integers(2, 9))


def _spiked(rng: Generator, allowed: Bool[np.ndarray, "query key"]) -> Matrix:
    """The floor everywhere and the rest of each row on one key: itself, the first or last seen, or any."""
    seen = allowed.sum(axis=1)
    floor = float(rng.choice([1e-12, 1e-3, 0.5, 1.0])) / seen.max()
    keys = [np.flatnonzero(row) for row in allowed]
    way = rng.integers(4)
    target = [(i, row[0], row[-1], rng.choice(row))[way] for i, row in enumerate(keys)]
    kernel = floor * allowed
    kernel[np.arange(len(seen)), target] += 1.0 - floor * seen
    return kernel


def _kernel(rng: Generator, mask: Mask, tokens: int, edge: bool) -> Matrix:
    """A kernel with weight on every admitted pair: from random logits, or of an architecture of this package."""
    if edge and rng.random() < 0.6:
        return _spiked(rng, mask.allowed(tokens))
    if rng.random() < 0.3:
        heads = int(rng.integers(1, 5))
        positional = [NoPE(), ALiBi(), Decay(float(rng.exponential())), RoPE(((2.0,),), frequencies=(0.3,))]
        content = ConstantDiagonal((float(rng.normal()),), first_column=(float(rng.normal()),))
        return layer_kernel(Layer(heads, mask, positional[rng.integers(4)], content), tokens)
    logits = rng.normal(0, rng.choice([0.0, 0.5, 3.0]), (tokens, tokens))
    return masked_softmax(logits, mask.allowed(tokens))


def _draw_kernels(rng: Generator, edge: bool, kind: str) -> Instance:
    """Up to three kernels, used in turn; `size` is the width of the window or the length of the prefix."""
    tokens = _tokens(rng, edge)
    least = 2 if kind == "window" else 1
    most = tokens + 2 if kind == "window" else tokens
    size = int(rng.choice([least, max(least, tokens)]) if edge else rng.integers(least, most + 1))
    kernels = [_kernel(rng, _mask(kind, size), tokens, edge) for _ in range(rng.integers(1, 4))]
    return {"kernels": np.stack(kernels), "size": size, "depth": _depth(rng, edge)}


def _mask(kind: str, size: int) -> Mask:
    masks: dict[str, Mask] = {
        "causal": Causal(),
        "window": SlidingWindow(int(size)),
        "prefix": Prefix(int(size)),
        "full": Full(),
    }
    return masks[kind]


def _rollouts(instance: Instance) -> tuple[Stack, Stack]:
    """The kernels of all layers, and P⁽ᵗ⁾ for every t."""
    given = np.asarray(instance["kernels"], dtype=float)
    kernels = given[np.arange(instance["depth"]) % len(given)]
    product, products = np.eye(given.shape[-1]), []
    for kernel in kernels:
        product = kernel @ product
        products.append(product)
    return kernels, np.stack(products)


def _floor(instance: Instance, kind: str) -> float:
    kernels = np.asarray(instance["kernels"], dtype=float)
    allowed = _mask(kind, instance["size"]).allowed(kernels.shape[-1])
    return min(smallest_admitted(kernel, allowed) for kernel in kernels)


def _below(value: Any, log_bound: Any) -> float:
    """Relative slack of value ≤ bound, the least over all."""
    with np.errstate(divide="ignore"):
        return _log_below(np.log(value), log_bound)


def _log_below(log_value: Any, log_bound: Any) -> float:
    return float(np.min(-np.expm1(np.asarray(log_value) - np.asarray(log_bound)), initial=1.0)) + 0.0


# --- Lemma A.1 ---------------------------------------------------------------------------------------------


def _draw_network(rng: Generator, edge: bool) -> Instance:
    """Value matrices with bounded products: rotations, scaled up and down again, sometimes singular."""
    tokens, dim, depth = _tokens(rng, edge), int(rng.integers(1, 4)), int(rng.integers(1, 9))
    scales = rng.choice([0.5, 1.0, 2.0], depth + 1) if edge else rng.uniform(0.5, 1.0, depth + 1)
    values = np.linalg.qr(rng.normal(size=(depth, dim, dim)))[0] * (scales[1:] / scales[:-1])[:, None, None]
    if rng.random() < 0.2:
        values[rng.integers(depth)] *= 0.0
    hidden = rng.normal(size=(tokens, dim)) / np.sqrt(dim)
    weights = rng.normal(size=(2, depth, dim, dim)) * rng.choice([0.0, 0.3, 1.0]) / np.sqrt(dim)
    if edge and rng.random() < 0.5:  # one key opposite to all others: sharp
        hidden = np.ones((tokens, 1))
        hidden[0] = -1.0
        weights, values = np.full((2, 1, 1, 1), rng.choice([0.0, 1.0, 3.0])), np.ones((1, 1, 1))
    kind = str(rng.choice(["causal", "window", "prefix", "full"]))
    return {
        "hidden": hidden,
        "queries": weights[0],
        "keys": weights[1],
        "values": values,
        "kind": kind,
        "size": int(rng.integers(1, tokens + 1)),
    }


def _slack_floor(instance: Instance) -> float:
    X = np.asarray(instance["hidden"], dtype=float)
    weights = [np.asarray(instance[key], dtype=float) for key in ("queries", "keys", "values")]
    allowed = _mask(instance["kind"], instance["size"]).allowed(len(X))
    C = max(np.linalg.norm(one, 2, axis=(1, 2)).max() for one in weights[:2])
    product, C_V = np.eye(X.shape[1]), 1.0
    for value in weights[2]:
        product = product @ value
        C_V = max(C_V, float(np.linalg.norm(product, 2)))
    start = float(np.linalg.norm(X, axis=1).max())
    bound = limits.logit_bound(start, float(C), C_V)
    log_floor = limits.log_attention_floor(int(allowed.sum(axis=1).max()), bound)
    slack = 1.0
    for query, key, value in zip(*weights, strict=True):
        log_kernel = _log_softmax((X @ query) @ (X @ key).T, allowed)
        slack = min(slack, _log_below(log_floor, log_kernel[allowed]))
        X = np.exp(log_kernel) @ X @ value
        slack = min(slack, 1 - float(np.linalg.norm(X, axis=1).max()) / (start * C_V))
    return slack


def _log_softmax(logits: Float[np.ndarray, "*layer query key"], allowed: Any) -> Any:
    masked = np.where(allowed, logits, -np.inf)
    return masked - np.asarray(logsumexp(masked, axis=-1, keepdims=True))


# --- Theorems 4.1 to 4.3: collapse -------------------------------------------------------------------------


def _slack_causal(instance: Instance) -> float:
    """C(1 − (j − 1)ε)^t with C = 1 − ε, Nε ≤ 1, and what the first token has not drawn yet."""
    _, P = _rollouts(instance)
    floor, tokens = _floor(instance, "causal"), P.shape[-1]
    t, j = np.arange(len(P))[:, None], np.arange(1, tokens)
    printed = math.log1p(-floor) + t * np.log1p(-j * floor)
    missing = limits.log_collapse_bound(np.full(len(P), floor), 1)
    return min(
        _below(P[:, :, 1:].max(axis=1), printed),
        _below(P[:, :, 1:].sum(axis=2).max(axis=1), missing),
        1 - tokens * floor,
    )


def _slack_joined(instance: Instance) -> float:
    """Lemma B.1: every product of h consecutive kernels is at least εʰ where j ≤ i, and at most 1."""
    kernels, floor, slack = np.asarray(instance["kernels"], float), _floor(instance, "window"), 1.0
    tokens = kernels.shape[-1]
    together = limits.hops(tokens, instance["size"])
    for first in range(len(kernels)):
        product = np.eye(tokens)
        for step in range(together):
            product = kernels[(first + step) % len(kernels)] @ product
        least = float(product[np.tri(tokens, dtype=bool)].min())
        slack = min(slack, 1 - floor**together / least if least else -math.inf, 1 - float(product.max()))
    return slack


def _slack_window(instance: Instance) -> float:
    """(1 − εʰ)(1 − (j − 1)εʰ)^(t/2h), Nεʰ ≤ 1, and the blocks' bound on what the first has not drawn."""
    _, P = _rollouts(instance)
    floor, tokens, width = _floor(instance, "window"), P.shape[-1], instance["size"]
    h = limits.hops(tokens, width)
    t, j = np.arange(len(P))[:, None], np.arange(1, tokens)
    printed = math.log1p(-(floor**h)) + t / (2 * h) * np.log1p(-j * floor**h)
    missing = limits.log_window_bound(floor, 1, tokens, width, len(P))
    return min(
        _below(P[:, :, 1:].max(axis=1), printed),
        _below(P[:, :, 1:].sum(axis=2).max(axis=1), missing),
        1 - tokens * floor**h,
    )


def _slack_few_layers(instance: Instance, amended: bool) -> float:
    """Appendix B.2 for t < h: (1 − ε)^((t+1)/(w−1)); amended 1 − ε, and the blocks' bound at every t."""
    _, P = _rollouts(instance)
    floor, tokens, width = _floor(instance, "window"), P.shape[-1], instance["size"]
    largest = P[:, :, 1:].max(axis=1)
    if not amended:
        few = largest[: limits.hops(tokens, width)]
        t = np.arange(len(few))[:, None]
        return _below(few, (t + 1) / (width - 1) * math.log1p(-floor))
    suffix = np.flip(np.cumsum(np.flip(P, -1), axis=-1), -1).max(axis=1)
    blocks = [limits.log_window_bound(floor, j, tokens, width, len(P)) for j in range(1, tokens)]
    return min(_below(largest, math.log1p(-floor)), _below(suffix[:, 1:], np.stack(blocks, axis=1)))


def _slack_prefix(instance: Instance) -> float:
    """C(1 − (j − K)ε)^t with C = 1 − ε for j > K, κ = ε, and what the prefix has not drawn yet."""
    kernels, P = _rollouts(instance)
    floor, tokens, length = _floor(instance, "prefix"), P.shape[-1], instance["size"]
    t, j = np.arange(len(P))[:, None], np.arange(length, tokens)
    printed = math.log1p(-floor) + t * np.log1p(-(j + 1 - length) * floor)
    missing = limits.log_collapse_bound(np.full(len(P), floor), length) if length < tokens else 0.0
    share = limits.prefix_share(kernels[0], length)
    return min(
        _below(P[:, :, length:].max(axis=1), printed),
        _below(P[:, :, length:].sum(axis=2).max(axis=1), missing),
        float((1 - share / P[:, :, :length]).min()),
        float(1 - floor / share.min()),
        1 - tokens * floor,
    )


def _slack_ratio(instance: Instance, amended: bool) -> float:
    """P_ik₁/P_ik₂ against the least A_lk₁/A_lk₂ of the bottom layer, over l ≤ min(i, K) or max(i, K)."""
    kernels, P = _rollouts(instance)
    length, slack = instance["size"], 1.0
    bottom = kernels[0][:, :length, None] / kernels[0][:, None, :length]
    for i in range(P.shape[-1]):
        last = max(i + 1, length) if amended else min(i + 1, length)
        ratio = P[1:, i, :length, None] / P[1:, i, None, :length]
        slack = min(slack, float(np.min(1 - bottom[:last].min(axis=0) / ratio, initial=1.0)))
    return slack


# --- Lemma 4.4, Theorem 4.5: the decay mask ----------------------------------------------------------------


def _draw_decay(rng: Generator, edge: bool, positive: bool = True) -> Instance:
    tokens, depth = _tokens(rng, edge), _depth(rng, edge, 12)
    spread = float(rng.choice([0.0, 1e-6, 50.0]) if edge else rng.choice([0.3, 2.0]))
    content = rng.uniform(-0.5, 0.5, (depth, tokens, tokens))
    if edge and rng.random() < 0.5:  # one key as high as can be, all others as low
        content = np.where(rng.integers(tokens, size=(depth, tokens, 1)) == np.arange(tokens), 0.5, -0.5)
    rates = [1e-9, 1e-3, 10.0, 500.0] + ([] if positive else [0.0])
    rate = float(rng.choice(rates) if edge else rng.exponential())
    return {"content": spread * content, "rate": rate}


def _decay(instance: Instance) -> tuple[Stack, float, Distances]:
    """ln A of every layer, the range of admitted content logits, and the distances; −inf outside the mask."""
    content = np.asarray(instance["content"], dtype=float)
    place = np.arange(content.shape[-1])
    distance = place[:, None] - place
    log_kernels = _log_softmax(content - instance["rate"] * distance, distance >= 0)
    seen = content[:, distance >= 0]
    return log_kernels, float(seen.max() - seen.min()), distance


def _printed_decay(instance: Instance, span: float) -> limits.Envelope:
    """C_min and C_max as Appendix D prints them."""
    m = float(instance["rate"])
    low, high = math.log(-math.expm1(-m)) - span, span - math.log1p(math.exp(-m))
    return limits.Envelope(low, high, m, m, power=1)


def _slack_decay(instance: Instance, amended: bool, layers: bool) -> float:
    """Every weight (`layers`) or every rollout against its envelope."""
    log_kernels, span, distance = _decay(instance)
    tokens = len(distance)
    envelope = (
        limits.decay_envelope(instance["rate"], span, tokens) if amended else _printed_decay(instance, span)
    )
    return _inside(envelope, log_kernels if layers else _log_rollouts(log_kernels), distance, layers)


def _inside(envelope: limits.Envelope, log_values: Stack, distance: Distances, layers: bool) -> float:
    lower, slack = distance >= 0, 1.0
    for before, values in enumerate(log_values):
        low, high = envelope.log_bounds(distance[lower], 1 if layers else before + 1)
        slack = min(slack, _log_below(low, values[lower]), _log_below(values[lower], high))
    return slack


def _log_rollouts(log_kernels: Stack) -> Stack:
    """ln P⁽ᵗ⁾ for every t: the product of the layers, each sum taken over logarithms."""
    product, products = log_kernels[0], [log_kernels[0]]
    for log_kernel in log_kernels[1:]:
        product = np.logaddexp.reduce(log_kernel[:, :, None] + product[None], axis=1)
        products.append(product)
    return np.stack(products)


def _draw_distance(rng: Generator, edge: bool) -> Instance:
    depth = int(rng.choice([1, 2, 3]) if edge else rng.integers(2, 200))
    if edge and depth > 1 and rng.random() < 0.5:  # x* a whole number: two distances tie
        return {"depth": depth, "rate": math.log1p((depth - 1) / int(rng.integers(1, 20)))}
    return {"depth": depth, "rate": float(rng.choice([5e-3, 1.0, 30.0]) if edge else rng.uniform(0.01, 3))}


def _slack_peak(instance: Instance) -> float:
    """L, with Γ for the factorials, at x* against whole and real distances around; and that L rises at all."""
    depth, rate = instance["depth"], instance["rate"]
    star, t = limits.critical_distance(depth, rate), depth - 1

    def height(x: Any) -> Any:
        return loggamma(t + x + 1) - loggamma(x + 1) - loggamma(t + 1) - x * rate

    around = np.concatenate([np.arange(math.ceil(star) + 3.0), np.linspace(max(0.0, star - 1), star + 1, 41)])
    rises = (math.log1p(t) - rate) if t else -rate
    return min(float(height(star) - height(around).max()), rises)


def _heights(depth: int, farthest: int, falls: Float[np.ndarray, "distance"]) -> Any:
    """L at 0 … farthest, the binomials exact."""
    return np.array([math.log(math.comb(depth - 1 + x, x)) for x in range(farthest + 1)]) - falls


def _slack_modal(instance: Instance) -> float:
    """⌊x*⌋ is highest among whole distances, the real highest point is where it should be, x* moves rightly."""
    depth, rate = instance["depth"], instance["rate"]
    star, best = limits.critical_distance(depth, rate), limits.modal_distance(depth, rate)
    far = np.arange(2 * best + 6)
    heights = _heights(depth, int(far[-1]), rate * far)
    top = float(heights[best] - heights.max())

    def slope(x: float) -> float:
        return float((1.0 / (x + np.arange(1, depth))).sum()) - rate

    left = slope(star - 1) if star > 1 else math.inf
    right = -slope(max(star - 0.5, 0.0)) if star > 0.5 else math.inf
    deeper, steeper = limits.critical_distance(depth + 1, rate), limits.critical_distance(depth, 1.1 * rate)
    return min(top, left, right, deeper - star, star - steeper)


# --- Lemma 4.6, Theorem 4.7, Appendix I: RoPE --------------------------------------------------------------


def _draw_pair(rng: Generator, edge: bool, layers: bool) -> Instance:
    """d = 2, |φ| ≤ δθ and (δ + N − 1)θ ≤ π, at the boundary where `edge`."""
    tokens, depth = _tokens(rng, edge), 1 if layers else _depth(rng, edge, 10)
    turn = np.pi if edge else rng.uniform(0.001, np.pi)
    delta = float(rng.choice([1e-9, 1.0, tokens]) if edge else rng.exponential())
    angle = turn / (delta + tokens - 1)
    sides = (
        rng.choice([-0.5, 0.5], (2, depth, tokens)) if edge else rng.uniform(-0.5, 0.5, (2, depth, tokens))
    )
    norms = np.exp(rng.normal(0, rng.choice([0.0, 0.3, 1.0]), (2, depth, tokens)))
    norms *= rng.choice([0.05, 1.0, 4.0])
    turned = sides * delta * angle
    vectors = norms[..., None] * np.stack([np.cos(turned), np.sin(turned)], axis=-1)
    return {"queries": vectors[0], "keys": vectors[1], "angles": np.array([angle]), "delta": delta}


def _draw_pairs(rng: Generator, edge: bool, layers: bool) -> Instance:
    """d = 4 or 6: queries and keys near one direction, the angles as large as Lemma I.1 lets them be at `edge`."""
    tokens, pairs = _tokens(rng, edge), int(rng.integers(2, 4))
    depth = 1 if layers else _depth(rng, edge, 8)
    away = rng.choice([0.0, 1e-6, 0.05] if edge else [0.01, 0.1])
    base = rng.normal(size=(pairs, 2))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    vectors = base + away * rng.normal(size=(2, depth, tokens, pairs, 2))
    vectors = vectors.reshape(2, depth, tokens, 2 * pairs)
    vectors *= np.exp(rng.normal(0, rng.choice([0.0, 1.0]), (2, depth, tokens, 1))) * rng.choice([0.2, 2.0])
    apart, beta = _apart(vectors[0], vectors[1]), _beta(vectors[0]) * _beta(vectors[1])
    deviation = np.pi / 2 / np.sqrt(beta) * apart
    if deviation > 2.0:  # too far apart for the lemma: nearer
        vectors = np.broadcast_to(np.tile(base.reshape(-1), (2, depth, tokens, 1)), vectors.shape).copy()
        apart, deviation = 0.0, 0.0
    ratios = (
        np.sort(rng.uniform(1, 5, pairs))
        if not edge
        else np.array([1.0, *rng.choice([1.0, 100.0], pairs - 1)])
    )
    ratios /= ratios[0]
    angle = (np.pi - deviation) * (1.0 if edge else rng.uniform(0.01, 1)) / (tokens - 1) / ratios.max()
    delta = float(apart / angle) * (1 + 1e-12) + 1e-12
    return {"queries": vectors[0], "keys": vectors[1], "angles": angle * np.sort(ratios), "delta": delta}


def _angle(u: Any, v: Any) -> Any:
    """The angle between vectors along the last axis, accurate where it is small."""
    u, v = (one / np.linalg.norm(one, axis=-1, keepdims=True) for one in (u, v))
    return 2 * np.arctan2(np.linalg.norm(u - v, axis=-1), np.linalg.norm(u + v, axis=-1))


def _apart(queries: Any, keys: Any) -> float:
    return float(_angle(queries[..., :, None, :], keys[..., None, :, :]).max())


def _segments(vectors: Any) -> Any:
    return vectors.reshape(*vectors.shape[:-1], -1, 2)


def _beta(vectors: Any) -> float:
    """β of A3: the least share of a segment in a vector's norm."""
    parts = np.linalg.norm(_segments(vectors), axis=-1)
    return float((parts / np.linalg.norm(vectors, axis=-1)[..., None]).min())


def _rope(instance: Instance) -> tuple[Stack, Any, Float[np.ndarray, "pair"], float]:
    """ln A of every layer from turned queries and keys, |q_l||k_l| of admitted pairs, θ_l, bound on |φ_l|."""
    queries, keys = (_segments(np.asarray(instance[key], dtype=float)) for key in ("queries", "keys"))
    angles, tokens = np.asarray(instance["angles"], dtype=float), queries.shape[1]
    turn = np.arange(tokens)[:, None] * angles
    cos, sin = np.cos(turn), np.sin(turn)
    turned = [
        np.stack([cos * v[..., 0] - sin * v[..., 1], sin * v[..., 0] + cos * v[..., 1]], axis=-1)
        for v in (queries, keys)
    ]
    logits = np.einsum("tilc,tjlc->tij", *turned)
    allowed = np.tri(tokens, dtype=bool)
    norms = [np.linalg.norm(v, axis=-1) for v in (queries, keys)]
    amplitudes = (norms[0][:, :, None] * norms[1][:, None])[:, allowed]
    stretch = 1.0
    if len(angles) > 1:  # Lemma I.3
        stretch = (
            np.pi
            / 2
            / math.sqrt(_beta(np.asarray(instance["queries"])) * _beta(np.asarray(instance["keys"])))
        )
    return (
        _log_softmax(logits, allowed),
        amplitudes,
        angles,
        stretch * instance["delta"] * float(angles.min()),
    )


def _rope_envelope(instance: Instance) -> tuple[Stack, limits.Envelope]:
    log_kernels, amplitudes, angles, deviation = _rope(instance)
    every = (0, 1)
    tokens = log_kernels.shape[-1]
    return log_kernels, limits.rope_envelope(
        amplitudes.min(axis=every), amplitudes.max(axis=every), angles, deviation, tokens
    )


def _distances(tokens: int) -> Distances:
    return np.subtract.outer(np.arange(tokens), np.arange(tokens))


def _slack_rope(instance: Instance, amended: bool) -> float:
    """Amended envelope, or the printed one: least·(1 − δ²θ² − d²θ²) below, largest·(1 − (d²/2 − δ²)θ²/c) above."""
    log_kernels, envelope = _rope_envelope(instance)
    tokens = log_kernels.shape[-1]
    if not amended:
        _, amplitudes, angles, deviation = _rope(instance)
        least, largest, pairs = float(amplitudes.min()), float(amplitudes.max()), len(angles)
        reach, shift = float((angles**2).sum()), deviation**2
        envelope = limits.Envelope(
            log_lower=pairs * (least * (1 - shift) - largest) - math.log(tokens),
            log_upper=pairs * (largest * (1 + 2 * shift / np.pi**2) + largest),
            lower_rate=least * reach,
            upper_rate=largest * reach / np.pi**2,
            power=2,
        )
    return _inside(envelope, log_kernels, _distances(tokens), layers=True)


def _slack_rope_rollout(instance: Instance, amended: bool) -> float:
    """The envelope of walks; as printed, e^(−½c′d²θ²) whatever the number of steps."""
    log_kernels, envelope = _rope_envelope(instance)
    distance, products = _distances(log_kernels.shape[-1]), _log_rollouts(log_kernels)
    if amended:
        return _inside(envelope, products, distance, layers=False)
    lower, slack = distance >= 0, 1.0
    reach = distance[lower].astype(float) ** 2
    for before, values in enumerate(products):
        low, _ = envelope.log_bounds(distance[lower], before + 1)
        high = limits.log_walks(before + 1, distance[lower]) + (before + 1) * envelope.log_upper
        high = high - envelope.upper_rate / 2 * reach
        slack = min(slack, _log_below(low, values[lower]), _log_below(values[lower], high))
    return slack


def _draw_root(rng: Generator, edge: bool) -> Instance:
    depth = int(rng.choice([2, 3]) if edge else rng.integers(2, 100))
    return {
        "depth": depth,
        "angle": float(rng.choice([0.01, 0.5, 3.0]) if edge else 10 ** rng.uniform(-2, 0)),
    }


def _slack_printed_root(instance: Instance) -> float:
    """Minus the relative slope of L (Stirling) at the root of Appendix H's ln(1 + t/x) = 2θx."""
    t, angle = instance["depth"] - 1, instance["angle"]
    # that equation is the right one for √θ in place of θ
    x = limits.rope_critical_distance(t + 1, math.sqrt(angle))
    rise, fall = math.log1p(t / x), 2 * angle**2 * x
    return -abs(rise - fall) / max(rise, fall)


def _slack_root(instance: Instance) -> float:
    """The right root; the whole distance that is highest; x* grows with depth and shrinks with the angle."""
    depth, angle = instance["depth"], instance["angle"]
    x, best = limits.rope_critical_distance(depth, angle), limits.rope_modal_distance(depth, angle)
    rise = math.log1p((depth - 1) / x)
    far = np.arange(best + 4 + best // 4)
    heights = _heights(depth, int(far[-1]), (angle * far) ** 2)
    by_depth, by_angle = limits.critical_distance_slopes(depth, angle)
    return min(
        -abs(1 - 2 * angle**2 * x / rise),
        float(heights[best] - heights.max()),
        best - (x - 1),
        x + 0.5 - best,
        limits.rope_critical_distance(depth + 1, angle) / x - 1,
        1 - limits.rope_critical_distance(depth, 1.01 * angle) / x,
        by_depth,
        -by_angle,
    )


def _draw_vectors(rng: Generator, edge: bool) -> Instance:
    pairs = int(rng.integers(1, 5))
    query = rng.normal(size=2 * pairs)
    key = (
        query + rng.choice([0.0, 1e-7, 10.0]) * rng.normal(size=2 * pairs)
        if edge
        else rng.normal(size=2 * pairs)
    )
    return {"query": query, "key": -key if edge and rng.random() < 0.3 else key}


def _slack_segments(instance: Instance) -> float:
    query, key = (np.asarray(instance[name], dtype=float) for name in ("query", "key"))
    bound = np.pi / 2 / math.sqrt(_beta(query) * _beta(key)) * float(_angle(query, key))
    largest = float(_angle(_segments(query), _segments(key)).max())
    return 1 - largest / bound if bound else -largest


# --- the statements ----------------------------------------------------------------------------------------


def _kernels(kind: str) -> Callable[[Generator, bool], Instance]:
    return lambda rng, edge: _draw_kernels(rng, edge, kind)


def _pairs(many: bool, layers: bool) -> Callable[[Generator, bool], Instance]:
    draw = _draw_pairs if many else _draw_pair
    return lambda rng, edge: draw(rng, edge, layers)


def _crossed(segments: int) -> Instance:
    """Lemma 4.6's counterexample, in each of so many pairs of dimensions: half a turn between two tokens."""
    queries = np.tile([[0.02, 0.0], [1.0, 0.0]], segments)
    keys = np.tile([[5.0, 0.0], [5.0, 0.0]], segments)
    return {
        "queries": [queries.tolist()],
        "keys": [keys.tolist()],
        "angles": [math.pi - 1e-6] * segments,
        "delta": 1e-9,
    }


def _stepping(segments: int) -> Instance:
    """Theorem 4.7's: half a turn over the text in as many equal steps as layers, with large equal norms."""
    tokens, norm = 21, math.sqrt(200.0 / segments)
    vectors = np.tile([norm, 0.0], (20, tokens, segments)).tolist()
    return {
        "queries": vectors,
        "keys": vectors,
        "angles": [(math.pi - 1e-6) / (tokens - 1)] * segments,
        "delta": 1e-9,
    }


_FLAT = {"content": [[[0.0, 0.0], [0.0, 0.0]]], "rate": 1.0}

WU: tuple[Statement, ...] = (
    Statement(
        "wu-4.1",
        "Theorem 4.1",
        SOURCE,
        Reading(
            "causal: P_ij ≤ (1 − ε)(1 − (j − 1)ε)^t and 1 − P_i1 ≤ (1 − ε)^(t+1), ε the smallest admitted weight",
            _kernels("causal"),
            _slack_causal,
        ),
        note="Holds with the proof's constants; the sharper (1 − (j − 1)ε)^(t+1) holds for all positions ≥ j "
        "together. Nε < 1 wants an ε below the smallest weight where attention is uniform (there Nε = 1).",
    ),
    Statement(
        "wu-4.2",
        "Theorem 4.2",
        SOURCE,
        Reading(
            "window: P_ij ≤ (1 − εʰ)(1 − (j − 1)εʰ)^(t/2h), h = ⌈(N − 1)/(w − 1)⌉, ε the smallest admitted weight",
            _kernels("window"),
            _slack_window,
        ),
        note="Holds, but not by its proof (see Appendix B.2). (1 − (j − 1)εʰ)^⌊(t+1)/h⌋ holds for all positions "
        "≥ j together, without the ½ and without N − 1 divisible by w − 1. The rate is far from sharp: every "
        "layer sends at least ε of a token's mass back, so 1 − P_i1 is at most (1 − ε)^t times a polynomial "
        "of degree below N: N/w sets when that begins, not its rate.",
    ),
    Statement(
        "wu-4.3",
        "Theorem 4.3",
        SOURCE,
        Reading(
            "prefix: P_ij ≤ (1 − ε)(1 − (j − K)ε)^t for j > K, P_ik ≥ κ = ε for k ≤ K; ε the smallest weight",
            _kernels("prefix"),
            _slack_prefix,
        ),
        note="Holds, κ at every depth and not only in the limit: P_ik is an average of column k of the bottom "
        "kernel, which is at least ε. (1 − (j − 1)ε)^(t+1) is sharper. The proof's ratio fails (see Appendix C).",
    ),
    Statement(
        "wu-4.4",
        "Lemma 4.4",
        SOURCE,
        Reading(
            "C_min = (1 − e^−m)e^(I_min−I_max), C_max = e^(I_max−I_min)/(1 + e^−m), as Appendix D prints them",
            _draw_decay,
            lambda instance: _slack_decay(instance, amended=False, layers=True),
        ),
        Reading(
            "C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)",
            lambda rng, edge: _draw_decay(rng, edge, positive=False),
            lambda instance: _slack_decay(instance, amended=True, layers=True),
        ),
        note="The proof sums over k = 0 … i where the row has k = 1 … i: row 1 has one key, A_11 = 1, and the "
        "factor 1/(1 + e^−m) is not there. e^(I_max−I_min) holds in all rows, the printed C_max from row 2 "
        "on. The printed C_min holds, but is 0 at m = 0, where the amended one is e^(I_min−I_max)/N.",
        witness=_FLAT,
    ),
    Statement(
        "wu-4.5",
        "Theorem 4.5",
        SOURCE,
        Reading(
            "C_min^(t+1) ≤ P_ij/(binom(t+i−j, i−j)·e^(−(i−j)m)) ≤ C_max^(t+1) with Appendix D's constants",
            _draw_decay,
            lambda instance: _slack_decay(instance, amended=False, layers=False),
        ),
        Reading(
            "the same with C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)",
            lambda rng, edge: _draw_decay(rng, edge, positive=False),
            lambda instance: _slack_decay(instance, amended=True, layers=False),
        ),
        note="The Θ stands; the constants of its proof inherit Lemma 4.4's C_max, which fails wherever walks pass "
        "the first row. As they lie (C_max/C_min)^(t+1) apart, the Θ alone does not place the peak of P.",
        witness=_FLAT,
    ),
    Statement(
        "wu-4.5-distance",
        "Theorem 4.5, critical distance",
        SOURCE,
        Reading(
            "L(x) = log(binom(t+x, x)e^(−xm)), Γ for factorials, is not monotone and is highest at t/(e^m − 1)",
            _draw_distance,
            _slack_peak,
        ),
        Reading(
            "highest at ⌊x*⌋ over whole x, in (x* − 1, x* − ½] or at 0 over real x; x* grows with t, falls with m",
            _draw_distance,
            _slack_modal,
        ),
        note="x* = t/(e^m − 1) is exact only for Stirling's L without its ½·log terms. L itself peaks ½ to 1 "
        "lower, and falls from the start where 1 + ½ + … + 1/t ≤ m (over whole distances where t < e^m − 1). "
        "Over whole distances the peak is exactly ⌊x*⌋, and without content, far from the first token, that "
        "is the peak of P too (a negative binomial distribution).",
        witness={"depth": 2, "rate": 1.0},
    ),
    Statement(
        "wu-4.6",
        "Lemma 4.6",
        SOURCE,
        Reading(
            "c = min|q||k|, c′ = max|q||k|/π² (cos x ≤ 1 − 2x²/π² for |x| ≤ π), as Appendix F ends",
            _pairs(many=False, layers=True),
            lambda instance: _slack_rope(instance, amended=False),
        ),
        Reading(
            "c = a = max|q||k|, c′ = a/π², b = min|q||k|, s = δθ: C_min = e^(b − a − as²)/N and "
            "C_max = e^(a − b + 2as²/π² + ½as²)",
            _pairs(many=False, layers=True),
            lambda instance: _slack_rope(instance, amended=True),
        ),
        note="Beyond a quarter turn the cosine is negative, and the smallest |q||k| no longer bounds the score "
        "from below: c must be the largest. Also |ψ| ≥ |i − j − δ|θ needs i − j ≥ δ (what follows from "
        "it holds all the same), and Y_max, Y_min stand the wrong way round.",
        witness=_crossed(1),
    ),
    Statement(
        "wu-4.7",
        "Theorem 4.7",
        SOURCE,
        Reading(
            "C_min^(t+1)·e^(−cx²) ≤ P_ij/binom(t+i−j, i−j) ≤ C_max^(t+1)·e^(−½c′x²) with x = (i−j)θ "
            "(Eqs. 15, 16) and the constants of Lemma 4.6 as amended",
            _pairs(many=False, layers=False),
            lambda instance: _slack_rope_rollout(instance, amended=False),
        ),
        Reading(
            "the same with e^(−c′x²/(t+1)) above",
            _pairs(many=False, layers=False),
            lambda instance: _slack_rope_rollout(instance, amended=True),
        ),
        note="Eq. (16): t + 1 steps over a distance x have Σ step² ≥ x²/(t + 1), not x²/2. What holds has c below "
        "and c′/(t + 1) above, so not one c on both sides. Eq. (12) has t factors where P has t + 1, and "
        "binom(t+i−j, i−j) counts walks of t + 1 steps, not of t.",
        witness=_stepping(1),
    ),
    Statement(
        "wu-4.7-distance",
        "Theorem 4.7, critical distance (Appendix H)",
        SOURCE,
        Reading(
            "the critical point of L solves log((t+x)/x) = 2θx, as Appendix H prints it",
            _draw_root,
            _slack_printed_root,
        ),
        Reading(
            "it solves log((t+x)/x) = 2θ²x, grows with t, falls with θ; whole x: in (x* − 1, x* + ½)",
            _draw_root,
            _slack_root,
        ),
        note="The derivative of θ²x² is 2θ²x. With it ∂x/∂t = 1/(2θ²(x+t) + t/x) and ∂x/∂θ = −4θx/(2θ² + "
        "t/(x(x+t))): both signs survive. But x* is the peak of L, not of P: where θ√t is small it grows like "
        "√t, while the peak of a RoPE rollout moves by the mean attended distance in every layer, like t.",
        witness={"depth": 5, "angle": 0.1},
    ),
    Statement(
        "wu-A.1",
        "Lemma A.1",
        SOURCE,
        Reading(
            "A_ij ≥ 1/(1 + (k − 1)e^(2M)) with M = (max‖X_i⁽⁰⁾‖·C_V·C)² and k the most keys a query sees; "
            "‖X_i⁽ᵗ⁾‖ ≤ max‖X_i⁽⁰⁾‖·C_V",
            _draw_network,
            _slack_floor,
        ),
        note="Holds, and the floor is attained. The C of Eq. (6) is not that of A1: it is max‖X_i‖·C_V·C. "
        "Eq. (3)'s second line prints R_i for R_(i−j).",
    ),
    Statement(
        "wu-B.1",
        "Lemma B.1",
        SOURCE,
        Reading(
            "window: εʰ ≤ (A⁽ᵗ⁺ʰ⁻¹⁾⋯A⁽ᵗ⁾)_ij ≤ 1 for j ≤ i, h = ⌈(N − 1)/(w − 1)⌉",
            _kernels("window"),
            _slack_joined,
        ),
        note="Holds with c = εʰ. The proof's upper index N/w − 1 is (N − 1)/(w − 1) − 1.",
    ),
    Statement(
        "wu-B.2",
        "Theorem 4.2, proof (Appendix B.2)",
        SOURCE,
        Reading(
            "P_ij ≤ (1 − ε)^((t+1)/(w−1)) for t < h and j > 1",
            _kernels("window"),
            lambda instance: _slack_few_layers(instance, amended=False),
        ),
        Reading(
            "P_ij ≤ 1 − ε at every t (so ≤ (1 − ε)^((t+1)/h) for t < h), and all positions ≥ j hold at most "
            "(1 − (j − 1)εʰ)^⌊(t+1)/h⌋ together",
            _kernels("window"),
            lambda instance: _slack_few_layers(instance, amended=True),
        ),
        note="Eqs. (8) and (9) give 1 − ε, no power of it: three tokens, w = 2, uniform weights, two layers have "
        "P_32 = ½ > ¼; (t+1)/h may be meant. For t ≥ h, P̃⁽ᵏ⁾ is (k+1)h layers and so bounds t ≥ (k+1)h − 1 "
        "only, not t = kh + r. And j = 1 must be left out of 'for all j ≤ i'.",
        witness={"kernels": [[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]], "size": 2, "depth": 2},
    ),
    Statement(
        "wu-C",
        "Theorem 4.3, proof (Appendix C)",
        SOURCE,
        Reading(
            "P_ik₁/P_ik₂ ≥ min A_lk₁⁽⁰⁾/A_lk₂⁽⁰⁾ over l ≤ min(i, K), for t > 0",
            _kernels("prefix"),
            lambda instance: _slack_ratio(instance, amended=False),
        ),
        Reading(
            "the same over l ≤ max(i, K)",
            _kernels("prefix"),
            lambda instance: _slack_ratio(instance, amended=True),
        ),
        note="The sums run to max(i, K), and so must the minimum; min(i, K) is printed. κ needs no ratio: P_ik "
        "is at least the least entry of column k in the bottom kernel.",
        witness={
            "kernels": [
                [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.01, 0.49, 0.5]],
                [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.01, 0.01, 0.98]],
            ],
            "size": 2,
            "depth": 2,
        },
    ),
    Statement(
        "wu-I.1",
        "Lemma I.1",
        SOURCE,
        Reading(
            "c = min|q_l||k_l|, c′ = max|q_l||k_l|/π², constants as in Appendix I.2, δ′ by Lemma I.3",
            _pairs(many=True, layers=True),
            lambda instance: _slack_rope(instance, amended=False),
        ),
        Reading(
            "c·Σα² = Σα_l² max|q_l||k_l|, c′ = c/π²",
            _pairs(many=True, layers=True),
            lambda instance: _slack_rope(instance, amended=True),
        ),
        note="Fails where Lemma 4.6 does and for its reason, negative cosines; holds with the largest |q_l||k_l|.",
        witness=_crossed(2),
    ),
    Statement(
        "wu-I.2",
        "Theorem I.2",
        SOURCE,
        Reading(
            "Eqs. (15) and (16) for Σ_l (i−j)²θ_l², Lemma I.1 amended",
            _pairs(many=True, layers=False),
            lambda instance: _slack_rope_rollout(instance, amended=False),
        ),
        Reading(
            "the same with c′/(t + 1) in place of c′/2",
            _pairs(many=True, layers=False),
            lambda instance: _slack_rope_rollout(instance, amended=True),
        ),
        note="A corollary of Theorem 4.7, and fails with its Eq. (16).",
        witness=_stepping(2),
    ),
    Statement(
        "wu-I.3",
        "Lemma I.3",
        SOURCE,
        Reading(
            "|φ_l| ≤ ½π·|φ|/√(β_qβ_k), β the least share of a segment in its vector's norm",
            _draw_vectors,
            _slack_segments,
        ),
        note="Holds.",
    ),
)
"""The statements of Wu et al. 2025: main text, then appendices."""
