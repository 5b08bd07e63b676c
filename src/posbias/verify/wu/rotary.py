"""Lemma 4.6, Theorem 4.7, Appendix I: RoPE's envelopes e^(−c·distance²), for one and for several pairs.

A cosine lies between 1 − x²/2 and 1 − 2x²/π² up to half a turn, which is where queries and keys are drawn,
at the edge exactly there. Beyond a quarter turn it is negative: that is what the printed constants miss.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.theory.closed_forms import collapse_bounds
from posbias.verify.statement import Instance, Reading, Statement
from posbias.verify.wu import draws
from posbias.verify.wu.margins import SOURCE, Distances, Stack, inside, log_below, log_rollouts, log_softmax


def _draw_pair(rng: Generator, edge: bool, layers: bool) -> Instance:
    """d = 2, |φ| ≤ δθ and (δ + N − 1)θ ≤ π, at the boundary where `edge`."""
    tokens, depth = draws.length(rng, edge), 1 if layers else draws.depth(rng, edge, 10)
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
    """d = 4 or 6: queries and keys near one direction; at `edge` angles as large as Lemma I.1 allows."""
    tokens, pairs = draws.length(rng, edge), int(rng.integers(2, 4))
    depth = 1 if layers else draws.depth(rng, edge, 8)
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
        log_softmax(logits, allowed),
        amplitudes,
        angles,
        stretch * instance["delta"] * float(angles.min()),
    )


def _rope_envelope(instance: Instance) -> tuple[Stack, collapse_bounds.Envelope]:
    log_kernels, amplitudes, angles, deviation = _rope(instance)
    every = (0, 1)
    tokens = log_kernels.shape[-1]
    return log_kernels, collapse_bounds.rope_envelope(
        amplitudes.min(axis=every), amplitudes.max(axis=every), angles, deviation, tokens
    )


def _distances(tokens: int) -> Distances:
    return np.subtract.outer(np.arange(tokens), np.arange(tokens))


def _slack_rope(instance: Instance, amended: bool) -> float:
    """Amended envelope, or as printed: least·(1 − δ²θ² − d²θ²) below, largest·(1 − (d²/2 − δ²)θ²/c) above."""
    log_kernels, envelope = _rope_envelope(instance)
    tokens = log_kernels.shape[-1]
    if not amended:
        _, amplitudes, angles, deviation = _rope(instance)
        least, largest, pairs = float(amplitudes.min()), float(amplitudes.max()), len(angles)
        reach, shift = float((angles**2).sum()), deviation**2
        envelope = collapse_bounds.Envelope(
            log_lower=pairs * (least * (1 - shift) - largest) - math.log(tokens),
            log_upper=pairs * (largest * (1 + 2 * shift / np.pi**2) + largest),
            lower_rate=least * reach,
            upper_rate=largest * reach / np.pi**2,
            power=2,
        )
    return inside(envelope, log_kernels, _distances(tokens), layers=True)


def _slack_rope_rollout(instance: Instance, amended: bool) -> float:
    """The envelope of walks; as printed, e^(−½c′d²θ²) whatever the number of steps."""
    log_kernels, envelope = _rope_envelope(instance)
    distance, products = _distances(log_kernels.shape[-1]), log_rollouts(log_kernels)
    if amended:
        return inside(envelope, products, distance, layers=False)
    lower, slack = distance >= 0, 1.0
    reach = distance[lower].astype(float) ** 2
    for before, values in enumerate(products):
        low, _ = envelope.log_bounds(distance[lower], before + 1)
        high = collapse_bounds.log_walks(before + 1, distance[lower]) + (before + 1) * envelope.log_upper
        high = high - envelope.upper_rate / 2 * reach
        slack = min(slack, log_below(low, values[lower]), log_below(values[lower], high))
    return slack


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


ROPE: tuple[Statement, ...] = (
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
        note="Beyond a quarter turn the cosine is negative, and the smallest |q||k| no longer bounds the "
        "score from below: c must be the largest. Also |ψ| ≥ |i − j − δ|θ needs i − j ≥ δ (what follows from "
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
        note="Eq. (16): t + 1 steps over a distance x have Σ step² ≥ x²/(t + 1), not x²/2. What holds has c "
        "below and c′/(t + 1) above, so not one c on both sides. Eq. (12) has t factors where P has t + 1, "
        "and binom(t+i−j, i−j) counts walks of t + 1 steps, not of t.",
        witness=_stepping(1),
    ),
)
"""Lemma 4.6, Theorem 4.7."""

PAIRS: tuple[Statement, ...] = (
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
        note="Fails where Lemma 4.6 does and for its reason, negative cosines; holds with the largest "
        "|q_l||k_l|.",
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
"""Lemma I.1, Theorem I.2, Lemma I.3: several pairs of dimensions."""
