"""Herasimchyk et al. 2026, §5: whether norms and weights stay bounded, and whether the first token draws
everything.

Theorem 5.4: it does if Σλ diverges, not if it converges. Limits are made concrete with the constants the proofs
give at every finite depth (ε the smallest admitted weight, C′ = 1). Statements about a network run one, X ← (1 −
λ)X + λ·A·X·W_V with A = softmax(X W_Q (X W_K)ᵀ). Assumption 5.2 bounds the products of the value matrices, not
each of them: drawn are networks whose products are bounded by construction, and the sharpest case known
(`growing`), values that alternate between large and small, whose products stay bounded while the stream grows.
"""

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.theory.mixing import PowerDecay
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.closed_forms import residual_bounds
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
from posbias_papers.statements.wu2025_masks import slack_after

UPDATE = "networks under Assumptions 5.1 and 5.2 with the residual update of Section 3, written with W_V"
SEEN = "any network with bounded hidden states, whose positional logits are bounded too"
FLOOR = "kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it"


# --- networks ------------------------------------------------------------------------------------------------


def _draw_values(rng: Generator, depth: int, dim: int, edge: bool) -> Float[np.ndarray, "layer out in"]:
    """W_t with W_1⋯W_t = G_t for random invertible G_t, so that every product is bounded (Assumption 5.2)."""
    turns = np.linalg.qr(rng.normal(size=(depth + 1, dim, dim)))[0]
    shape = (depth + 1, 1, dim)
    stretch = rng.choice([0.2, 1.0, 2.0], shape) if edge else rng.uniform(0.5, 1, shape)
    products = turns * stretch
    products[0] = np.eye(dim)
    return np.linalg.solve(products[:-1], products[1:])


def _alternating(high: float, depth: int) -> list[list[list[float]]]:
    """1×1 value matrices whose products stay at `high` or 1."""
    return [[[high if layer % 2 == 0 else 1 / high]] for layer in range(depth)]


def growing(hidden: list[list[float]], weight: float, high: float, depth: int) -> Instance:
    """A network of width one with values high, 1/high, … and λ = ½: their products are at most `high`."""
    weights = [[[weight]]] * depth
    network = {"hidden": hidden, "queries": weights, "keys": weights, "values": _alternating(high, depth)}
    return network | {"mixing": [0.5] * depth}


def _draw_network(rng: Generator, edge: bool) -> Instance:
    """A network under Assumptions 5.1 and 5.2: small weights, or at the edge values that grow."""
    if edge and rng.random() < 0.3:  # a first token of zeros, others that grow
        hidden = [[0.0]] + [[0.1]] * int(rng.integers(1, 4))
        return growing(hidden, 0.1, float(rng.uniform(2, 40)), int(rng.integers(20, 61)))
    tokens, dim, depth = (int(rng.integers(low, high)) for low, high in ((2, 6), (1, 4), (1, 25)))
    scale = rng.choice([0.1, 1.0]) / np.sqrt(dim)
    return {
        "hidden": rng.normal(size=(tokens, dim)) * scale,
        "queries": rng.normal(size=(depth, dim, dim)) * scale,
        "keys": rng.normal(size=(depth, dim, dim)) * scale,
        "values": _draw_values(rng, depth, dim, edge),
        "mixing": draws.mixing(rng, depth, edge),
    }


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
    return residual_bounds.hidden_state_bound(mixing, norms, float(np.linalg.norm(hidden, axis=1).max()))


# --- Lemma 5.3 -----------------------------------------------------------------------------------------------


def _norms_amended(**network: Any) -> float:
    """Norms stay within C·C_V if W_V acts on the residual stream too, X ← ((1 − λ)I + λA)XW_V; for the residual
    update they stay within the input's times Π(1 − λ + λ‖W_V‖).
    """
    whole = room(run_network(**network, whole_stream=True)[0], np.prod(_assumed(**network)))
    bound = _norm_bound(network["hidden"], operator_norm(network["values"]), network["mixing"])
    return min(whole, room(run_network(**network)[0], bound))


@statement(
    "herasimchyk-5.3-i",
    "Lemma 5.3 (i)",
    _draw_network,
    corrected=_norms_amended,
    erratum="lemma-5.3-i",
    shows="norm of a token after 41 layers of W_V = 2, ½, 2, …",
    witness=growing([[1.0]], 1.0, 2.0, 41),
    scope=UPDATE,
)
def lemma_5_3_i(**network: Any) -> float:
    """Under Assumptions 5.1 and 5.2 and ‖X⁽⁰⁾‖ ≤ C, the residual update X ← (1 − λ)X + λAXW_V keeps every token's
    norm bounded at all depths (by C_X = C·C_V).
    """
    return room(run_network(**network)[0], np.prod(_assumed(**network)))


def _draw_attention(rng: Generator, edge: bool) -> Instance:
    (tokens, width), dim = draws.size(rng, edge), int(rng.integers(1, 4))
    hidden = rng.normal(size=(tokens, dim)) / np.sqrt(dim)
    weights = rng.normal(size=(2, dim, dim)) / np.sqrt(dim)
    if edge:  # the first key opposite to all others: the sharp case
        hidden, weights = np.ones((tokens, 1)), np.full((2, 1, 1), rng.choice([0.0, 1.0, 1.4]))
        hidden[0] = -1.0
    slope = rng.choice([0.0, 0.5, 5.0])
    positional = -slope * np.abs(distances(tokens))
    attention = {"hidden": hidden, "query": weights[0], "key": weights[1], "positional": positional}
    return attention | {"width": width}


def _smallest_weight(floor: Any, hidden: Any, query: Any, key: Any, positional: Any, width: int) -> float:
    """The smallest admitted weight against `floor` of who may attend and M = (C_X C)²."""
    allowed = draws.admitted(len(hidden), width)
    kernel = masked_softmax((hidden @ query) @ (hidden @ key).T + positional, allowed)
    C, C_X = max(operator_norm(query), operator_norm(key)), np.linalg.norm(hidden, axis=1).max()
    smallest = residual_bounds.smallest_admitted(kernel, allowed)
    return room(floor(allowed, float((C_X * C) ** 2)), smallest, kernel, lower=True)


def _floor_amended(positional: Any, **attention: Any) -> float:
    """Every admitted weight is at least 1/(1 + (k − 1)e^(2M + B)), for k keys in the longest row and positional
    logits that range over B within a row.
    """

    def floor(allowed: Any, M: float) -> float:
        high, low = (np.where(allowed, positional, fill) for fill in (-np.inf, np.inf))
        ranges = high.max(axis=1) - low.min(axis=1)
        return residual_bounds.softmax_floor(int(allowed.sum(axis=1).max()), M, float(ranges.max()))

    return _smallest_weight(floor, positional=positional, **attention)


@statement(
    "herasimchyk-5.3-ii",
    "Lemma 5.3 (ii)",
    _draw_attention,
    corrected=_floor_amended,
    erratum="lemma-5.3-ii",
    shows="weight of a key with positional logit −5",
    witness={
        "hidden": [[0.1], [0.1]],
        "query": [[1.0]],
        "key": [[1.0]],
        "positional": [[0.0, -5.0], [-5.0, 0.0]],
        "width": 2,
    },
    asserts="Where hidden states are bounded as in (i), there is an ε > 0, the same at all depths, below every "
    "admitted weight (positional logits that range over no more than B).",
    scope=SEEN,
    proof=OURS,
)
def lemma_5_3_ii(**attention: Any) -> float:
    """Every admitted weight is at least e^(−2M)/n, M = (C_X C)², whatever the positional logits."""
    return _smallest_weight(lambda allowed, M: np.exp(-2 * M) / len(allowed), **attention)


# --- Theorem 5.4, kernels given --------------------------------------------------------------------------------


def _draw_deep(rng: Generator, edge: bool, exponents: tuple[float, ...], depth: int, widths: str) -> Instance:
    """Kernels with a floor, used in turn; λ_t = initial/(t + 1)^exponent."""
    tokens = 2 if edge and widths == "causal" and rng.random() < 0.5 else int(rng.integers(2, 7))
    narrowest = 2 if widths == "two or more" else 1
    width = tokens if widths == "causal" else int(rng.integers(min(narrowest, tokens), tokens + 1))
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


DIVERGENT = partial(_draw_deep, exponents=(0.0, 0.5, 1.0), depth=150)


def deep_rollouts(
    kernels: Stack, initial: float, exponent: float, depth: int, width: int
) -> tuple[Stack, Float[np.ndarray, "layer"], float]:
    """The rollout at every depth, the λ, and the floor ε."""
    mixing = PowerDecay(initial, exponent).values(depth)
    allowed = draws.admitted(kernels.shape[-1], width)
    floor = min(residual_bounds.smallest_admitted(kernel, allowed) for kernel in kernels)
    return rollouts(kernels[np.arange(depth) % len(kernels)], mixing), mixing, floor


@statement(
    "herasimchyk-5.4-i",
    "Theorem 5.4 (i)",
    partial(_draw_deep, exponents=(1.01, 1.5, 2.0, 4.0), depth=60, widths="any"),
    erratum="theorem-5.4-i",
    scope=FLOOR,
)
def theorem_5_4_i(**deep: Any) -> float:
    """For summable λ (power decay, β > 1) every token i keeps P_ii ≥ Π(1 − (1 − ε)λ) at every depth, and every
    token but the first draws at most 1 − Π_∞ < 1 from the first.
    """
    products, mixing, floor = deep_rollouts(**deep)
    own = room(residual_bounds.self_bound(mixing, floor)[:, None], np.diagonal(products, axis1=1, axis2=2))
    limit = residual_bounds.dichotomy(PowerDecay(deep["initial"], deep["exponent"]), floor)
    return min(own, (limit.first_token - products[:, 1:, 0]).min())


def _collapse(**deep: Any) -> float:
    """Everything at j and later, and so P_ij and 1 − P_i0, against exp(−jεΣλ), at every depth."""
    products, mixing, floor = deep_rollouts(**deep)
    bound = [residual_bounds.exponential_bound(mixing, floor, j) for j in range(1, products.shape[-1])]
    return room(suffixes(products)[:, 1:].T, bound, products[-1])


@statement("herasimchyk-5.4-ii", "Theorem 5.4 (ii)", partial(DIVERGENT, widths="causal"), scope=FLOOR)
def theorem_5_4_ii(**deep: Any) -> float:
    """For divergent λ (power decay, β ≤ 1) and kernels with floor ε under the causal mask, all that positions ≥ j
    (from 0) hold is at most exp(−jεΣλ) at every depth, so P_ij is, and P_i0 → 1.

    Holds with C′ = 1 and for whole suffixes; as printed C′ and ε may depend on T, which says nothing. The step
    from P_jj to P_ij is sound: each layer takes at least jελ of what positions ≥ j hold, for good.
    """
    return _collapse(**deep)


@statement(
    "herasimchyk-5.4-ii-attention-only",
    "Theorem 5.4 (ii), attention alone",
    lambda rng, edge: {**DIVERGENT(rng, edge, exponents=(0.0,), widths="causal"), "initial": 1.0},
    erratum="theorem-5.4-attention-only",
    strength="observation",
    scope=f"{FLOOR}, λ = 1",
    effort="a remark",
)
def attention_alone(**deep: Any) -> float:
    """At λ = 1 in every layer all that positions ≥ j (from 0) hold after T layers is at most exp(−jεT), and at
    most the (1 − jε)^T of Wu et al., which is never above it; their Theorem 4.1 holds of R⁽ᵀ⁾⋯R⁽¹⁾.
    """
    products, mixing, floor = deep_rollouts(**deep)
    positions = range(1, products.shape[-1])
    theirs = [residual_bounds.suffix_bound(mixing, floor, j) for j in positions]
    exponential = [residual_bounds.exponential_bound(mixing, floor, j) for j in positions]
    # Theorem 4.1 on the rollout of R, not on the product of the attention kernels
    return min(_collapse(**deep), slack_after(products, floor, 1), room(theirs, exponential))


def _window_amended(**deep: Any) -> float:
    """Under windows of width ≥ 2, what token i (from 0) has not drawn from the first is at most the probability
    that fewer than i of independent trials with chances ελ_t succeed, which tends to 0.
    """
    products, mixing, floor = deep_rollouts(**deep)
    missing = products[-1, :, 1:].sum(axis=1)
    return room(missing[1:], [residual_bounds.window_bound(mixing, floor, i) for i in range(1, len(missing))])


@statement(
    "herasimchyk-5.4-ii-window",
    "Theorem 5.4 (ii), sliding window",
    (partial(DIVERGENT, widths="any"), partial(DIVERGENT, widths="two or more")),
    corrected=_window_amended,
    erratum="theorem-5.4-ii-window",
    witness={
        "kernels": [[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]],
        "initial": 0.5,
        "exponent": 0.0,
        "depth": 200,
        "width": 2,
    },
    **OURS,
    scope="sliding-window masks, of which Theorem 5.4 does not speak",
)
def window(**deep: Any) -> float:
    """The same rate under the sliding-window masks of §3."""
    return _collapse(**deep)


# --- Theorem 5.4 of a network, and Lemma 5.3 (i) for several heads -------------------------------------------


def _missing_after(floors: Any, **network: Any) -> float:
    """What the first token has not drawn in the end, against Π(1 − ε_t λ_t) of floors by tokens."""
    mixing, kernels = network["mixing"], np.stack(run_network(**network)[1])
    missing = rollouts(kernels, mixing)[-1, :, 1:].sum(axis=1)
    return room(missing, np.prod(1 - floors(kernels.shape[-1]) * mixing))


def _network_amended(**network: Any) -> float:
    """1 − P_i0 ≤ Π(1 − ε_t λ_t), with ε_t from the norm bound of 5.3 (i) as amended at each layer; for ‖W_V‖ ≤ 1
    one ε serves all depths, and the first token takes all if Σλ = ∞.
    """
    start = np.linalg.norm(network["hidden"], axis=1).max()
    bound = _norm_bound(network["hidden"], operator_norm(network["values"]), network["mixing"])
    states = np.concatenate([[start], bound[:-1]])
    logits = states**2 * operator_norm(network["queries"]) * operator_norm(network["keys"])

    def floors(tokens: int) -> Any:
        return np.array([residual_bounds.softmax_floor(tokens, float(M)) for M in logits])

    return _missing_after(floors, **network)


@statement(
    "herasimchyk-5.4-ii-network",
    "Theorem 5.4 (ii) from Assumptions 5.1 and 5.2",
    _draw_network,
    corrected=_network_amended,
    erratum="theorem-5.4-ii",
    shows="what the second token keeps after 60 layers of W_V = 30, 1/30, …",
    witness=growing([[0.0], [0.1]], 0.1, 30.0, 60),
    scope=UPDATE,
)
def from_assumptions(**network: Any) -> float:
    """For a network under these assumptions the first token draws everything if Σλ = ∞: 1 − P_i0 ≤ Π(1 − ελ),
    with ε of Lemma 5.3's constants.
    """
    C, C_V = _assumed(**network)
    return _missing_after(lambda tokens: np.exp(-2 * (C * C_V * C) ** 2) / tokens, **network)


def _draw_head_values(rng: Generator, edge: bool, full: bool = False) -> Instance:
    """Networks of several heads; λ = 1 where `full`, where both readings of the residual dynamics are the same."""
    tokens, dim, depth, heads = (int(rng.integers(1, high)) for high in (5, 4, 20, 4))
    shape = (depth, heads, tokens, tokens)
    network = {
        "hidden": rng.normal(size=(tokens, dim)),
        "heads": masked_softmax(rng.normal(size=shape), np.tri(tokens, dtype=bool)),
        "values": np.stack([_draw_values(rng, depth, dim, edge) for _ in range(heads)], axis=1),
        "mixing": draws.mixing(rng, depth, edge),
    }
    return network | {"mixing": np.ones(depth)} if full else network


def _head_norms(bound: Any, hidden: Any, heads: Any, values: Any, mixing: Any) -> float:
    """The largest norm of a token after each layer, against a bound."""
    X, norms = hidden, []
    for kernels, value, lam in zip(heads, values, mixing, strict=True):
        X = (1 - lam) * X + lam * (kernels @ (X @ value)).mean(axis=0)
        norms.append(np.linalg.norm(X, axis=1).max())
    return room(norms, np.broadcast_to(bound, len(norms)))


def _head_values_amended(**network: Any) -> float:
    """Norms stay within the input's times Π(1 − λ + λ·mean_h‖W_V^h‖), for every λ."""
    means = operator_norm(network["values"]).mean(axis=1)
    return _head_norms(_norm_bound(network["hidden"], means, network["mixing"]), **network)


@statement(
    "herasimchyk-5.1-values",
    "§5.1, Lemma 5.3 (i) for heads",
    (partial(_draw_head_values, full=True), _draw_head_values),
    corrected=_head_values_amended,
    erratum="section-5.1",
    shows="norm of a token after 20 layers of two heads, λ = 1",
    witness={
        "hidden": [[1.0]],
        "heads": [[[[1.0]], [[1.0]]]] * 20,
        "values": [list(pair) for pair in zip(_alternating(2, 20), _alternating(0.5, 20), strict=True)],
        "mixing": [1.0] * 20,
    },
    strength="observation",
    scope="networks of several heads, each with value matrices under Assumption 5.2",
    effort="a remark",
)
def heads_values(**network: Any) -> float:
    """Lemma 5.3 (i) applies verbatim to the mean over heads if Assumption 5.2 holds uniformly across them: norms
    stay bounded at all depths (by ‖X⁽⁰⁾‖·C_V, C_V the largest product of any one head's value matrices; λ = 1).
    """
    start = np.linalg.norm(network["hidden"], axis=1).max()
    return _head_norms(start * largest_product(network["values"]), **network)
