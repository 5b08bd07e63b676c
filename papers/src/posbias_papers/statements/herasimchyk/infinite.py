"""Theorem 5.4, infinite depth: does the first token draw everything?

Yes if Σλ diverges, no if it converges. Limits are made concrete with the constants the proofs give at every
finite depth (ε the smallest admitted weight, C′ = 1), so that a bound is compared at each layer. Kernels
are given, or come from a network whose norms decide whether an ε exists at all.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.theory.closed_forms import residual_bounds
from posbias.theory.mixing import PowerDecay
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.herasimchyk import draws
from posbias_papers.statements.herasimchyk.bounded import UPDATE
from posbias_papers.statements.herasimchyk.network import (
    assumed_constants,
    draw_network,
    growing,
    hidden_bound,
    run_network,
)
from posbias_papers.statements.margins import Stack, operator_norm, rollouts, room, suffixes
from posbias_papers.statements.statement import OURS, Instance, Statement, both_readings, statement
from posbias_papers.statements.wu.collapse import slack_after


def _draw_deep(rng: Generator, edge: bool, exponents: tuple[float, ...], depth: int, widths: str) -> Instance:
    """Kernels with a floor, used in turn; λ_t = initial/(t + 1)^exponent."""
    tokens = 2 if edge and widths == "causal" and rng.random() < 0.5 else int(rng.integers(2, 7))
    least = 2 if widths == "two or more" else 1
    width = tokens if widths == "causal" else int(rng.integers(min(least, tokens), tokens + 1))
    allowed = draws.admitted(tokens, width)
    kernels = masked_softmax(rng.normal(0, rng.choice([0.0, 1.0, 3.0]), (3, tokens, tokens)), allowed)
    if edge and rng.random() < 0.5:  # all but the floor on the token itself, or on the first
        column = np.arange(tokens) if rng.random() < 0.5 or width < tokens else np.zeros(tokens, dtype=int)
        kernels = masked_softmax(5.0 * np.eye(tokens)[column][None], allowed)
    return {
        "kernels": kernels,
        "initial": float(rng.choice([0.0, 1e-6, 1.0]) if edge else rng.random()),
        "exponent": float(rng.choice(exponents)),
        "depth": int(rng.integers(1, depth + 1)),
        "width": width,
    }


def deep_rollouts(
    kernels: Stack, initial: float, exponent: float, depth: int, width: int
) -> tuple[Stack, Float[np.ndarray, "layer"], float]:
    """The rollout at every depth, the λ, and the floor ε."""
    mixing = PowerDecay(initial, exponent).values(depth)
    allowed = draws.admitted(kernels.shape[-1], width)
    floor = min(residual_bounds.smallest_admitted(kernel, allowed) for kernel in kernels)
    return rollouts(kernels[np.arange(depth) % len(kernels)], mixing), mixing, floor


def _slack_retained(**deep: Any) -> float:
    """Diagonal against its bound, and the first column below its first row against 1 − Π_∞."""
    products, mixing, floor = deep_rollouts(**deep)
    diagonal = np.diagonal(products, axis1=1, axis2=2)
    own = room(residual_bounds.self_bound(mixing, floor)[:, None], diagonal)
    limit = residual_bounds.dichotomy(PowerDecay(deep["initial"], deep["exponent"]), floor)
    return min(own, (limit.first_token - products[:, 1:, 0]).min())


def _slack_collapse(**deep: Any) -> float:
    """Everything at j and later, and so P_ij and 1 − P_i0, against exp(−jεΣλ), at every depth."""
    products, mixing, floor = deep_rollouts(**deep)
    bound = [residual_bounds.exponential_bound(mixing, floor, j) for j in range(1, products.shape[-1])]
    return room(suffixes(products)[:, 1:].T, bound, products[-1])


def _slack_attention_only(**deep: Any) -> float:
    """The exponential bound against the rollout with λ = 1, Wu et al.'s rate against it, and which is lower.

    Their Theorem 4.1 is tried on the rollout of R, not on the product of the attention kernels.
    """
    products, mixing, floor = deep_rollouts(**deep)
    positions = range(1, products.shape[-1])
    theirs = [residual_bounds.suffix_bound(mixing, floor, j) for j in positions]
    exponential = [residual_bounds.exponential_bound(mixing, floor, j) for j in positions]
    return min(_slack_collapse(**deep), slack_after(products, floor, 1), room(theirs, exponential))


def _slack_window(**deep: Any) -> float:
    products, mixing, floor = deep_rollouts(**deep)
    missing = products[-1, :, 1:].sum(axis=1)
    return room(missing[1:], [residual_bounds.window_bound(mixing, floor, i) for i in range(1, len(missing))])


def _slack_network(corrected: bool, **network: Any) -> float:
    """What the first token has not drawn, against Π(1 − ε_t λ_t)."""
    mixing, (_, kernels) = network["mixing"], run_network(**network)
    tokens = len(kernels[0])
    C, C_V = assumed_constants(**network)
    floors = np.full(len(mixing), np.exp(-2 * (C * C_V * C) ** 2) / tokens)
    if corrected:
        start = np.linalg.norm(network["hidden"], axis=1).max()
        states = np.concatenate([[start], hidden_bound(**network)[:-1]])
        logits = states**2 * operator_norm(network["queries"]) * operator_norm(network["keys"])
        floors = np.array([residual_bounds.softmax_floor(tokens, float(M)) for M in logits])
    missing = rollouts(np.stack(kernels), mixing)[-1, :, 1:].sum(axis=1)
    return room(missing, np.prod(1 - floors * mixing))


FLOOR = "kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it"
INFINITE: tuple[Statement, ...] = (
    statement(
        "herasimchyk-5.4-i",
        "Theorem 5.4 (i)",
        "For summable λ (power decay, β > 1) every token i keeps P_ii ≥ Π(1 − (1 − ε)λ) at every depth, and "
        "every token but the first draws at most 1 − Π_∞ < 1 from the first.",
        lambda rng, edge: _draw_deep(rng, edge, (1.01, 1.5, 2.0, 4.0), 60, "any"),
        _slack_retained,
        about={"scope": FLOOR},
        note="'For every token' is read with the first left out of 'no collapse': its row is a point mass on "
        "itself at every depth.",
    ),
    statement(
        "herasimchyk-5.4-ii",
        "Theorem 5.4 (ii)",
        "For divergent λ (power decay, β ≤ 1) and kernels with floor ε under the causal mask, all that "
        "positions ≥ j (from 0) hold is at most exp(−jεΣλ) at every depth, so P_ij is, and P_i0 → 1.",
        lambda rng, edge: _draw_deep(rng, edge, (0.0, 0.5, 1.0), 150, "causal"),
        _slack_collapse,
        about={"scope": FLOOR},
        note="Holds with C′ = 1 and for whole suffixes; as printed C′ and ε may depend on T, which says "
        "nothing. The step from P_jj to P_ij is sound: each layer takes at least jελ of what positions ≥ j "
        "hold, for good.",
    ),
    statement(
        "herasimchyk-5.4-ii-attention-only",
        "Theorem 5.4 (ii), attention alone",
        "At λ = 1 in every layer all that positions ≥ j (from 0) hold after T layers is at most exp(−jεT), and at "
        "most the (1 − jε)^T of Wu et al., which is never above it; their Theorem 4.1 holds of R⁽ᵀ⁾⋯R⁽¹⁾.",
        lambda rng, edge: {**_draw_deep(rng, edge, (0.0,), 150, "causal"), "initial": 1.0},
        _slack_attention_only,
        about={"strength": "observation", "scope": f"{FLOOR}, λ = 1", "effort": "a remark"},
        note="The collapse of Wu et al. is the case λ ≡ 1, as the text says. Their rate is not: at λ = 1 the "
        "printed exp(−jεT) is weaker than (1 − jε)^T. Π(1 − jελ), from which the proof takes it, is their rate "
        "exactly.",
    ),
    statement(
        "herasimchyk-5.4-ii-window",
        "Theorem 5.4 (ii), sliding window",
        "The same rate under the sliding-window masks of §3.",
        (
            lambda rng, edge: _draw_deep(rng, edge, (0.0, 0.5, 1.0), 150, "any"),
            lambda rng, edge: _draw_deep(rng, edge, (0.0, 0.5, 1.0), 150, "two or more"),
        ),
        (_slack_collapse, _slack_window),
        corrected="Under windows of width ≥ 2, what token i (from 0) has not drawn from the first is at most "
        "the probability that fewer than i of independent trials with chances ελ_t succeed, which tends to "
        "0.",
        witness={
            "kernels": [[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]],
            "initial": 0.5,
            "exponent": 0.0,
            "depth": 200,
            "width": 2,
        },
        about={**OURS, "scope": "sliding-window masks, of which Theorem 5.4 does not speak"},
        note="The proof gives the first token ε in every row, which a window does not: width 1 never "
        "collapses, and for j ≥ the width a token is left at (w − 1)ε, not jε, so no C′ helps. Collapse "
        "holds for w ≥ 2.",
    ),
    statement(
        "herasimchyk-5.4-ii-network",
        "Theorem 5.4 (ii) from Assumptions 5.1 and 5.2",
        "For a network under these assumptions the first token draws everything if Σλ = ∞: 1 − P_i0 ≤ "
        "Π(1 − ελ), with ε of Lemma 5.3's constants.",
        draw_network,
        both_readings(_slack_network),
        corrected="1 − P_i0 ≤ Π(1 − ε_t λ_t), with ε_t from the norm bound of 5.3 (i) as amended at each "
        "layer; for ‖W_V‖ ≤ 1 one ε serves all depths, and the first token takes all if Σλ = ∞.",
        witness=growing([[0.0], [0.1]], 0.1, 30.0, 60),
        about={"scope": UPDATE},
        note="Norms that grow (5.3 (i)) sharpen attention until A_i0 is summable: with W_V = 30, 1/30, 30, … "
        "and λ = ½ the second token keeps a share for ever although Σλ = ∞. A uniform ε must be assumed.",
    ),
)
"""Theorem 5.4 (i), and (ii) for causal masks, attention alone, windows and networks."""
