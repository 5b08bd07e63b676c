"""Lemma 4.6, Theorem 4.7, Appendix I: RoPE's envelopes e^(−c·distance²), for one and for several pairs.

A cosine lies between 1 − x²/2 and 1 − 2x²/π² up to half a turn, which is where queries and keys are drawn,
at the edge exactly there. Beyond a quarter turn it is negative: that is what the printed constants miss.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.theory.closed_forms import collapse_bounds
from posbias.theory.closed_forms.collapse_bounds import Envelope
from posbias_papers.statements.margins import Stack, inside, log_rollouts, log_softmax
from posbias_papers.statements.statement import OURS, Instance, Statement, both_readings, statement
from posbias_papers.statements.wu import draws

Angles = Float[np.ndarray, "pair"]


def _draw_pair(rng: Generator, edge: bool, layers: bool) -> Instance:
    """d = 2, |φ| ≤ δθ and (δ + N − 1)θ ≤ π, at the boundary where `edge`."""
    tokens, depth = draws.length(rng, edge), 1 if layers else draws.depth(rng, edge, 10)
    turn = np.pi if edge else rng.uniform(0.001, np.pi)
    delta = float(rng.choice([1e-9, 1.0, tokens]) if edge else rng.exponential())
    angle = turn / (delta + tokens - 1)
    shape = (2, depth, tokens)
    sides = rng.choice([-0.5, 0.5], shape) if edge else rng.uniform(-0.5, 0.5, shape)
    norms = np.exp(rng.normal(0, rng.choice([0.0, 0.3, 1.0]), shape))
    norms *= rng.choice([0.05, 1.0, 4.0])
    turned = sides * delta * angle
    vectors = norms[..., None] * np.stack([np.cos(turned), np.sin(turned)], axis=-1)
    return {"queries": vectors[0], "keys": vectors[1], "angles": np.array([angle]), "delta": delta}


def _draw_pairs(rng: Generator, edge: bool, layers: bool) -> Instance:
    """d = 4 or 6: queries and keys near one direction; at `edge` angles as large as Lemma I.1 allows."""
    tokens, pairs = draws.length(rng, edge), int(rng.integers(2, 4))
    depth = 1 if layers else draws.depth(rng, edge, 8)
    away = rng.choice([0.0, 1e-6, 0.05] if edge else [0.01, 0.1])
    base = rng.normal(size=(pairs, 2))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    vectors = base + away * rng.normal(size=(2, depth, tokens, pairs, 2))
    vectors = vectors.reshape(2, depth, tokens, 2 * pairs)
    vectors *= np.exp(rng.normal(0, rng.choice([0.0, 1.0]), (2, depth, tokens, 1))) * rng.choice([0.2, 2.0])
    apart = float(_angle(vectors[0][..., :, None, :], vectors[1][..., None, :, :]).max())
    deviation = _stretch(*vectors) * apart
    if deviation > 2.0:  # too far apart for the lemma: nearer
        vectors = np.broadcast_to(np.tile(base.reshape(-1), (2, depth, tokens, 1)), vectors.shape).copy()
        apart, deviation = 0.0, 0.0
    drawn = [1.0, *rng.choice([1.0, 100.0], pairs - 1)] if edge else np.sort(rng.uniform(1, 5, pairs))
    ratios = np.array(drawn) / drawn[0]
    angle = (np.pi - deviation) * (1.0 if edge else rng.uniform(0.01, 1)) / (tokens - 1) / ratios.max()
    delta = float(apart / angle) * (1 + 1e-12) + 1e-12
    return {"queries": vectors[0], "keys": vectors[1], "angles": angle * np.sort(ratios), "delta": delta}


def _angle(u: Any, v: Any) -> Any:
    """The angle between vectors along the last axis, accurate where it is small."""
    u, v = (one / np.linalg.norm(one, axis=-1, keepdims=True) for one in (u, v))
    return 2 * np.arctan2(np.linalg.norm(u - v, axis=-1), np.linalg.norm(u + v, axis=-1))


def _segments(vectors: Any) -> Any:
    return vectors.reshape(*vectors.shape[:-1], -1, 2)


def _beta(vectors: Any) -> float:
    """β of A3: the least share of a segment in a vector's norm."""
    parts = np.linalg.norm(_segments(vectors), axis=-1)
    return float((parts / np.linalg.norm(vectors, axis=-1)[..., None]).min())


def _stretch(*vectors: Any) -> float:
    """½π/√(β_q β_k) of Lemma I.3."""
    return np.pi / 2 / math.sqrt(math.prod(map(_beta, vectors)))


def _rope(queries: Any, keys: Any, angles: Angles, delta: float) -> tuple[Stack, Any, float]:
    """ln A of every layer from turned queries and keys, |q_l||k_l| of admitted pairs, bound on |φ_l|."""
    segments, tokens = [_segments(vectors) for vectors in (queries, keys)], queries.shape[1]
    turn = np.arange(tokens)[:, None] * angles
    cos, sin = np.cos(turn), np.sin(turn)
    turned = [
        np.stack([cos * v[..., 0] - sin * v[..., 1], sin * v[..., 0] + cos * v[..., 1]], axis=-1)
        for v in segments
    ]
    logits = np.einsum("tilc,tjlc->tij", *turned)
    allowed = np.tri(tokens, dtype=bool)
    norms = [np.linalg.norm(v, axis=-1) for v in segments]
    amplitudes = (norms[0][:, :, None] * norms[1][:, None])[:, allowed]
    stretch = _stretch(queries, keys) if len(angles) > 1 else 1.0
    return log_softmax(logits, allowed), amplitudes, stretch * delta * float(angles.min())


def _envelope(log_kernels: Stack, amplitudes: Any, deviation: float, angles: Angles) -> Envelope:
    least, largest = amplitudes.min(axis=(0, 1)), amplitudes.max(axis=(0, 1))
    return collapse_bounds.rope_envelope(least, largest, angles, deviation, log_kernels.shape[-1])


def _slack_rope(corrected: bool, **rotary: Any) -> float:
    """Corrected envelope, or as printed: least·(1 − δ²θ² − d²θ²) below, largest·(1 − (d²/2 − δ²)θ²/c) above."""
    (log_kernels, amplitudes, deviation), angles = _rope(**rotary), rotary["angles"]
    if corrected:
        envelope = _envelope(log_kernels, amplitudes, deviation, angles)
    else:
        least, largest, pairs = float(amplitudes.min()), float(amplitudes.max()), len(angles)
        reach, shift = float((angles**2).sum()), deviation**2
        envelope = Envelope(
            log_lower=pairs * (least * (1 - shift) - largest) - math.log(log_kernels.shape[-1]),
            log_upper=pairs * (largest * (1 + 2 * shift / np.pi**2) + largest),
            lower_rate=least * reach,
            upper_rate=largest * reach / np.pi**2,
            power=2,
        )
    return inside(envelope.log_bounds, log_kernels, layers=True)


def _slack_rope_rollout(corrected: bool, **rotary: Any) -> float:
    """The envelope of walks; as printed, e^(−½c′d²θ²) whatever the number of steps."""
    log_kernels, amplitudes, deviation = _rope(**rotary)
    envelope = _envelope(log_kernels, amplitudes, deviation, rotary["angles"])

    def printed(distance: Any, depth: int) -> tuple[Any, Any]:
        walks = collapse_bounds.log_walks(depth, distance) + depth * envelope.log_upper
        high = walks - envelope.upper_rate / 2 * distance.astype(float) ** 2
        return envelope.log_bounds(distance, depth)[0], high

    return inside(envelope.log_bounds if corrected else printed, log_rollouts(log_kernels))


def _draw_vectors(rng: Generator, edge: bool) -> Instance:
    pairs = int(rng.integers(1, 5))
    query = rng.normal(size=2 * pairs)
    away = rng.choice([0.0, 1e-7, 10.0]) if edge else 1.0
    key = query * edge + away * rng.normal(size=2 * pairs)
    return {"query": query, "key": -key if edge and rng.random() < 0.3 else key}


def _slack_segments(query: Any, key: Any) -> float:
    bound = _stretch(query, key) * float(_angle(query, key))
    largest = float(_angle(_segments(query), _segments(key)).max())
    return 1 - largest / bound if bound else -largest


def _crossed(segments: int) -> Instance:
    """Lemma 4.6's counterexample, in each of so many pairs of dimensions: half a turn between two tokens."""
    queries, keys = (
        np.tile([[least, 0.0], [most, 0.0]], segments) for least, most in ((0.02, 1.0), (5.0, 5.0))
    )
    angles = [math.pi - 1e-6] * segments
    return {"queries": [queries.tolist()], "keys": [keys.tolist()], "angles": angles, "delta": 1e-9}


def _stepping(segments: int) -> Instance:
    """Theorem 4.7's: half a turn over the text in as many equal steps as layers, with large equal norms."""
    tokens, norm = 21, math.sqrt(200.0 / segments)
    vectors = np.tile([norm, 0.0], (20, tokens, segments)).tolist()
    angles = [(math.pi - 1e-6) / (tokens - 1)] * segments
    return {"queries": vectors, "keys": vectors, "angles": angles, "delta": 1e-9}


ROPE: tuple[Statement, ...] = (
    statement(
        "wu-4.6",
        "Lemma 4.6",
        "c = min|q||k|, c′ = max|q||k|/π² (cos x ≤ 1 − 2x²/π² for |x| ≤ π), as Appendix F ends",
        partial(_draw_pair, layers=True),
        both_readings(_slack_rope),
        corrected="c = a = max|q||k|, c′ = a/π², b = min|q||k|, s = δθ: C_min = e^(b − a − as²)/N and C_max "
        "= e^(a − b + 2as²/π² + ½as²)",
        witness=_crossed(1),
        about={"proof": OURS},
        asserts="there are C_min, C_max, c, c′ > 0 with C_min·e^(−c(i−j)²θ²) ≤ A_ij ≤ C_max·e^(−c′(i−j)²θ²)",
        note="The proof names no constants; these are the nearest. Beyond a quarter turn the cosine is negative, "
        "and the smallest |q||k| no longer bounds the score from below: c must be the largest. Also |ψ| ≥ |i − j "
        "− δ|θ needs i − j ≥ δ (what follows from it holds all the same), and Y_max, Y_min stand the wrong way "
        "round.",
    ),
    statement(
        "wu-4.7",
        "Theorem 4.7",
        "C_min^(t+1)·e^(−cx²) ≤ P_ij/binom(t+i−j, i−j) ≤ C_max^(t+1)·e^(−½c′x²) with x = (i−j)θ (Eqs. 15, "
        "16) and the constants of Lemma 4.6 as amended",
        partial(_draw_pair, layers=False),
        both_readings(_slack_rope_rollout),
        corrected="the same with e^(−c′x²/(t+1)) above",
        witness=_stepping(1),
        asserts="there is c > 0 with P_ij = Θ(binom(t+i−j, i−j)·e^(−c(i−j)²θ²)) for t ≤ T (N and T fixed: "
        "any c serves)",
        about={"proof": OURS},
        note="Eq. (16): t + 1 steps over a distance x have Σ step² ≥ x²/(t + 1), not x²/2. What holds has c "
        "below and c′/(t + 1) above, so not one c on both sides. Eq. (12) has t factors where P has t + 1, "
        "and binom(t+i−j, i−j) counts walks of t + 1 steps, not of t.",
    ),
)
"""Lemma 4.6, Theorem 4.7."""

PAIRS: tuple[Statement, ...] = (
    statement(
        "wu-I.1",
        "Lemma I.1",
        "c = min|q_l||k_l|, c′ = max|q_l||k_l|/π², constants as in Appendix I.2, δ′ by Lemma I.3",
        partial(_draw_pairs, layers=True),
        both_readings(_slack_rope),
        corrected="c·Σα² = Σα_l² max|q_l||k_l|, c′ = c/π²",
        witness=_crossed(2),
        about={"proof": OURS},
        asserts="there are C_min, C_max, c, c′ > 0 with e^(−cx²) and e^(−c′x²) around A_ij, x² = Σ_l(i−j)²θ_l²",
        note="The proof names no constants; these are the nearest. Fails where Lemma 4.6 does and for its "
        "reason, negative cosines; holds with the largest |q_l||k_l|.",
    ),
    statement(
        "wu-I.2",
        "Theorem I.2",
        "Eqs. (15) and (16) for Σ_l (i−j)²θ_l², Lemma I.1 amended",
        partial(_draw_pairs, layers=False),
        both_readings(_slack_rope_rollout),
        corrected="the same with c′/(t + 1) in place of c′/2",
        witness=_stepping(2),
        asserts="there is c > 0 with P_ij = Θ(binom(t+i−j, i−j)·e^(−cΣ_l(i−j)²θ_l²)) for t ≤ T (N, T "
        "fixed: any c serves)",
        about={"proof": OURS},
        note="I.3 prints no constants. A corollary of Theorem 4.7, and fails with its Eq. (16).",
    ),
    statement(
        "wu-I.3",
        "Lemma I.3",
        "|φ_l| ≤ ½π·|φ|/√(β_qβ_k), β the least share of a segment in its vector's norm",
        _draw_vectors,
        _slack_segments,
        note="Holds.",
    ),
)
"""Lemma I.1, Theorem I.2, Lemma I.3: several pairs of dimensions."""
