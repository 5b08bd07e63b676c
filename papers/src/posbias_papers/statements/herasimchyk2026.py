"""Herasimchyk et al. 2026, §4, Appendix A.1 and §5: what moves the rollout, and what becomes of it with depth.

Each claim of §4 is first-order dominance between two rollouts that differ in depth, mixing, encoding or content,
for kernels that are stochastically monotone (`draws`). Proposition 4.5 is tried twice: as it stands, with one sign
of δ in all layers, and layer by layer, which its closing 'equivalently' suggests. Two steps of the proofs do not
stand as printed; they are repaired without harm to the propositions.

Theorem 5.4: the first token draws everything if Σλ diverges, not if it converges. Limits are made concrete with
the constants the proofs give at every finite depth (ε the smallest admitted weight, C′ = 1). Statements about a
network run one, with A = softmax(X W_Q (X W_K)ᵀ): X ← X + A·X·W_V as Section 3 prints it, X ← ((1 − λ)X +
λ·A·X)·W_V as the proof of Lemma 5.3 expands it, and, as readings of ours, X ← (1 − λ)X + λ·A·X·W_V. Assumption
5.2 bounds the products of the value matrices, not each of them: drawn are networks whose products are bounded by
construction, and the sharpest case known (`draws.growing`), values that alternate between large and small, whose
products stay bounded while the stream grows. Positions and layers count from 0, bottom layer first.
"""

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.profiles import stochastic_order
from posbias.theory.mixing import PowerDecay
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.closed_forms import bounds
from posbias_papers.statements import margins
from posbias_papers.statements.draws import (
    Instance,
    Sampler,
    admitted,
    alternating,
    growing,
    kernel_of,
    log_weights,
)
from posbias_papers.statements.record import OURS, REMARK, ROUNDING, STEP, statement
from posbias_papers.statements.wu2025 import slack_of_collapse

ordered = partial(statement, tolerance=ROUNDING)
"""Of prefix masses."""
STEP_SIZE = 1e-30
"""Of the complex step: its square is below the rounding of 1."""


def last_row(kernels: margins.Stack, mixing: Any) -> Float[np.ndarray, "key"]:
    """What the last token draws through all layers."""
    return margins.rollouts(kernels, mixing)[-1, -1]


# --- the four forces -----------------------------------------------------------------------------------------


def falling_logits(s: Sampler) -> Instance:
    """Logits by distance that do not rise with it."""
    tokens, width = s.size
    falls = s.rng.exponential(size=tokens) * (s.rng.random(tokens) < 0.5) * (40 if s.edge else 1)
    return {"logits": -np.cumsum(falls), "width": width}


@ordered("herasimchyk-4.1", "Assumption 4.1 (remark)", falling_logits, **OURS)
def assumption_4_1(logits: Any, width: int) -> float:
    """Logits that do not rise with distance give stochastically monotone kernels under causal and sliding-window
    masks.

    Neither a full mask (weights 1, 1, 0.1, 0.1 by distance) nor logits that rise with distance, as those of RoPE
    may, need give a monotone kernel.

    Scope: attention by distance alone; the decaying ones of the 'smoothly decaying or symmetric kernels' with
    which the paper calls the assumption naturally compatible

    Evidence: a remark
    """
    tokens = len(logits)
    kernel = masked_softmax(logits[np.abs(margins.distances(tokens))], admitted(tokens, width))
    return stochastic_order.monotonicity(kernel).margin


def _least_gain(kernels: margins.Stack, mixing: Any) -> float:
    """Least gain of any prefix from one depth to the next, the input (depth 0) included."""
    rows = margins.rollouts(kernels, mixing)[:, -1]
    return min(
        margins.dominance(*pair) for pair in zip([np.eye(len(rows[0]))[-1], *rows], rows, strict=False)
    )


@ordered("herasimchyk-4.2", "Proposition 4.2", Sampler.stack)
def proposition_4_2(kernels: margins.Stack, mixing: Any, width: int) -> float:
    """Each prefix mass of the last row grows with every layer added on top.

    Monotone kernels suffice: the proof never uses the mask, so the drift is not the mask's alone.
    """
    return _least_gain(kernels, mixing)


def two_schedules(s: Sampler) -> Instance:
    """Monotone kernels with two schedules of λ, the one nowhere smaller."""
    stack, tops = s.stack(), s.edge and s.coin()
    depth = len(stack["mixing"])
    smaller, larger = np.sort([stack["mixing"], s.mixing(depth)], axis=0)
    # some layers keep their λ (at the edge all but the top): what is raised is seen through their kernels
    larger = np.ones(depth) if tops else np.where(s.rng.random(depth) < 0.5, smaller, larger)
    smaller = larger - np.eye(depth)[-1] if tops else smaller
    return {"kernels": stack["kernels"], "mixing": smaller, "larger_mixing": larger}


@ordered("herasimchyk-4.3", "Proposition 4.3", two_schedules)
def proposition_4_3(kernels: margins.Stack, mixing: Any, larger_mixing: Any) -> float:
    """λ ≤ λ′ in every layer gives p ⪰ p′.

    The printed induction needs Lemma A.2 besides Lemma A.4; see Appendix A.1.2.
    """
    return margins.dominance(last_row(kernels, mixing), last_row(kernels, larger_mixing))


def _top_alone(s: Sampler, changes: Any) -> Any:
    """λ of each layer; at the edge 1, and a change in the top layer alone, seen through all others."""
    if s.edge and s.coin():
        changes[:-1] = 0.0
        return np.ones(len(changes))
    return s.mixing(len(changes))


def encoding_and_content(s: Sampler) -> Instance:
    """Two inputs per layer, neither need be monotone, their mean is; logits that rise along each row."""
    (tokens, width), depth = s.size, s.whole(1, 5)
    kernels = np.stack([s.positive() for _ in range(depth)])
    tilt = s.rng.uniform(-0.9, 0.9, kernels.shape)
    tilt = (tilt - (kernels * tilt).sum(axis=-1, keepdims=True)) / 2
    inputs = np.stack([log_weights(kernels * (1 + sign * tilt)) for sign in (1, -1)], axis=1)
    content = inputs + s.rng.normal(size=(depth, 2, tokens, 1))
    rises = s.rng.exponential(size=kernels.shape) * (s.rng.random(kernels.shape) < s.rng.random())
    positional = np.cumsum(rises, axis=-1) * s.pick([1.0], [0.0, 100.0])
    mixing = _top_alone(s, positional)
    return {"content": content, "positional": positional, "mixing": mixing, "width": width}


@ordered("herasimchyk-4.4", "Proposition 4.4", encoding_and_content)
def proposition_4_4(content: Any, positional: Any, mixing: Any, width: int) -> float:
    """Logits that rise towards recent keys, added to any content whose mean kernel is monotone, give a later
    rollout.

    Two inputs per layer, monotone only in the mean. The printed induction needs Lemma A.2 too.
    """
    both, allowed = (content + positional[:, None], content), admitted(content.shape[-1], width)
    return margins.dominance(*(last_row(masked_softmax(each, allowed).mean(axis=1), mixing) for each in both))


def one_sign(s: Sampler) -> dict[str, Any]:
    """Logits of monotone kernels, and δ of one sign in all layers."""
    (tokens, width), depth = s.size, s.whole(1, 5)
    diagonal = s.rng.exponential(size=depth) * s.pick([2.0], [0.0, 1.0, 30.0], depth)
    mixing = _top_alone(s, diagonal)
    positional = np.stack([log_weights(s.positive()) for _ in range(depth)])
    layers = {"positional": positional, "diagonal": diagonal * s.rng.choice([-1.0, 1.0])}
    return layers | {"mixing": mixing, "width": width, "query": s.whole(1, tokens - 1)}


def _with_diagonal(positional: margins.Stack, diagonal: Any, width: int) -> margins.Stack:
    tokens = positional.shape[-1]
    return masked_softmax(positional + diagonal[:, None, None] * np.eye(tokens), admitted(tokens, width))


def _content_row(diagonal: Any, positional: margins.Stack, mixing: Any, width: int, query: int) -> Any:
    """The rollout's row of the query up to itself, so that the cutoffs are those before it."""
    return margins.rollouts(_with_diagonal(positional, diagonal, width), mixing)[-1, query, : query + 1]


@ordered("herasimchyk-4.5", "Proposition 4.5", one_sign)
def proposition_4_5(diagonal: Any, **layers: Any) -> float:
    """δ ≥ 0 in all layers gives a later row than δ = 0, δ ≤ 0 in all layers an earlier one.

    Says nothing where δ changes sign between layers, as it does in measured models.
    """
    pair = (diagonal, 0 * diagonal) if (diagonal >= 0).all() else (0 * diagonal, diagonal)
    return margins.dominance(*(_content_row(each, **layers) for each in pair))


def raised(s: Sampler) -> Instance:
    """δ of any sign, and another that is nowhere smaller, where in each layer one of the kernels is monotone."""
    instance = one_sign(s)
    smaller = s.rng.normal(0, 2, len(instance["diagonal"]))
    larger = smaller + s.rng.exponential(3, len(smaller)) * (s.rng.random(len(smaller)) < 0.5)
    kernels = (_with_diagonal(instance["positional"], each, instance["width"]) for each in (smaller, larger))
    for layer, pair in enumerate(zip(*kernels, strict=True)):
        if not any(stochastic_order.monotonicity(kernel).holds for kernel in pair):
            (smaller if larger[layer] > 0 else larger)[layer] = 0.0  # that kernel is
    return instance | {"diagonal": smaller, "larger_diagonal": larger}


@ordered("herasimchyk-4.5-layerwise", "Proposition 4.5, layer by layer", raised, **OURS)
def layer_by_layer(diagonal: Any, larger_diagonal: Any, corrected: bool, **layers: Any) -> float:
    """Raising δ in any layer, others of either sign left as they are, gives a later row.

    Corrected: It does where in every layer the kernel with the smaller or with the larger δ is itself monotone.

    Scope: δ of either sign, raised in single layers

    Shows: mass of the first of three tokens once the top layer's δ is raised

    Erratum: proposition-4.5
    """
    return margins.dominance(_content_row(larger_diagonal, **layers), _content_row(diagonal, **layers))


# --- the order: what first-order dominance is, and what keeps it; kernels may look ahead as well ---------------


def kernel_and_functions(s: Sampler) -> Instance:
    """A kernel, monotone or not, and increasing test functions."""
    kernel = s.monotone(ahead=True) if s.coin() else kernel_of(s.prefixes(ahead=True))
    shape = 5, len(kernel)
    return {
        "kernel": kernel,
        "values": np.sort(s.rng.integers(0, 2, shape) * 1.0 if s.edge else s.rng.random(shape)),
    }


@ordered("herasimchyk-A.1", "Definition A.1", kernel_and_functions)
def definition_a_1(kernel: margins.Matrix, values: Any) -> float:
    """The order of rows by all prefix masses and by all increasing test functions is one and the same."""
    by_prefix = stochastic_order.monotonicity(kernel).margin
    # the indicators of later positions are themselves increasing functions, and give each prefix mass
    indicators = np.triu(np.ones(kernel.shape), k=1)[:-1]

    def least_rise(functions: np.ndarray) -> float:
        means = functions @ kernel.T
        return float(min((means[:, j + 1 :] - means[:, [j]]).min() for j in range(len(kernel) - 1)))

    return min(-abs(least_rise(indicators) - by_prefix), least_rise(values) - min(by_prefix, 0.0))


def kernel_and_rows(s: Sampler) -> Instance:
    """A monotone kernel, and two distributions, one later than the other."""
    later, earlier = kernel_of(np.sort(s.prefixes(ahead=True)[:2], axis=0))
    return {"kernel": s.monotone(ahead=True), "later": later, "earlier": earlier}


@ordered("herasimchyk-A.2", "Lemma A.2", kernel_and_rows)
def lemma_a_2(kernel: margins.Matrix, later: Any, earlier: Any) -> float:
    """A stochastically monotone kernel preserves dominance: μ ⪰ ν gives μK ⪰ νK."""
    return float(margins.order_margin(later @ kernel, earlier @ kernel))


def _residual(kernels: margins.Stack, mixing: Any) -> list[margins.Matrix]:
    return [(1 - lam) * np.eye(len(A)) + lam * A for A, lam in zip(kernels, mixing, strict=True)]


@ordered("herasimchyk-A.3", "Lemma A.3", Sampler.stack)
def lemma_a_3(kernels: margins.Stack, mixing: Any, width: int) -> float:
    """(1 − λ)I + λA is stochastically monotone where A is."""
    return min(stochastic_order.monotonicity(layer).margin for layer in _residual(kernels, mixing))


def kernels_and_mass(s: Sampler) -> Instance:
    """Two kernels, one later than the other row by row, and a distribution."""
    later, earlier = s.ordered()
    return {
        "later": later,
        "earlier": earlier,
        "mass": s.rng.dirichlet(np.full(len(later), 0.3 if s.edge else 1.0)),
    }


@ordered("herasimchyk-A.4", "Lemma A.4", kernels_and_mass)
def lemma_a_4(later: margins.Matrix, earlier: margins.Matrix, mass: Any) -> float:
    """Row-wise dominance gives μK ⪰ μK′ for one and the same μ; neither kernel need be monotone."""
    return float(margins.order_margin(mass @ later, mass @ earlier))


def kernel_and_vector(s: Sampler) -> Instance:
    """A monotone kernel and a decreasing vector."""
    kernel = s.monotone(ahead=True)
    values = s.rng.integers(-1, 2, len(kernel)) * 1.0 if s.edge else s.rng.normal(size=len(kernel))
    return {"kernel": kernel, "values": -np.sort(-values)}


@ordered("herasimchyk-A.5", "Lemma A.5", kernel_and_vector)
def lemma_a_5(kernel: margins.Matrix, values: Any) -> float:
    """A stochastically monotone kernel keeps a decreasing vector decreasing."""
    return float(-np.diff(kernel @ values).max() / max(np.abs(values).max(), 1e-300))


# --- three steps of the proofs -------------------------------------------------------------------------------


def two_families(s: Sampler) -> Instance:
    """Two kernels a layer, the later dominating row by row, one of them monotone."""
    depth = s.whole(2, 5)
    later, earlier = map(np.stack, zip(*[s.ordered(monotone=True) for _ in range(depth)], strict=True))
    return {"later": later, "earlier": earlier, "mixing": s.mixing(depth)}


@ordered("herasimchyk-A.1.2", "Appendix A.1.2 and A.1.3, induction", two_families, **OURS)
def induction(later: margins.Stack, earlier: margins.Stack, mixing: Any, corrected: bool) -> float:
    """Row-wise dominance in every layer, Eq. (8), and Lemma A.4 alone, applied at each step, give dominance of the
    rollouts inductively.

    Corrected: They do where in every layer one of the two kernels is stochastically monotone (Lemma A.2 too).

    Scope: a step of the proof as it is printed, not the proposition, which stands

    Shows: mass of token 0 under kernels that dominate row by row

    Erratum: appendix-a.1.2
    """
    return margins.dominance(last_row(later, mixing), last_row(earlier, mixing))


def one_row(s: Sampler) -> Instance:
    """The admitted keys of one row: content, logits that rise towards recent keys, and two strengths of these."""
    keys = s.length()
    rises = s.rng.exponential(size=keys) * (s.rng.random(keys) < s.rng.random())
    strengths = s.rng.choice([-1.0, 0.0, 1e-9, 1.0], 2) if s.edge else s.rng.normal(0, 2, 2)
    return {
        "content": s.rng.normal(0, s.pick([2.0], [0.0, 30.0]), keys),
        "positional": s.rng.normal() + np.cumsum(rises) * s.pick([1.0], [0.0, 30.0]),
        "strengths": np.sort(strengths),
    }


def prefix_at(content: Any, positional: Any, strength: complex) -> Any:
    """Prefix masses of softmax(content + strength·positional), all but the whole; of a complex strength too."""
    logits = content + strength * positional
    weights = np.exp(logits - logits.real.max())
    return np.cumsum(weights)[:-1] / weights.sum()


def prefix_covariance(content: Any, positional: Any, strength: float) -> Any:
    """Cov(1{j ≤ m}, b_j) under softmax(content + strength·positional), for every m but the last."""
    weights = np.diff(prefix_at(content, positional, strength), prepend=0.0, append=1.0)
    return np.cumsum(weights * (positional - weights @ positional))[:-1]


@ordered("herasimchyk-A.1.3", "Appendix A.1.3, softmax step", one_row, **STEP)
def softmax_step(content: Any, positional: Any, strengths: Any) -> float:
    """For any content s and any b that does not fall along the row, the prefix mass of softmax(s + θb) has the
    derivative Cov(1{j ≤ m}, b) ≤ 0 in θ, so it falls with θ, for every prefix m.

    Holds for θ of either sign. No order between rows is needed; it is needed from one layer to the next.

    Scope: one row of attention and its admitted keys
    """
    # derivatives by a complex step, which loses no digits, in units of the range of b where that is above 1
    lower, higher = (prefix_at(content, positional, strength) for strength in strengths)
    slack, span = float((lower - higher).min()), max(float(np.ptp(positional)), 1.0)
    for strength in strengths:
        covariance = prefix_covariance(content, positional, strength)
        slope = prefix_at(content, positional, strength + STEP_SIZE * 1j).imag / STEP_SIZE
        slack = min(slack, -covariance.max() / span, -np.abs(slope - covariance).max() / span)
    return slack


@ordered("herasimchyk-A.1.4", "Appendix A.1.4, order of the product", Sampler.stack, **OURS)
def bottom_first(kernels: margins.Stack, mixing: Any, width: int, corrected: bool) -> float:
    """μ_t = μ_{t−1}R⁽ᵗ⁾ from e_i ends in row i of P⁽ᵀ⁾ = R⁽ᵀ⁾⋯R⁽¹⁾.

    Corrected: μ_s = μ_{s−1}R⁽ᵀ⁺¹⁻ˢ⁾, the top layer first, does.

    Scope: a step of the proof as it is printed, not the proposition, which stands

    Shows: mass of token 0 in the last row of two layers

    Erratum: appendix-a.1.4
    """
    layers = _residual(kernels, mixing)
    row, product = np.eye(len(layers[0]))[-1], margins.rollouts(np.stack(layers))[-1]
    for layer in layers[::-1] if corrected else layers:
        row = row @ layer
    return margins.least(-np.abs(row - product[-1]), product[-1], row, product)


# --- several heads -------------------------------------------------------------------------------------------


def several_heads(s: Sampler) -> Instance:
    """Monotone kernels of some heads in some layers."""
    (_, width), depth, heads = s.size, s.whole(1, 4), s.whole(1, 4)
    kernels = np.array([[s.positive() for _ in range(heads)] for _ in range(depth)])
    return {"heads": kernels, "mixing": s.mixing(depth), "width": width}


@ordered("herasimchyk-5.1", "§5.1, multi-head averaging", several_heads, **REMARK)
def averaged_heads(heads: Any, mixing: Any, width: int) -> float:
    """The mean of monotone kernels is monotone, its floor is at least the least of the heads', and Proposition 4.2
    holds for it.

    Evidence: a remark
    """
    allowed, means = admitted(heads.shape[-1], width), heads.mean(axis=1)
    order = min(stochastic_order.monotonicity(kernel).margin for kernel in means)
    return min(order, margins.room(heads[..., allowed].min(), means[:, allowed]), _least_gain(means, mixing))


# --- Lemma 5.3 -----------------------------------------------------------------------------------------------


def _assumed(hidden: Any, queries: Any, keys: Any, values: Any, **_: Any) -> tuple[float, float]:
    """C of Assumption 5.1 and of the input (Frobenius, the largest of the usual norms), C_V of 5.2."""
    weights = max(margins.operator_norm(queries).max(), margins.operator_norm(keys).max())
    return max(float(weights), float(np.linalg.norm(hidden))), margins.largest_product(values)


def _run(hidden: Any, **network: Any) -> tuple[Float[np.ndarray, "layer"], margins.Stack]:
    """The largest norm of a token after each layer, and the attention kernels (causal)."""
    states, kernels = margins.run_network(hidden, **network, allowed=np.tri(len(hidden), dtype=bool))
    return np.linalg.norm(states, axis=-1).max(axis=1), kernels


def _norm_bound(hidden: Any, norms: Any, mixing: Any) -> Float[np.ndarray, "layer"]:
    """Lemma 5.3 (i) as corrected, after each layer, of value matrices of these norms: ‖X‖·Π(1 − λ + λ‖W_V‖)."""
    return bounds.hidden_state_bound(mixing, norms, float(np.linalg.norm(hidden, axis=1).max()))


@statement("herasimchyk-5.3-i", "Lemma 5.3 (i)", Sampler.network, witness=growing([[1.0]], 1.0, 1.0, 10))
def lemma_5_3_i(corrected: bool, **network: Any) -> float:
    """Under Assumptions 5.1 and 5.2 and ‖X⁽⁰⁾‖ ≤ C every token's norm stays within C_X = C·C_V at all depths, for
    X⁽ᵗ⁾ = X⁽ᵗ⁻¹⁾ + Attn(X⁽ᵗ⁻¹⁾), the update of Section 3.

    Corrected: Under Assumptions 5.1 and 5.2 and ‖X⁽⁰⁾‖ ≤ C every token's norm stays within C_X = C·C_V at all
    depths, for X⁽ᵗ⁾ = R⁽ᵗ⁾X⁽ᵗ⁻¹⁾W_V, as the proof expands the dynamics.

    Scope: networks under Assumptions 5.1 and 5.2, the paper's; the lemma names no update: X + Attn(X) is the one
    that Section 3 prints; as amended that of its proof, R⋯R·X⁽⁰⁾·W_V⋯W_V, with which Theorem 5.4 (ii) is tried

    Erratum: lemma-5.3-i
    """
    return margins.room(
        _run(**network, whole=corrected, added=not corrected)[0], np.prod(_assumed(**network))
    )


@statement(
    "herasimchyk-5.3-i-residual",
    "Lemma 5.3 (i), of the residual update",
    Sampler.network,
    witness=growing([[1.0]], 1.0, 2.0, 41),
    **OURS,
)
def of_residual_update(corrected: bool, **network: Any) -> float:
    """Under Assumptions 5.1 and 5.2 and ‖X⁽⁰⁾‖ ≤ C the residual update X ← (1 − λ)X + λAXW_V keeps every token's
    norm bounded at all depths (by C_X = C·C_V).

    Corrected: Norms stay within the input's times Π(1 − λ + λ‖W_V‖).

    Scope: the residual update of Section 3 with weights λ, W_V in its attention alone

    Evidence: a proof, which writes another update

    Shows: norm of a token after 41 layers of W_V = 2, ½, 2, …

    Erratum: lemma-5.3-i
    """
    norms = _run(**network)[0]
    if not corrected:
        return margins.room(norms, np.prod(_assumed(**network)))
    return margins.room(
        norms, _norm_bound(network["hidden"], margins.operator_norm(network["values"]), network["mixing"])
    )


def one_layer(s: Sampler) -> Instance:
    """Hidden states and a layer's attention; at the edge the first key opposite to all others: the sharp case."""
    (tokens, width), dim = s.size, s.whole(1, 3)
    hidden = s.rng.normal(size=(tokens, dim)) / np.sqrt(dim)
    query, key = s.rng.normal(size=(2, dim, dim)) / np.sqrt(dim)
    if s.edge:
        hidden = np.where(np.arange(tokens)[:, None] == 0, -1.0, 1.0)
        query = key = np.full((1, 1), s.rng.choice([0.0, 1.0, 1.4]))
    positional = -s.rng.choice([0.0, 0.5, 5.0]) * np.abs(margins.distances(tokens))
    return {"hidden": hidden, "query": query, "key": key, "positional": positional, "width": width}


@statement("herasimchyk-5.3-ii", "Lemma 5.3 (ii)", one_layer)
def lemma_5_3_ii(hidden: Any, query: Any, key: Any, positional: Any, width: int, corrected: bool) -> float:
    """Every admitted weight is at least one ε > 0, the same at all depths, with no assumption on positional
    encodings (tried: the softmax bound e^(−2M)/n, M = (C_X C)²).

    Corrected: Every admitted weight is at least 1/(1 + (k − 1)e^(2M + B)), for k keys in the longest row and
    positional logits that range over no more than B within a row at any depth.

    Scope: networks whose hidden states are bounded as in (i), the paper's hypothesis; as amended positional logits
    are bounded over depth too, as every encoding's that is the same in all layers

    Shows: weight of a key in layer 5, where its positional logit is −t in layer t

    Erratum: lemma-5.3-ii
    """
    allowed = admitted(len(hidden), width)
    kernel = masked_softmax((hidden @ query) @ (hidden @ key).T + positional, allowed)
    C, C_X = (
        max(margins.operator_norm(query), margins.operator_norm(key)),
        np.linalg.norm(hidden, axis=1).max(),
    )
    M = float((C_X * C) ** 2)
    floor = np.exp(-2 * M) / len(allowed)
    if corrected:
        rows = np.where(allowed, positional, np.nan)
        ranges = np.nanmax(rows, axis=-1) - np.nanmin(rows, axis=-1)
        keys = int(allowed.sum(axis=1).max())
        floor = np.exp(bounds.log_attention_floor(keys, M, float(ranges.max())))
    return margins.room(floor, kernel[..., allowed].min(axis=-1), kernel, lower=True)


# --- Theorem 5.4, kernels given --------------------------------------------------------------------------------


def deep(s: Sampler, kind: str = "causal", exponents: tuple[float, ...] = (0.0, 0.5, 1.0)) -> Instance:
    """Kernels with a floor; λ_t = initial/(t + 1)^exponent."""
    initial = s.real(0.0, 1.0, (0.0, 1e-6, 1.0))
    return {"initial": initial, "exponent": s.one_of(*exponents), **s.masked(kind, most=150)}


def attention_only(s: Sampler) -> Instance:
    """The same, λ = 1."""
    return {**deep(s), "initial": 1.0, "exponent": 0.0}


def deep_rollouts(
    kernels: margins.Stack, initial: float, exponent: float, size: int = 0
) -> tuple[margins.Stack, Float[np.ndarray, "layer"], float]:
    """The rollout at every depth, the λ, and the floor ε; `size` is that of the kernels' mask."""
    mixing = PowerDecay(initial, exponent).values(len(kernels))
    return margins.rollouts(kernels, mixing), mixing, margins.floor_of(kernels)


SUMMABLE = partial(deep, kind="window", exponents=(1.01, 1.5, 2.0, 4.0))
WINDOWS = partial(deep, kind="window")


@statement("herasimchyk-5.4-i", "Theorem 5.4 (i)", SUMMABLE)
def theorem_5_4_i(initial: float, exponent: float, **kernels: Any) -> float:
    """For summable λ (tried: power decay, β > 1) every token i keeps P_ii ≥ Π(1 − (1 − ε)λ) at every depth, and
    every token (the first, of which it cannot be so, left out) draws at most 1 − Π_∞ < 1 from the first.

    Scope: kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it

    Erratum: theorem-5.4-i
    """
    products, mixing, floor = deep_rollouts(**kernels, initial=initial, exponent=exponent)
    own = margins.room(bounds.self_bound(mixing, floor)[:, None], np.diagonal(products, axis1=1, axis2=2))
    kept = bounds.retained(PowerDecay(initial, exponent), floor)
    return min(own, (1 - kept - products[:, 1:, 0]).min())


def _collapse(products: margins.Stack, mixing: Any, floor: float) -> float:
    """Everything at j and later, and so P_ij and 1 − P_i0, against exp(−jεΣλ), at every depth."""
    bound = [bounds.exponential_bound(mixing, floor, j) for j in range(1, products.shape[-1])]
    return margins.room(margins.suffixes(products)[:, 1:].T, bound, products[-1])


@statement("herasimchyk-5.4-ii", "Theorem 5.4 (ii)", deep)
def theorem_5_4_ii(**deep: Any) -> float:
    """For divergent λ (tried: power decay, β ≤ 1) and kernels with floor ε under the causal mask, all that
    positions ≥ j (from 0) hold is at most exp(−jεΣλ) at every depth, so P_ij is, and P_i0 → 1.

    Holds with C′ = 1 and for whole suffixes; as printed C′ and ε may depend on T, which says nothing. The step
    from P_jj to P_ij is sound: each layer takes at least jελ of what positions ≥ j hold, for good.

    Scope: kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it
    """
    return _collapse(*deep_rollouts(**deep))


@statement("herasimchyk-5.4-ii-attention-only", "Theorem 5.4 (ii), attention alone", attention_only, **REMARK)
def attention_alone(**deep: Any) -> float:
    """At λ = 1 in every layer the collapse of Wu et al. is recovered: all that positions ≥ j (from 0) hold after T
    layers is at most exp(−jεT), and their Theorem 4.1 holds of R⁽ᵀ⁾⋯R⁽¹⁾.

    Scope: kernels whose admitted weights stay above one ε, as Lemma 5.3 (ii) has it, λ = 1

    Erratum: theorem-5.4-attention-only

    Evidence: a remark
    """
    products, mixing, floor = deep_rollouts(**deep)
    positions = range(1, products.shape[-1])
    theirs = [np.exp(bounds.log_collapse_bound(np.full(len(mixing), floor), j, mixing)) for j in positions]
    exponential = [bounds.exponential_bound(mixing, floor, j) for j in positions]
    # Theorem 4.1 on the rollout of R, not on the product of the attention kernels
    of_rollout = slack_of_collapse(products, floor, 1)
    return min(_collapse(products, mixing, floor), of_rollout, margins.room(theirs, exponential))


FOUR: dict[str, Any] = {"initial": 0.5, "exponent": 0.0, "size": 2}
FOUR["kernels"] = [[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]] * 200


@statement("herasimchyk-5.4-ii-window", "Theorem 5.4 (ii), sliding window", WINDOWS, witness=FOUR, **OURS)
def window(corrected: bool, **deep: Any) -> float:
    """The same rate under the sliding-window masks of §3.

    Corrected: Under windows of width ≥ 2, what token i (from 0) has not drawn from the first is at most the
    probability that fewer than i of independent trials with chances ελ_t succeed, which tends to 0.

    Scope: sliding-window masks, of which Theorem 5.4 does not speak

    Erratum: theorem-5.4-ii-window
    """
    products, mixing, floor = deep_rollouts(**deep)
    if not corrected:
        return _collapse(products, mixing, floor)
    missing = products[-1, :, 1:].sum(axis=1)
    return margins.room(missing[1:], [bounds.window_bound(mixing, floor, i) for i in range(1, len(missing))])


# --- Theorem 5.4 of a network, and Lemma 5.3 (i) for several heads -------------------------------------------


DEEP = growing([[0.0], [0.1]], 0.1, 30.0, 60)


@statement("herasimchyk-5.4-ii-network", "Theorem 5.4 (ii) from Assumptions 5.1 and 5.2", Sampler.network)
def from_assumptions(corrected: bool, **network: Any) -> float:
    """For a network under these assumptions, with none on positional encodings, the first token draws everything
    if Σλ = ∞: 1 − P_i0 ≤ Π(1 − ελ), with ε of Lemma 5.3's constants.

    Corrected: The same without positional logits.

    Scope: networks whose stream is R⋯R·X⁽⁰⁾·W_V⋯W_V, as in the proof of Lemma 5.3

    Alias: herasimchyk2026/lemma-5.3-ii

    Shows: what the second token keeps after ten layers of logits −t in layer t, λ = 1

    Erratum: theorem-5.4-ii-encodings
    """
    return margins.room(_missing(**network, whole=True), _kept(network, _assumed(**network)))


def _missing(whole: bool = False, **network: Any) -> Float[np.ndarray, "query"]:
    """1 − P_i0 of each token i after all layers."""
    return margins.rollouts(_run(**network, whole=whole)[1], network["mixing"])[-1, :, 1:].sum(axis=1)


def _kept(network: dict[str, Any], assumed: tuple[float, float]) -> float:
    """Π(1 − ελ) with ε = e^(−2M)/n, M = (C_X·C)² and C_X = C·C_V, X⁽⁰⁾ among the states that C_X bounds."""
    C, C_V = assumed
    return float(
        np.prod(1 - np.exp(-2 * (C * max(C_V, 1.0) * C) ** 2) / len(network["hidden"]) * network["mixing"])
    )


@statement(
    "herasimchyk-5.4-ii-residual",
    "Theorem 5.4 (ii) from Assumptions 5.1 and 5.2, of the residual update",
    Sampler.network,
    witness=DEEP,
    **OURS,
)
def from_assumptions_of_residual_update(corrected: bool, **network: Any) -> float:
    """For X ← (1 − λ)X + λAXW_V too the first token draws everything if Σλ = ∞: 1 − P_i0 ≤ Π(1 − ελ), with ε of
    Lemma 5.3's constants.

    Corrected: 1 − P_i0 ≤ Π(1 − ε_t λ_t), with ε_t from the norm bound of 5.3 (i) as amended at each layer; for
    ‖W_V‖ ≤ 1 one ε serves all depths, and the first token takes all if Σλ = ∞.

    Scope: the residual update of Section 3 with weights λ, W_V in its attention alone

    Evidence: a proof, which writes another update

    Alias: herasimchyk2026/lemma-5.3-i-of-the-residual-update

    Shows: what the second token keeps after 60 layers of W_V = 30, 1/30, …

    Erratum: theorem-5.4-ii
    """
    mixing, hidden = network["mixing"], network["hidden"]
    if not corrected:
        return margins.room(_missing(**network), _kept(network, _assumed(**network)))
    bound = _norm_bound(hidden, margins.operator_norm(network["values"]), mixing)
    states = np.append(np.linalg.norm(hidden, axis=1).max(), bound[:-1])
    logits = states**2 * margins.operator_norm(network["queries"]) * margins.operator_norm(network["keys"])
    floors = np.exp([bounds.log_attention_floor(len(hidden), float(M)) for M in logits])
    return margins.room(_missing(**network), np.prod(1 - floors * mixing))


def value_heads(s: Sampler) -> Instance:
    """Networks of several heads, given by their kernels."""
    tokens, dim, depth, heads = (s.whole(1, most) for most in (4, 3, 19, 3))
    logits = s.rng.normal(size=(depth, heads, tokens, tokens))
    return {
        "hidden": s.rng.normal(size=(tokens, dim)),
        "heads": masked_softmax(logits, np.tri(tokens, dtype=bool)),
        "values": np.stack([s.values(depth, dim) for _ in range(heads)], axis=1),
        "mixing": s.mixing(depth),
    }


HEADS = {
    "hidden": [[1.0]],
    "heads": [[[[1.0]], [[1.0]]]] * 20,
    "values": np.stack([alternating(2, 20), alternating(0.5, 20)], axis=1).tolist(),
    "mixing": [1.0] * 20,
}


@statement("herasimchyk-5.1-values", "§5.1, Lemma 5.3 (i) for heads", value_heads, witness=HEADS, **OURS)
def heads_values(hidden: Any, heads: Any, values: Any, mixing: Any, corrected: bool) -> float:
    """Lemma 5.3 (i) applies verbatim to the mean over heads if Assumption 5.2 holds uniformly across them, read as
    one C_V for each head's own products: norms stay bounded at all depths (by ‖X⁽⁰⁾‖·C_V; λ = 1).

    Corrected: Norms stay within the input's times Π(1 − λ + λ·mean_h‖W_V^h‖), for every λ.

    Scope: that reading of “uniformly”, ours; of one W_V for all heads, or of products along all paths, it holds

    Shows: norm of a token after 20 layers of two heads, λ = 1

    Erratum: section-5.1

    Evidence: a remark
    """
    X, norms = hidden, []
    for kernels, value, lam in zip(heads, values, mixing, strict=True):
        X = (1 - lam) * X + lam * (kernels @ (X @ value)).mean(axis=0)
        norms.append(np.linalg.norm(X, axis=1).max())
    if corrected:
        return margins.room(norms, _norm_bound(hidden, margins.operator_norm(values).mean(axis=1), mixing))
    return margins.room(norms, np.linalg.norm(hidden, axis=1).max() * margins.largest_product(values))
