"""Theorems 4.1 to 4.3: attention alone collapses on the first token, or on the prefix, geometrically.

A query after position j sends at least jε before it in every layer (after every h layers, under a window).
The theorems claim that constants exist, which for a fixed text says little, so each takes those its proof
gives: ε the smallest admitted weight, C = 1 − ε, at every t.
"""

import math
from functools import partial

import numpy as np

from posbias.theory.closed_forms import collapse_bounds
from posbias.theory.closed_forms.residual_bounds import smallest_admitted
from posbias_papers.statements.margins import Stack, below, least, rollouts, suffixes
from posbias_papers.statements.statement import STEP, Statement, both_readings, statement
from posbias_papers.statements.wu import draws


def _rollouts(kernels: Stack, depth: int) -> Stack:
    """P⁽ᵗ⁾ for every t, the kernels used in turn."""
    return rollouts(kernels[np.arange(depth) % len(kernels)])


def _floor(kernels: Stack, size: int, kind: str) -> float:
    allowed = draws.mask_of(kind, size).allowed(kernels.shape[-1])
    return min(smallest_admitted(kernel, allowed) for kernel in kernels)


def slack_after(P: Stack, floor: float, first: int) -> float:
    """C(1 − (j − K)ε)^t with C = 1 − ε for the positions j > K = `first`, and what those before have not drawn."""
    tokens = P.shape[-1]
    t, j = np.arange(len(P))[:, None], np.arange(first, tokens)
    printed = math.log1p(-floor) + t * np.log1p(-(j + 1 - first) * floor)
    missing = collapse_bounds.log_collapse_bound(np.full(len(P), floor), first) if first < tokens else 0.0
    return min(
        below(P[:, :, first:].max(axis=1), printed),
        below(P[:, :, first:].sum(axis=2).max(axis=1), missing),
        1 - tokens * floor,
    )


def _slack_causal(kernels: Stack, size: int, depth: int) -> float:
    """The bounds on what the first token has not drawn, and Nε ≤ 1."""
    return slack_after(_rollouts(kernels, depth), _floor(kernels, size, "causal"), 1)


def _slack_joined(kernels: Stack, size: int, depth: int) -> float:
    """Lemma B.1: every product of h consecutive kernels is at least εʰ where j ≤ i, and at most 1."""
    floor, tokens, slack = _floor(kernels, size, "window"), kernels.shape[-1], 1.0
    together = collapse_bounds.hops(tokens, size)
    for first in range(len(kernels)):
        product = _rollouts(np.roll(kernels, -first, axis=0), together)[-1] if together else np.eye(tokens)
        least = float(product[np.tri(tokens, dtype=bool)].min())
        slack = min(slack, 1 - floor**together / least if least else -math.inf, 1 - float(product.max()))
    return slack


def _slack_window(kernels: Stack, size: int, depth: int) -> float:
    """(1 − εʰ)(1 − (j − 1)εʰ)^(t/2h), Nεʰ ≤ 1, and the blocks' bound on what the first has not drawn."""
    P, floor = _rollouts(kernels, depth), _floor(kernels, size, "window")
    tokens = P.shape[-1]
    h = collapse_bounds.hops(tokens, size)
    t, j = np.arange(len(P))[:, None], np.arange(1, tokens)
    printed = math.log1p(-(floor**h)) + t / (2 * h) * np.log1p(-j * floor**h)
    missing = collapse_bounds.log_window_bound(floor, 1, tokens, size, len(P))
    return min(
        below(P[:, :, 1:].max(axis=1), printed),
        below(P[:, :, 1:].sum(axis=2).max(axis=1), missing),
        1 - tokens * floor**h,
    )


def _slack_few_layers(kernels: Stack, size: int, depth: int, corrected: bool) -> float:
    """Appendix B.2 for t < h: (1 − ε)^((t+1)/(w−1)); corrected 1 − ε, and the blocks' bound at every t."""
    P, floor = _rollouts(kernels, depth), _floor(kernels, size, "window")
    tokens, largest = P.shape[-1], P[:, :, 1:].max(axis=1)
    if not corrected:
        few = largest[: collapse_bounds.hops(tokens, size)]
        t = np.arange(len(few))[:, None]
        return below(few, (t + 1) / (size - 1) * math.log1p(-floor), P)
    blocks = [collapse_bounds.log_window_bound(floor, j, tokens, size, len(P)) for j in range(1, tokens)]
    return min(below(largest, math.log1p(-floor)), below(suffixes(P)[:, 1:], np.stack(blocks, axis=1)))


def _slack_prefix(kernels: Stack, size: int, depth: int) -> float:
    """The same of the prefix, which keeps κ = ε at every depth."""
    P, floor = _rollouts(kernels, depth), _floor(kernels, size, "prefix")
    share = collapse_bounds.prefix_share(kernels[0], size)
    kept = float((1 - share / P[:, :, :size]).min())
    return min(slack_after(P, floor, size), kept, float(1 - floor / share.min()))


def _slack_ratio(kernels: Stack, size: int, depth: int, corrected: bool) -> float:
    """P_ik₁/P_ik₂ against the least A_lk₁/A_lk₂ of the bottom layer, over l ≤ min(i, K) or max(i, K)."""
    P, length, slack = _rollouts(kernels, depth), size, 1.0
    bottom = kernels[0][:, :length, None] / kernels[0][:, None, :length]
    for i in range(P.shape[-1]):
        last = max(i + 1, length) if corrected else min(i + 1, length)
        ratio = P[1:, i, :length, None] / P[1:, i, None, :length]
        printed = bottom[:last].min(axis=0)
        slack = min(slack, least(1 - printed / ratio, ratio, printed, P[1:]))
    return slack


_CAUSAL, _WINDOW, _PREFIX = (partial(draws.stack, kind=kind) for kind in ("causal", "window", "prefix"))

COLLAPSE: tuple[Statement, ...] = (
    statement(
        "wu-4.1",
        "Theorem 4.1",
        "causal: P_ij ≤ (1 − ε)(1 − (j − 1)ε)^t and 1 − P_i1 ≤ (1 − ε)^(t+1), ε the smallest admitted weight",
        _CAUSAL,
        _slack_causal,
        note="Holds with the proof's constants; the sharper (1 − (j − 1)ε)^(t+1) holds for all positions ≥ j "
        "together. Nε < 1 wants an ε below the smallest weight where attention is uniform (there Nε = 1).",
    ),
    statement(
        "wu-4.2",
        "Theorem 4.2",
        "window: P_ij ≤ (1 − εʰ)(1 − (j − 1)εʰ)^(t/2h), h = ⌈(N − 1)/(w − 1)⌉, ε the smallest admitted "
        "weight",
        _WINDOW,
        _slack_window,
        note="Holds, but not by its proof (see Appendix B.2). (1 − (j − 1)εʰ)^⌊(t+1)/h⌋ holds for all "
        "positions ≥ j together, without the ½ and without N − 1 divisible by w − 1. The rate is far from "
        "sharp: every layer sends at least ε of a token's mass back, so 1 − P_i1 is at most (1 − ε)^t times "
        "a polynomial of degree below N: N/w sets when that begins, not its rate.",
    ),
    statement(
        "wu-4.3",
        "Theorem 4.3",
        "prefix: P_ij ≤ (1 − ε)(1 − (j − K)ε)^t for j > K, P_ik ≥ κ = ε for k ≤ K; ε the smallest weight",
        _PREFIX,
        _slack_prefix,
        note="Holds, κ at every depth and not only in the limit: P_ik is an average of column k of the "
        "bottom kernel, which is at least ε. (1 − (j − 1)ε)^(t+1) is sharper. The proof's ratio fails (see "
        "Appendix C).",
    ),
)
"""Theorems 4.1 to 4.3."""

PROOFS: tuple[Statement, ...] = (
    statement(
        "wu-B.1",
        "Lemma B.1",
        "window: εʰ ≤ (A⁽ᵗ⁺ʰ⁻¹⁾⋯A⁽ᵗ⁾)_ij ≤ 1 for j ≤ i, h = ⌈(N − 1)/(w − 1)⌉",
        _WINDOW,
        _slack_joined,
        note="Holds with c = εʰ. The proof's upper index N/w − 1 is (N − 1)/(w − 1) − 1.",
    ),
    statement(
        "wu-B.2",
        "Theorem 4.2, proof (Appendix B.2)",
        "P_ij ≤ (1 − ε)^((t+1)/(w−1)) for t < h and j > 1",
        _WINDOW,
        both_readings(_slack_few_layers),
        corrected="P_ij ≤ 1 − ε at every t (so ≤ (1 − ε)^((t+1)/h) for t < h), and all positions ≥ j hold at "
        "most (1 − (j − 1)εʰ)^⌊(t+1)/h⌋ together",
        witness={"kernels": [[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]], "size": 2, "depth": 2},
        about=STEP,
        note="Eqs. (8) and (9) give 1 − ε, no power of it: three tokens, w = 2, uniform weights, two layers "
        "have P_32 = ½ > ¼; (t+1)/h may be meant. For t ≥ h, P̃⁽ᵏ⁾ is (k+1)h layers and so bounds t ≥ (k+1)h "
        "− 1 only, not t = kh + r. And j = 1 must be left out of 'for all j ≤ i'.",
    ),
    statement(
        "wu-C",
        "Theorem 4.3, proof (Appendix C)",
        "P_ik₁/P_ik₂ ≥ min A_lk₁⁽⁰⁾/A_lk₂⁽⁰⁾ over l ≤ min(i, K), for t > 0",
        _PREFIX,
        both_readings(_slack_ratio),
        corrected="the same over l ≤ max(i, K)",
        witness={
            "kernels": [
                [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.01, 0.49, 0.5]],
                [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.01, 0.01, 0.98]],
            ],
            "size": 2,
            "depth": 2,
        },
        about=STEP,
        note="The sums run to max(i, K), and so must the minimum; min(i, K) is printed. κ needs no ratio: "
        "P_ik is at least the least entry of column k in the bottom kernel.",
    ),
)
"""Lemma B.1, and the steps of Appendices B.2 and C."""
