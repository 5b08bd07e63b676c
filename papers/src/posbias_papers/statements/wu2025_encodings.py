"""Wu et al. 2025, what an encoding does: envelopes of weights and rollouts under decays and RoPE, their peaks.

Any two positive numbers are Θ of each other, so constants are tried: those that the proofs print, and those of
`posbias_papers.closed_forms.bounds`. Under a bias −b(i − j) with b convex or concave and b(0) = 0, steps
over a distance d in T layers cost between b(d) and T·b(d/T). A cosine lies between 1 − x²/2 and 1 − 2x²/π² up to
half a turn, which is where queries and keys of RoPE are drawn, at the edge exactly there. Beyond a quarter turn
it is negative: that is what the printed constants miss. L(x) is the log of the count of walks times the envelope;
where it is highest is looked for over whole distances, with exact binomials, and over real ones by the sign of
its slope.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator
from scipy.special import loggamma

from posbias.theory import critical_distances
from posbias.theory.distance import KerpleLog, KerplePower
from posbias_papers.closed_forms import bounds
from posbias_papers.closed_forms.bounds import Envelope
from posbias_papers.statements import draws
from posbias_papers.statements.margins import Stack, distances, inside, least, log_rollouts, log_softmax
from posbias_papers.statements.record import OURS, Instance, statement

Angles = Float[np.ndarray, "pair"]
FAR = 0.01
"""RoPE's decay is called far below another where its logarithm is at most this many times the other's."""


# --- Lemma 4.4 and Theorem 4.5: the decay mask, and other decays than the linear one -----------------------------


def _draw_content(rng: Generator, edge: bool) -> Stack:
    """Content of layers, at the edge one key as high as can be and all others as low."""
    tokens, depth = draws.length(rng, edge), draws.layers(rng, edge, 12)
    content = rng.uniform(-0.5, 0.5, (depth, tokens, tokens))
    if edge and rng.random() < 0.5:
        content = np.where(rng.integers(tokens, size=(depth, tokens, 1)) == np.arange(tokens), 0.5, -0.5)
    return rng.choice([0.0, 1e-6, 50.0] if edge else [0.3, 2.0]) * content


def _draw_decay(rng: Generator, edge: bool, positive: bool = True) -> Instance:
    """Content of layers, and the decay m, which may be 0 unless `positive`."""
    rates = [1e-9, 1e-3, 10.0, 500.0] + ([] if positive else [0.0])
    return {
        "content": _draw_content(rng, edge),
        "rate": float(rng.choice(rates) if edge else rng.exponential()),
    }


def _decay(content: Stack, bias: Any) -> tuple[Stack, float]:
    """ln of the kernels of content under a bias by distance, and how far admitted content ranges."""
    distance = distances(content.shape[-1])
    log_kernels = log_softmax(content - bias[np.abs(distance)], distance >= 0)
    return log_kernels, float(np.ptp(content[:, distance >= 0]))


def _slack_decay(corrected: bool, layers: bool, content: Stack, rate: float) -> float:
    """Every weight (`layers`) or every rollout against its envelope, printed in Appendix D or corrected."""
    tokens = content.shape[-1]
    log_kernels, span = _decay(content, rate * np.arange(tokens))
    low, high = math.log(-math.expm1(-rate)) - span if rate else 0.0, span - math.log1p(math.exp(-rate))
    printed = Envelope(low, high, rate, rate, power=1)
    envelope = bounds.decay_envelope(rate, span, tokens) if corrected else printed
    return inside(envelope.log_bounds, log_kernels if layers else log_rollouts(log_kernels), layers)


DECAYS = (_draw_decay, partial(_draw_decay, positive=False))
FLAT = {"content": [[[0.0, 0.0], [0.0, 0.0]]], "rate": 1.0}


@statement("wu-4.4", "Lemma 4.4", DECAYS, erratum="lemma-4.4", witness=FLAT)
def lemma_4_4(corrected: bool, **decay: Any) -> float:
    """C_min = (1 − e^−m)e^(I_min−I_max), C_max = e^(I_max−I_min)/(1 + e^−m), as Appendix D prints them

    Corrected: C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)

    Asserts: there are C_min, C_max > 0 with C_min·e^(−(i−j)m) ≤ A_ij ≤ C_max·e^(−(i−j)m) in every layer

    Shows: A_11 of two tokens, m = 1, no content
    """
    return _slack_decay(corrected, True, **decay)


@statement("wu-4.5", "Theorem 4.5", DECAYS, erratum="theorem-4.5", witness=FLAT, proof=OURS)
def theorem_4_5(corrected: bool, **decay: Any) -> float:
    """C_min^(t+1) ≤ P_ij/(binom(t+i−j, i−j)·e^(−(i−j)m)) ≤ C_max^(t+1) with Appendix D's constants

    Corrected: the same with C_min = e^(I_min−I_max)(1 − e^−m)/(1 − e^−Nm), C_max = e^(I_max−I_min)

    Asserts: P_ij = Θ(binom(t+i−j, i−j)·e^(−(i−j)m)) for all j ≤ i and t ≤ T (N and T fixed)

    Shows: P_11 of two tokens, m = 1, no content, one layer
    """
    return _slack_decay(corrected, False, **decay)


def _draw_kerple(rng: Generator, edge: bool) -> Instance:
    second, scale = rng.uniform(0.01, 2, 2) if not edge else rng.choice([1e-9, 1e-3, 1.0, 2.0, 100.0], 2)
    kind = str(rng.choice(["log", "power"]))
    second = min(second, 2.0) if kind == "power" else second
    return {"content": _draw_content(rng, edge), "kind": kind, "scale": float(scale), "second": float(second)}


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

    return inside(envelope, log_kernels if layers else log_rollouts(log_kernels), layers)


@statement("wu-4.4-kerple", "Lemma 4.4, KERPLE", _draw_kerple, **OURS)
def lemma_4_4_kerple(**kerple: Any) -> float:
    """e^(I_min−I_max)·e^(−b(i−j))/Σ_k e^(−b(k)) ≤ A_ij ≤ e^(I_max−I_min)·e^(−b(i−j)), −b KERPLE's logarithmic or
    power bias

    Holds; §3.3 says that the decay mask can be generalised so, the constants are ours.
    """
    return _slack_kerple(True, **kerple)


@statement("wu-4.5-kerple", "Theorem 4.5, KERPLE", _draw_kerple, **OURS)
def theorem_4_5_kerple(**kerple: Any) -> float:
    """C_min^(t+1)·e^(−max) ≤ P_ij/binom(t+i−j, i−j) ≤ C_max^(t+1)·e^(−min), max and min those of b(i−j) and
    (t+1)·b((i−j)/(t+1))

    Holds, with the constants of Lemma 4.4 for KERPLE. Θ with e^(−b(i−j)) alone is true for N and T fixed; but
    where b is not linear equal steps cost otherwise than one, so the envelope itself changes with depth.
    """
    return _slack_kerple(False, **kerple)


# --- the critical distance of Theorem 4.5 ----------------------------------------------------------------------


def _draw_distance(rng: Generator, edge: bool) -> Instance:
    depth = int(rng.choice([1, 2, 3]) if edge else rng.integers(2, 200))
    if edge and depth > 1 and rng.random() < 0.5:  # x* a whole number: two distances tie
        return {"depth": depth, "rate": math.log1p((depth - 1) / int(rng.integers(1, 20)))}
    return {"depth": depth, "rate": float(rng.choice([5e-3, 1.0, 30.0]) if edge else rng.uniform(0.01, 3))}


def _draw_distance_of_some(rng: Generator, edge: bool) -> Instance:
    drawn = _draw_distance(rng, edge)
    return dict(drawn) | {"depth": max(2, drawn["depth"])}


def _heights(depth: int, fall: Callable[[Any], Any], count: int) -> Any:
    """L at 0, 1, …, the binomials exact."""
    far = np.arange(count)
    return np.array([math.log(math.comb(depth - 1 + x, x)) for x in far.tolist()]) - fall(far)


@statement("wu-4.5-stirling", "Theorem 4.5, critical point", _draw_distance_of_some)
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


@statement(
    "wu-4.5-monotone",
    "Theorem 4.5, L",
    _draw_distance_of_some,
    erratum="theorem-4.5-distance",
    witness={"depth": 2, "rate": 1.0},
    strength="observation",
)
def monotone(depth: int, rate: float, corrected: bool) -> float:
    """L(x) = log(binom(t+x, x)e^(−xm)) is not a monotone function of the distance x

    Corrected: over whole distances L rises at first where t > e^m − 1, and falls throughout elsewhere

    Scope: every depth and decay
    """
    first = math.log(depth) - rate
    if not corrected:
        return least(first, first, 0.0)
    count = 2 * critical_distances.modal_distance(depth, rate) + 6
    rises = bool((np.diff(_heights(depth, lambda x: rate * x, count)) > 0).any())
    return abs(first) if rises == (depth - 1 > math.expm1(rate)) else -abs(first)


@statement(
    "wu-4.5-distance",
    "Theorem 4.5, critical distance",
    _draw_distance,
    erratum="theorem-4.5-distance",
    witness={"depth": 2, "rate": 1.0},
    **OURS,
)
def highest(depth: int, rate: float, corrected: bool) -> float:
    """L(x) = log(binom(t+x, x)e^(−xm)), Γ for factorials, is highest at t/(e^m − 1)

    Corrected: highest at ⌊x*⌋ over whole x, in (x* − 1, x* − ½] or at 0 over real x; x* grows with t, falls with m
    """
    critical, t = critical_distances.critical_distance, depth - 1
    star = critical(depth, rate)

    def height(x: Any) -> Any:
        return loggamma(t + x + 1) - loggamma(x + 1) - loggamma(t + 1) - x * rate

    def slope(x: float) -> float:
        return float((1.0 / (x + np.arange(1, depth))).sum()) - rate

    if not corrected:
        around = np.concatenate(
            [np.arange(math.ceil(star) + 3.0), np.linspace(max(0.0, star - 1), star + 1, 41)]
        )
        top, rises = height(around).max(), (math.log1p(t) - rate) if t else -rate
        return min(least(height(star) - top, top, height(star)), rises)
    best = critical_distances.modal_distance(depth, rate)
    heights = _heights(depth, lambda x: rate * x, 2 * best + 6)
    left = slope(star - 1) if star > 1 else math.inf
    right = -slope(max(star - 0.5, 0.0)) if star > 0.5 else math.inf
    moves = critical(depth + 1, rate) - star, star - critical(depth, 1.1 * rate)
    return min(float(heights[best] - heights.max()), left, right, *moves)


# --- Lemma 4.6, Theorem 4.7, Appendix I: RoPE in one and in several pairs of dimensions ----------------------


def _draw_pair(rng: Generator, edge: bool, layers: bool) -> Instance:
    """d = 2, |φ| ≤ δθ and (δ + N − 1)θ ≤ π, at the boundary where `edge`."""
    tokens, depth = draws.length(rng, edge), 1 if layers else draws.layers(rng, edge, 10)
    turn = np.pi if edge else rng.uniform(0.001, np.pi)
    delta = float(rng.choice([1e-9, 1.0, tokens]) if edge else rng.exponential())
    angle = turn / (delta + tokens - 1)
    shape = (2, depth, tokens)
    sides = rng.choice([-0.5, 0.5], shape) if edge else rng.uniform(-0.5, 0.5, shape)
    norms = np.exp(rng.normal(0, rng.choice([0.0, 0.3, 1.0]), shape)) * rng.choice([0.05, 1.0, 4.0])
    turned = sides * delta * angle
    vectors = norms[..., None] * np.stack([np.cos(turned), np.sin(turned)], axis=-1)
    return {"queries": vectors[0], "keys": vectors[1], "angles": np.array([angle]), "delta": delta}


def _draw_pairs(rng: Generator, edge: bool, layers: bool) -> Instance:
    """d = 4 or 6: queries and keys near one direction; at `edge` angles as large as Lemma I.1 allows."""
    tokens, pairs = draws.length(rng, edge), int(rng.integers(2, 4))
    shape = (2, 1 if layers else draws.layers(rng, edge, 8), tokens)
    base = rng.normal(size=(pairs, 2))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    away = rng.choice([0.0, 1e-6, 0.02] if edge else [0.01, 0.05])
    vectors = (base + away * rng.uniform(-1, 1, (*shape, pairs, 2))).reshape(*shape, 2 * pairs)
    vectors *= np.exp(rng.normal(0, rng.choice([0.0, 1.0]), (*shape, 1))) * rng.choice([0.2, 2.0])
    apart = float(_angle(vectors[0][..., :, None, :], vectors[1][..., None, :, :]).max())
    drawn = [1.0, *rng.choice([1.0, 100.0], pairs - 1)] if edge else np.sort(rng.uniform(1, 5, pairs))
    ratios = np.sort(drawn) / drawn[0]
    turn = (np.pi - _stretch(*vectors) * apart) * (1.0 if edge else rng.uniform(0.01, 1))
    angles = turn / (tokens - 1) / ratios.max() * ratios
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
    least_shares = [
        float((np.linalg.norm(_segments(v), axis=-1) / np.linalg.norm(v, axis=-1)[..., None]).min())
        for v in vectors
    ]
    return np.pi / 2 / math.sqrt(math.prod(least_shares))


def _slack_rope(
    corrected: bool, layers: bool, queries: Any, keys: Any, angles: Angles, delta: float
) -> float:
    """Weights or rollouts against their envelope; those of a rollout as printed with ½ in place of 1/(t + 1).

    Printed for weights: least·(1 − δ²θ² − d²θ²) below, largest·(1 − (d²/2 − δ²)θ²/c) above.
    """
    tokens, allowed = queries.shape[1], np.tri(queries.shape[1], dtype=bool)
    turn = np.exp(1j * np.arange(tokens)[:, None] * angles)
    query, key = (turn * (v[..., ::2] + 1j * v[..., 1::2]) for v in (queries, keys))
    logits = np.einsum("til,tjl->tij", query, key.conj()).real
    amplitudes = (np.abs(query)[:, :, None] * np.abs(key)[:, None])[:, allowed]
    deviation = (_stretch(queries, keys) if len(angles) > 1 else 1.0) * delta * float(angles.min())
    extremes = amplitudes.min(axis=(0, 1)), amplitudes.max(axis=(0, 1))
    envelope = bounds.rope_envelope(*extremes, angles, deviation, tokens)
    log_kernels = log_softmax(logits, allowed)
    if layers and not corrected:
        smallest, largest, pairs = float(amplitudes.min()), float(amplitudes.max()), len(angles)
        reach, shift = float((angles**2).sum()), deviation**2
        envelope = Envelope(
            log_lower=pairs * (smallest * (1 - shift) - largest) - math.log(tokens),
            log_upper=pairs * (largest * (1 + 2 * shift / np.pi**2) + largest),
            lower_rate=smallest * reach,
            upper_rate=largest * reach / np.pi**2,
            power=2,
        )

    def between(distance: Any, depth: int) -> tuple[Any, Any]:
        low, high = envelope.log_bounds(distance, depth)
        half = 0.0 if layers or corrected else envelope.upper_rate * (1 / depth - 1 / 2)
        return low, high + half * distance.astype(float) ** 2

    return inside(between, log_kernels if layers else log_rollouts(log_kernels), layers)


def _crossed(segments: int) -> Instance:
    """Lemma 4.6's counterexample, in each of `segments` pairs of dimensions: half a turn between two tokens."""
    queries, keys = (
        np.tile([[one, 0.0], [other, 0.0]], segments) for one, other in ((0.02, 1.0), (5.0, 5.0))
    )
    angles = [math.pi - 1e-6] * segments
    return {"queries": [queries.tolist()], "keys": [keys.tolist()], "angles": angles, "delta": 1e-9}


def _stepping(segments: int) -> Instance:
    """Theorem 4.7's: half a turn over the text in as many equal steps as layers, with large equal norms."""
    vectors = np.tile([math.sqrt(200.0 / segments), 0.0], (20, 21, segments)).tolist()
    angles = [(math.pi - 1e-6) / 20] * segments
    return {"queries": vectors, "keys": vectors, "angles": angles, "delta": 1e-9}


@statement(
    "wu-4.6",
    "Lemma 4.6",
    partial(_draw_pair, layers=True),
    erratum="lemma-4.6",
    witness=_crossed(1),
    proof=OURS,
)
def lemma_4_6(corrected: bool, **rotary: Any) -> float:
    """c = min|q||k|, c′ = max|q||k|/π² (cos x ≤ 1 − 2x²/π² for |x| ≤ π), as Appendix F ends

    Corrected: c = a = max|q||k|, c′ = a/π², b = min|q||k|, s = δθ: C_min = e^(b − a − as²)/N and C_max = e^(a −
    b + 2as²/π² + ½as²)

    Asserts: there are C_min, C_max, c, c′ > 0 with C_min·e^(−c(i−j)²θ²) ≤ A_ij ≤ C_max·e^(−c′(i−j)²θ²)

    Shows: weight of a token half a turn away
    """
    return _slack_rope(corrected, True, **rotary)


@statement(
    "wu-4.7",
    "Theorem 4.7",
    partial(_draw_pair, layers=False),
    erratum="theorem-4.7",
    witness=_stepping(1),
    proof=OURS,
)
def theorem_4_7(corrected: bool, **rotary: Any) -> float:
    """C_min^(t+1)·e^(−cx²) ≤ P_ij/binom(t+i−j, i−j) ≤ C_max^(t+1)·e^(−½c′x²) with x = (i−j)θ (Eqs. 15, 16) and the
    constants of Lemma 4.6 as amended

    Corrected: the same with e^(−c′x²/(t+1)) above

    Asserts: there is c > 0 with P_ij = Θ(binom(t+i−j, i−j)·e^(−c(i−j)²θ²)) for t ≤ T (N and T fixed: any c serves)

    Shows: P_(21)1 after 20 layers, half a turn in 20 equal steps
    """
    return _slack_rope(corrected, False, **rotary)


@statement(
    "wu-I.1",
    "Lemma I.1",
    partial(_draw_pairs, layers=True),
    erratum="lemma-i.1",
    witness=_crossed(2),
    proof=OURS,
)
def lemma_i_1(corrected: bool, **rotary: Any) -> float:
    """c = min|q_l||k_l|, c′ = max|q_l||k_l|/π², constants as in Appendix I.2, δ′ by Lemma I.3

    Corrected: c·Σα² = Σα_l² max|q_l||k_l|, c′ = c/π²

    Asserts: there are C_min, C_max, c, c′ > 0 with e^(−cx²) and e^(−c′x²) around A_ij, x² = Σ_l(i−j)²θ_l²

    Shows: weight of a token half a turn away in two pairs
    """
    return _slack_rope(corrected, True, **rotary)


@statement(
    "wu-I.2",
    "Theorem I.2",
    partial(_draw_pairs, layers=False),
    erratum="theorem-i.2",
    witness=_stepping(2),
    proof=OURS,
)
def theorem_i_2(corrected: bool, **rotary: Any) -> float:
    """Eqs. (15) and (16) for Σ_l (i−j)²θ_l², Lemma I.1 amended

    Corrected: the same with c′/(t + 1) in place of c′/2

    Asserts: there is c > 0 with P_ij = Θ(binom(t+i−j, i−j)·e^(−cΣ_l(i−j)²θ_l²)) for t ≤ T (N, T fixed: any c
    serves)

    Shows: P_(21)1 after 20 layers in two pairs
    """
    return _slack_rope(corrected, False, **rotary)


def _draw_vectors(rng: Generator, edge: bool) -> Instance:
    query, other = rng.normal(size=(2, 2 * int(rng.integers(1, 5))))
    away = rng.choice([0.0, 1e-7, 10.0]) if edge else 1.0
    return {"query": query, "key": query * edge + away * other}


@statement("wu-I.3", "Lemma I.3", _draw_vectors)
def lemma_i_3(query: Any, key: Any) -> float:
    """|φ_l| ≤ ½π·|φ|/√(β_qβ_k), β the least share of a segment in its vector's norm

    Holds.
    """
    bound = _stretch(query, key) * float(_angle(query, key))
    largest = float(_angle(_segments(query), _segments(key)).max())
    return 1 - largest / bound if bound else -largest


# --- the critical distance of Theorem 4.7, and RoPE's decay against the decay mask's --------------------------


def _draw_root(rng: Generator, edge: bool) -> Instance:
    depth = draws.whole(2, 99, (2, 3))(rng, edge)
    return {
        "depth": depth,
        "angle": float(rng.choice([0.01, 0.5, 3.0]) if edge else 10 ** rng.uniform(-2, 0)),
    }


@statement(
    "wu-4.7-distance",
    "Theorem 4.7, critical distance (Appendix H)",
    _draw_root,
    erratum="theorem-4.7-distance",
    witness={"depth": 5, "angle": 0.1},
)
def rope_distance(depth: int, angle: float, corrected: bool) -> float:
    """by Stirling's approximation the critical point of L solves log((t+x)/x) = 2θx, as Appendix H prints it

    Corrected: by Stirling's approximation it solves log((t+x)/x) = 2θ²x, grows with t, falls with θ; the highest
    whole distance lies in (x* − 1, x* + ½)

    Asserts: the critical point x* of L grows with the depth t and falls with the base angle θ
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


def decays(tokens: int, product: float, angle: float, rate: float) -> tuple[float, float]:
    """ln of the last token's own weight over the first token's weight: under RoPE, and under the decay mask.

    Queries and keys are one vector of squared length `product`, so that content tells no token from another.
    """
    turns = np.arange(tokens) * angle
    rotated = math.sqrt(product) * np.stack([np.cos(turns), np.sin(turns)], axis=-1)
    logits = rotated @ rotated[-1], product - rate * np.arange(tokens)[::-1]
    rotary, decay = (log_softmax(row[None], np.ones((1, tokens), dtype=bool))[0] for row in logits)
    return float(rotary[-1] - rotary[0]), float(decay[-1] - decay[0])


@statement(
    "wu-4.6-decay",
    "Section 4.3, the two decays",
    # one query and key for all tokens (d = 2, no angle between them), θ ≤ 1/10,000 and a decay m ≥ .05
    draws.instance(
        tokens=draws.whole(2, 2048, (2, 2048)),
        product=draws.real(0.1, 10, (10.0,)),
        angle=lambda rng, edge: 1e-4 if edge else float(10 ** rng.uniform(-6, -4)),
        rate=draws.real(0.05, 2, (0.05,)),
    ),
    **OURS,
)
def two_decays(tokens: int, **model: float) -> float:
    """one layer, content alike for all tokens: with θ ≤ 1/10,000 the logarithm of the last token's weight over
    the first's is under RoPE at most a hundredth of that under the decay mask, for |q||k| ≤ 10, m ≥ .05 and N ≤
    2,048

    Holds; the text says significantly smaller, the hundredth and the ranges are ours: the ratio is below |q||k|(N
    − 1)θ²/(2m), which longer texts, larger norms or a slower decay mask exceed. At 256 tokens, θ = 1/10,000,
    |q||k| = 1 and m = −log .8 the weights' ratios are 1.0003 and 5e24.
    """
    rotary, decay = decays(int(tokens), **model)
    return 1 - rotary / (FAR * decay)
