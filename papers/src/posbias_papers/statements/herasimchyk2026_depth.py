"""Herasimchyk et al. 2026, §5: whether norms and weights stay bounded, and the first token draws everything.

Theorem 5.4: it does if Σλ diverges, not if it converges. Limits are made concrete with the constants the proofs
give at every finite depth (ε the smallest admitted weight, C′ = 1). Statements about a network run one, X ← (1 −
λ)X + λ·A·X·W_V with A = softmax(X W_Q (X W_K)ᵀ). Assumption 5.2 bounds the products of the value matrices, not
each of them: drawn are networks whose products are bounded by construction, and the sharpest case known
(`draws.growing`), values that alternate between large and small, whose products stay bounded while the stream
grows.
"""

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.theory.mixing import PowerDecay
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.closed_forms import bounds
from posbias_papers.statements import draws
from posbias_papers.statements.margins import (
    Matrix,
    Stack,
    distances,
    largest_product,
    operator_norm,
    rollouts,
    room,
    suffixes,
)
from posbias_papers.statements.record import OURS, Instance, statement
from posbias_papers.statements.wu2025_masks import floor_of, slack_after

# --- Lemma 5.3 -----------------------------------------------------------------------------------------------


def _assumed(hidden: Any, queries: Any, keys: Any, values: Any, mixing: Any) -> tuple[float, float]:
    """C of Assumption 5.1 and of the input (Frobenius, the largest of the usual norms), C_V of 5.2."""
    weights = max(operator_norm(queries).max(), operator_norm(keys).max())
    return max(float(weights), float(np.linalg.norm(hidden))), largest_product(values)


def run_network(
    hidden: Any, queries: Any, keys: Any, values: Any, mixing: Any, *, whole_stream: bool = False
) -> tuple[Float[np.ndarray, "layer"], list[Matrix]]:
    """The largest norm of a token after each layer, and the attention kernels (causal).

    `whole_stream` multiplies the residual stream by W_V as well, as the proof of Lemma 5.3 does.
    """
    X, allowed, norms, kernels = hidden, np.tri(len(hidden), dtype=bool), [], []
    for query, key, value, lam in zip(queries, keys, values, mixing, strict=True):
        A = masked_softmax((X @ query) @ (X @ key).T, allowed)
        X = (1 - lam) * (X @ value if whole_stream else X) + lam * A @ X @ value
        kernels.append(A)
        norms.append(np.linalg.norm(X, axis=1).max())
    return np.array(norms), kernels


def _norm_bound(hidden: Any, norms: Any, mixing: Any) -> Float[np.ndarray, "layer"]:
    """Lemma 5.3 (i) as corrected, after each layer, of value matrices of these norms: ‖X‖·Π(1 − λ + λ‖W_V‖)."""
    return bounds.hidden_state_bound(mixing, norms, float(np.linalg.norm(hidden, axis=1).max()))


@statement(
    "herasimchyk-5.3-i",
    "Lemma 5.3 (i)",
    draws.network,
    erratum="lemma-5.3-i",
    witness=draws.growing([[1.0]], 1.0, 2.0, 41),
)
def lemma_5_3_i(corrected: bool, **network: Any) -> float:
    """Under Assumptions 5.1 and 5.2 and ‖X⁽⁰⁾‖ ≤ C, the residual update X ← (1 − λ)X + λAXW_V keeps every token's
    norm bounded at all depths (by C_X = C·C_V).

    Corrected: Norms stay within C·C_V if W_V acts on the residual stream too, X ← ((1 − λ)I + λA)XW_V; for the
    residual update they stay within the input's times Π(1 − λ + λ‖W_V‖).

    Scope: networks under Assumptions 5.1 and 5.2 with the residual update of Section 3, written with W_V

    Shows: norm of a token after 41 layers of W_V = 2, ½, 2, …
    """
    norms, bound = run_network(**network)[0], np.prod(_assumed(**network))
    if not corrected:
        return room(norms, bound)
    whole = room(run_network(**network, whole_stream=True)[0], bound)
    own = _norm_bound(network["hidden"], operator_norm(network["values"]), network["mixing"])
    return min(whole, room(norms, own))


def _draw_attention(rng: Generator, edge: bool) -> Instance:
    (tokens, width), dim = draws.size(rng, edge), int(rng.integers(1, 4))
    hidden = rng.normal(size=(tokens, dim)) / np.sqrt(dim)
    weights = rng.normal(size=(2, dim, dim)) / np.sqrt(dim)
    if edge:  # the first key opposite to all others: the sharp case
        hidden, weights = np.ones((tokens, 1)), np.full((2, 1, 1), rng.choice([0.0, 1.0, 1.4]))
        hidden[0] = -1.0
    positional = -rng.choice([0.0, 0.5, 5.0]) * np.abs(distances(tokens))
    attention = {"hidden": hidden, "query": weights[0], "key": weights[1], "positional": positional}
    return attention | {"width": width}


@statement(
    "herasimchyk-5.3-ii",
    "Lemma 5.3 (ii)",
    _draw_attention,
    erratum="lemma-5.3-ii",
    witness={
        "hidden": [[0.1], [0.1]],
        "query": [[1.0]],
        "key": [[1.0]],
        "positional": [[0.0, -5.0], [-5.0, 0.0]],
        "width": 2,
    },
    proof=OURS,
)
def lemma_5_3_ii(hidden: Any, query: Any, key: Any, positional: Any, width: int, corrected: bool) -> float:
    """Every admitted weight is at least e^(−2M)/n, M = (C_X C)², whatever the positional logits.

    Corrected: Every admitted weight is at least 1/(1 + (k − 1)e^(2M + B)), for k keys in the longest row and
    positional logits that range over B within a row.

    Asserts: Where hidden states are bounded as in (i), there is an ε > 0, the same at all depths, below every
    admitted weight (positional logits that range over no more than B).

    Scope: any network with bounded hidden states, whose positional logits are bounded too

    Shows: weight of a key with positional logit −5
    """
    allowed = draws.admitted(len(hidden), width)
    kernel = masked_softmax((hidden @ query) @ (hidden @ key).T + positional, allowed)
    C, C_X = max(operator_norm(query), operator_norm(key)), np.linalg.norm(hidden, axis=1).max()
    M = float((C_X * C) ** 2)
    floor = np.exp(-2 * M) / len(allowed)
    if corrected:
        rows = np.where(allowed, positional, np.nan)
        ranges = np.nanmax(rows, axis=1) - np.nanmin(rows, axis=1)
        keys = int(allowed.sum(axis=1).max())
        floor = np.exp(bounds.log_attention_floor(keys, M, float(ranges.max())))
    return room(floor, kernel[allowed].min(), kernel, lower=True)


# --- Theorem 5.4, kernels given --------------------------------------------------------------------------------


def _draw_deep(rng: Generator, edge: bool, exponents: tuple[float, ...], kind: str) -> Instance:
    """Kernels with a floor, used in turn; λ_t = initial/(t + 1)^exponent."""
    initial = float(rng.choice([0.0, 1e-6, 1.0]) if edge else rng.random())
    deep = {"initial": initial, "exponent": float(rng.choice(exponents))}
    return draws.masked(rng, edge, kind) | deep | {"depth": draws.layers(rng, edge, 150)}


DIVERGENT = partial(_draw_deep, exponents=(0.0, 0.5, 1.0))


def deep_rollouts(
    kernels: Stack, initial: float, exponent: float, depth: int, size: int = 0
) -> tuple[Stack, Float[np.ndarray, "layer"], float]:
    """The rollout at every depth, the λ, and the floor ε; `size` is that of the kernels' mask."""
    mixing = PowerDecay(initial, exponent).values(depth)
    return rollouts(kernels[np.arange(depth) % len(kernels)], mixing), mixing, floor_of(kernels)


@statement(
    "herasimchyk-5.4-i",
    "Theorem 5.4 (i)",
    partial(_draw_deep, exponents=(1.01, 1.5, 2.0, 4.0), kind="window"),
    erratum="theorem-5.4-i",
)
def theorem_5_4_i(**deep: Any) -> float:
    """For summable λ (power decay, β > 1) every token i keeps P_ii ≥ Π(1 − (1 − ε)λ) at every depth, and every
    token but the first draws at most 1 − Π_∞ < 1 from the first.

    Scope: kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it
    """
    products, mixing, floor = deep_rollouts(**deep)
    own = room(bounds.self_bound(mixing, floor)[:, None], np.diagonal(products, axis1=1, axis2=2))
    kept = bounds.retained(PowerDecay(deep["initial"], deep["exponent"]), floor)
    return min(own, (1 - kept - products[:, 1:, 0]).min())


def _collapse(deep: Instance) -> float:
    """Everything at j and later, and so P_ij and 1 − P_i0, against exp(−jεΣλ), at every depth."""
    products, mixing, floor = deep_rollouts(**deep)
    bound = [bounds.exponential_bound(mixing, floor, j) for j in range(1, products.shape[-1])]
    return room(suffixes(products)[:, 1:].T, bound, products[-1])


@statement("herasimchyk-5.4-ii", "Theorem 5.4 (ii)", partial(DIVERGENT, kind="causal"))
def theorem_5_4_ii(**deep: Any) -> float:
    """For divergent λ (power decay, β ≤ 1) and kernels with floor ε under the causal mask, all that positions ≥ j
    (from 0) hold is at most exp(−jεΣλ) at every depth, so P_ij is, and P_i0 → 1.

    Holds with C′ = 1 and for whole suffixes; as printed C′ and ε may depend on T, which says nothing. The step
    from P_jj to P_ij is sound: each layer takes at least jελ of what positions ≥ j hold, for good.

    Scope: kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it
    """
    return _collapse(deep)


@statement(
    "herasimchyk-5.4-ii-attention-only",
    "Theorem 5.4 (ii), attention alone",
    lambda rng, edge: {**DIVERGENT(rng, edge, kind="causal"), "initial": 1.0, "exponent": 0.0},
    erratum="theorem-5.4-attention-only",
    strength="observation",
    evidence="a remark",
)
def attention_alone(**deep: Any) -> float:
    """At λ = 1 in every layer all that positions ≥ j (from 0) hold after T layers is at most exp(−jεT), and at
    most the (1 − jε)^T of Wu et al., which is never above it; their Theorem 4.1 holds of R⁽ᵀ⁾⋯R⁽¹⁾.

    Scope: kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it, λ = 1
    """
    products, mixing, floor = deep_rollouts(**deep)
    positions = range(1, products.shape[-1])
    theirs = [np.exp(bounds.log_collapse_bound(np.full(len(mixing), floor), j, mixing)) for j in positions]
    exponential = [bounds.exponential_bound(mixing, floor, j) for j in positions]
    # Theorem 4.1 on the rollout of R, not on the product of the attention kernels
    return min(_collapse(deep), slack_after(products, floor, 1), room(theirs, exponential))


@statement(
    "herasimchyk-5.4-ii-window",
    "Theorem 5.4 (ii), sliding window",
    partial(DIVERGENT, kind="window"),
    erratum="theorem-5.4-ii-window",
    witness={
        "kernels": [[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]],
        "initial": 0.5,
        "exponent": 0.0,
        "depth": 200,
        "size": 2,
    },
    **OURS,
)
def window(corrected: bool, **deep: Any) -> float:
    """The same rate under the sliding-window masks of §3.

    Corrected: Under windows of width ≥ 2, what token i (from 0) has not drawn from the first is at most the
    probability that fewer than i of independent trials with chances ελ_t succeed, which tends to 0.

    Scope: sliding-window masks, of which Theorem 5.4 does not speak
    """
    if not corrected:
        return _collapse(deep)
    products, mixing, floor = deep_rollouts(**deep)
    missing = products[-1, :, 1:].sum(axis=1)
    return room(missing[1:], [bounds.window_bound(mixing, floor, i) for i in range(1, len(missing))])


# --- Theorem 5.4 of a network, and Lemma 5.3 (i) for several heads -------------------------------------------


@statement(
    "herasimchyk-5.4-ii-network",
    "Theorem 5.4 (ii) from Assumptions 5.1 and 5.2",
    draws.network,
    erratum="theorem-5.4-ii",
    witness=draws.growing([[0.0], [0.1]], 0.1, 30.0, 60),
)
def from_assumptions(corrected: bool, **network: Any) -> float:
    """For a network under these assumptions the first token draws everything if Σλ = ∞: 1 − P_i0 ≤ Π(1 − ελ),
    with ε of Lemma 5.3's constants.

    Corrected: 1 − P_i0 ≤ Π(1 − ε_t λ_t), with ε_t from the norm bound of 5.3 (i) as amended at each layer; for
    ‖W_V‖ ≤ 1 one ε serves all depths, and the first token takes all if Σλ = ∞.

    Scope: networks under Assumptions 5.1 and 5.2 with the residual update of Section 3, written with W_V

    Shows: what the second token keeps after 60 layers of W_V = 30, 1/30, …
    """
    mixing, hidden = network["mixing"], network["hidden"]
    missing = rollouts(np.stack(run_network(**network)[1]), mixing)[-1, :, 1:].sum(axis=1)
    C, C_V = _assumed(**network)
    floors = np.exp(-2 * (C * C_V * C) ** 2) / len(hidden)
    if corrected:
        bound = _norm_bound(hidden, operator_norm(network["values"]), mixing)
        states = np.append(np.linalg.norm(hidden, axis=1).max(), bound[:-1])
        logits = states**2 * operator_norm(network["queries"]) * operator_norm(network["keys"])
        floors = np.exp([bounds.log_attention_floor(len(hidden), float(M)) for M in logits])
    return room(missing, np.prod(1 - floors * mixing))


def _draw_head_values(rng: Generator, edge: bool, full: bool = False) -> Instance:
    """Networks of several heads; λ = 1 where `full`, where both readings of the residual dynamics are the same."""
    tokens, dim, depth, heads = (int(rng.integers(1, high)) for high in (5, 4, 20, 4))
    logits = rng.normal(size=(depth, heads, tokens, tokens))
    return {
        "hidden": rng.normal(size=(tokens, dim)),
        "heads": masked_softmax(logits, np.tri(tokens, dtype=bool)),
        "values": np.stack([draws.values(rng, depth, dim, edge) for _ in range(heads)], axis=1),
        "mixing": np.ones(depth) if full else draws.mixing(rng, depth, edge),
    }


@statement(
    "herasimchyk-5.1-values",
    "§5.1, Lemma 5.3 (i) for heads",
    (partial(_draw_head_values, full=True), _draw_head_values),
    erratum="section-5.1",
    witness={
        "hidden": [[1.0]],
        "heads": [[[[1.0]], [[1.0]]]] * 20,
        "values": [
            list(pair) for pair in zip(draws.alternating(2, 20), draws.alternating(0.5, 20), strict=True)
        ],
        "mixing": [1.0] * 20,
    },
    strength="observation",
    evidence="a remark",
)
def heads_values(hidden: Any, heads: Any, values: Any, mixing: Any, corrected: bool) -> float:
    """Lemma 5.3 (i) applies verbatim to the mean over heads if Assumption 5.2 holds uniformly across them: norms
    stay bounded at all depths (by ‖X⁽⁰⁾‖·C_V, C_V the largest product of any one head's value matrices; λ = 1).

    Corrected: Norms stay within the input's times Π(1 − λ + λ·mean_h‖W_V^h‖), for every λ.

    Scope: networks of several heads, each with value matrices under Assumption 5.2

    Shows: norm of a token after 20 layers of two heads, λ = 1
    """
    X, norms = hidden, []
    for kernels, value, lam in zip(heads, values, mixing, strict=True):
        X = (1 - lam) * X + lam * (kernels @ (X @ value)).mean(axis=0)
        norms.append(np.linalg.norm(X, axis=1).max())
    start = np.linalg.norm(hidden, axis=1).max() * largest_product(values)
    return room(
        norms, _norm_bound(hidden, operator_norm(values).mean(axis=1), mixing) if corrected else start
    )
