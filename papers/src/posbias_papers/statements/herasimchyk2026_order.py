"""Herasimchyk et al. 2026, §4 and Appendix A.1: depth, mixing, encoding and content each move the rollout one way.

Each claim is first-order dominance between two rollouts that differ in one of them, for kernels that are
stochastically monotone (`draws`). Proposition 4.5 is tried twice: as it stands, with one sign of δ in all layers,
and layer by layer, which its closing 'equivalently' suggests. Two steps of the proofs do not stand as printed;
they are repaired without harm to the propositions. Positions and layers count from 0, bottom layer first.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.profiles import stochastic_order
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements import draws
from posbias_papers.statements.margins import Matrix, Stack, distances, dominance, least, rollouts, room
from posbias_papers.statements.record import OURS, ROUNDING, Instance, statement

ordered = partial(statement, tolerance=ROUNDING)
"""Of prefix masses."""
STEP_SIZE = 1e-30
"""Of the complex step: its square is below the rounding of 1."""


# --- the four forces -----------------------------------------------------------------------------------------


def _draw_distance(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    falls = rng.exponential(size=tokens) * (rng.random(tokens) < 0.5) * (40 if edge else 1)
    return {"logits": -np.cumsum(falls), "width": width}


@ordered(
    "herasimchyk-4.1", "Assumption 4.1 (remark)", _draw_distance, strength="observation", evidence="a remark"
)
def assumption_4_1(logits: Any, width: int) -> float:
    """Logits that do not rise with distance give stochastically monotone kernels under causal and sliding-window
    masks.

    Neither a full mask (weights 1, 1, 0.1, 0.1 by distance) nor logits that rise with distance, as those of RoPE
    may, need give a monotone kernel.

    Scope: attention by distance alone
    """
    tokens = len(logits)
    kernel = masked_softmax(logits[np.abs(distances(tokens))], draws.admitted(tokens, width))
    return stochastic_order.monotonicity(kernel).margin


def _least_gain(kernels: Stack, mixing: Any) -> float:
    """Least gain of any prefix from one depth to the next, the input (depth 0) included."""
    rows = rollouts(kernels, mixing)[:, -1]
    return min(dominance(*pair) for pair in zip([np.eye(len(rows[0]))[-1], *rows], rows, strict=False))


@ordered("herasimchyk-4.2", "Proposition 4.2", draws.stack)
def proposition_4_2(kernels: Stack, mixing: Any, width: int) -> float:
    """Each prefix mass of the last row grows with every layer added on top.

    Monotone kernels suffice: the proof never uses the mask, so the drift is not the mask's alone.
    """
    return _least_gain(kernels, mixing)


def _draw_schedules(rng: Generator, edge: bool) -> Instance:
    stack = draws.stack(rng, edge)
    smaller, larger = np.sort([stack["mixing"], draws.mixing(rng, len(stack["mixing"]), edge)], axis=0)
    # some layers keep their λ (at the edge all but the top): what is raised is seen through their kernels
    larger = np.where(rng.random(len(smaller)) < 0.5, smaller, larger)
    if edge and rng.random() < 0.5:
        larger = np.ones_like(larger)
        smaller = larger - np.eye(len(larger))[-1]
    return {"kernels": stack["kernels"], "mixing": smaller, "larger_mixing": larger}


@ordered("herasimchyk-4.3", "Proposition 4.3", _draw_schedules)
def proposition_4_3(kernels: Stack, mixing: Any, larger_mixing: Any) -> Any:
    """λ ≤ λ′ in every layer gives p ⪰ p′.

    The printed induction needs Lemma A.2 besides Lemma A.4; see Appendix A.1.2.
    """
    return dominance(*(rollouts(kernels, each)[-1, -1] for each in (mixing, larger_mixing)))


def draw_encoding(rng: Generator, edge: bool) -> Instance:
    """Two inputs per layer, neither need be monotone, their mean is; logits that rise along each row."""
    (tokens, width), depth = draws.size(rng, edge), int(rng.integers(1, 6))
    kernels = np.stack([draws.positive(rng, tokens, width, edge) for _ in range(depth)])
    tilt = rng.uniform(-0.9, 0.9, kernels.shape)
    tilt = (tilt - (kernels * tilt).sum(axis=-1, keepdims=True)) / 2
    inputs = np.stack([draws.log_weights(kernels * (1 + sign * tilt)) for sign in (1, -1)], axis=1)
    content = inputs + rng.normal(size=(depth, 2, tokens, 1))
    rises = rng.exponential(size=kernels.shape) * (rng.random(kernels.shape) < rng.random())
    positional = np.cumsum(rises, axis=-1) * (rng.choice([0.0, 100.0]) if edge else 1.0)
    mixing = draws.mixing(rng, depth, edge)
    if edge and rng.random() < 0.5:  # a change in the top layer, seen through all others
        positional[:-1], mixing = 0.0, np.ones(depth)
    return {"content": content, "positional": positional, "mixing": mixing, "width": width}


@ordered("herasimchyk-4.4", "Proposition 4.4", draw_encoding)
def proposition_4_4(content: Any, positional: Any, mixing: Any, width: int) -> Any:
    """Logits that rise towards recent keys, added to any content whose mean kernel is monotone, give a later
    rollout.

    Two inputs per layer, monotone only in the mean. The printed induction needs Lemma A.2 too.
    """
    allowed = draws.admitted(content.shape[-1], width)
    kernels = (
        masked_softmax(each, allowed).mean(axis=1) for each in (content + positional[:, None], content)
    )
    return dominance(*(rollouts(each, mixing)[-1, -1] for each in kernels))


def _draw_diagonal(rng: Generator, edge: bool) -> dict[str, Any]:
    """Logits of monotone kernels, and δ of one sign in all layers."""
    (tokens, width), depth = draws.size(rng, edge), int(rng.integers(1, 6))
    sizes = rng.exponential(size=depth) * (rng.choice([0.0, 1.0, 30.0], size=depth) if edge else 2.0)
    mixing = draws.mixing(rng, depth, edge)
    if edge and rng.random() < 0.5:  # a change in the top layer, seen through all others
        sizes[:-1], mixing = 0.0, np.ones(depth)
    positional = [draws.log_weights(draws.positive(rng, tokens, width, edge)) for _ in range(depth)]
    layers = {"positional": np.stack(positional), "diagonal": sizes * rng.choice([-1.0, 1.0])}
    return layers | {"mixing": mixing, "width": width, "query": int(rng.integers(1, tokens))}


def _with_diagonal(positional: Stack, diagonal: Any, width: int) -> Stack:
    tokens = positional.shape[-1]
    return masked_softmax(
        positional + diagonal[:, None, None] * np.eye(tokens), draws.admitted(tokens, width)
    )


def _content_row(diagonal: Any, positional: Stack, mixing: Any, width: int, query: int) -> Any:
    """The rollout's row of the query up to itself, so that the cutoffs are those before it."""
    return rollouts(_with_diagonal(positional, diagonal, width), mixing)[-1, query, : query + 1]


@ordered("herasimchyk-4.5", "Proposition 4.5", _draw_diagonal)
def proposition_4_5(diagonal: Any, **layers: Any) -> Any:
    """δ ≥ 0 in all layers gives a later row than δ = 0, δ ≤ 0 in all layers an earlier one.

    Says nothing where δ changes sign between layers, as it does in measured models.
    """
    pair = (diagonal, 0 * diagonal) if (diagonal >= 0).all() else (0 * diagonal, diagonal)
    return dominance(*(_content_row(each, **layers) for each in pair))


def _draw_raised(rng: Generator, edge: bool) -> dict[str, Any]:
    """δ of any sign, and another that is nowhere smaller."""
    instance = _draw_diagonal(rng, edge)
    smaller, rise = rng.normal(0, 2, len(instance["diagonal"])), rng.exponential(3, len(instance["diagonal"]))
    larger = smaller + rise * (rng.random(len(rise)) < 0.5)
    return instance | {"diagonal": smaller, "larger_diagonal": larger}


def _draw_raised_monotone(rng: Generator, edge: bool) -> Instance:
    """The same, where in each layer one of the two kernels is monotone: if neither is, one δ becomes 0."""
    instance = _draw_raised(rng, edge)
    smaller, larger = instance["diagonal"], instance["larger_diagonal"]
    kernels = (_with_diagonal(instance["positional"], each, instance["width"]) for each in (smaller, larger))
    for layer, pair in enumerate(zip(*kernels, strict=True)):
        if not any(stochastic_order.monotonicity(kernel).holds for kernel in pair):
            (smaller if larger[layer] > 0 else larger)[layer] = 0.0
    return instance


@ordered(
    "herasimchyk-4.5-layerwise",
    "Proposition 4.5, layer by layer",
    (_draw_raised, _draw_raised_monotone),
    erratum="proposition-4.5",
    witness={
        "positional": [
            [[0.0, 0.0, 0.0], np.log([0.5, 0.5, 1.0]).tolist(), np.log([0.49, 0.5, 0.01]).tolist()],
            [[0.0, 0.0, 0.0], [-8.0, 0.0, 0.0], [-9.0, 0.0, 0.0]],
        ],
        "diagonal": [2.0, 0.0],
        "larger_diagonal": [2.0, 3.0],
        "mixing": [1.0, 1.0],
        "width": 3,
        "query": 2,
    },
    **OURS,
)
def layer_by_layer(diagonal: Any, larger_diagonal: Any, corrected: bool, **layers: Any) -> Any:
    """Raising δ in any layer, others of either sign left as they are, gives a later row.

    Corrected: It does where in every layer the kernel with the smaller or with the larger δ is itself monotone.

    Scope: δ of either sign, raised in single layers

    Shows: mass of the first of three tokens once the top layer's δ is raised
    """
    return dominance(_content_row(larger_diagonal, **layers), _content_row(diagonal, **layers))


# --- the order: what first-order dominance is, and what keeps it; kernels may look ahead as well ---------------


def _draw_definition(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    kernel = draws.monotone(rng, tokens, width, edge, ahead=True)
    if rng.random() < 0.5:
        kernel = draws.kernel_of(draws.prefixes(rng, tokens, width, edge, ahead=True))
    values = rng.random((5, tokens)) if not edge else rng.integers(0, 2, (5, tokens)) * 1.0
    return {"kernel": kernel, "values": np.sort(values, axis=1)}


@ordered("herasimchyk-A.1", "Definition A.1", _draw_definition)
def definition_a_1(kernel: Matrix, values: Any) -> float:
    """The order of rows by all prefix masses and by all increasing test functions is one and the same."""
    by_prefix = stochastic_order.monotonicity(kernel).margin
    # the indicators of later positions are themselves increasing functions, and give each prefix mass
    indicators = np.triu(np.ones(kernel.shape), k=1)[:-1]

    def least_rise(functions: np.ndarray) -> float:
        means = functions @ kernel.T
        return float(min((means[:, j + 1 :] - means[:, [j]]).min() for j in range(len(kernel) - 1)))

    exact = -abs(least_rise(indicators) - by_prefix)
    return min(exact, least_rise(values) - min(by_prefix, 0.0))


def _draw_preserved(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    pair = draws.kernel_of(np.sort(draws.prefixes(rng, tokens, width, edge, ahead=True)[:2], axis=0))
    kernel = draws.monotone(rng, tokens, width, edge, ahead=True)
    return {"kernel": kernel, "later": pair[0], "earlier": pair[1]}


@ordered("herasimchyk-A.2", "Lemma A.2", _draw_preserved)
def lemma_a_2(kernel: Matrix, later: Any, earlier: Any) -> Any:
    """A stochastically monotone kernel preserves dominance: μ ⪰ ν gives μK ⪰ νK."""
    return stochastic_order.dominance(later @ kernel, earlier @ kernel)


def _residual(kernels: Stack, mixing: Any) -> list[Matrix]:
    return [(1 - lam) * np.eye(len(A)) + lam * A for A, lam in zip(kernels, mixing, strict=True)]


@ordered("herasimchyk-A.3", "Lemma A.3", draws.stack)
def lemma_a_3(kernels: Stack, mixing: Any, width: int) -> float:
    """(1 − λ)I + λA is stochastically monotone where A is."""
    return min(stochastic_order.monotonicity(layer).margin for layer in _residual(kernels, mixing))


def _draw_rowwise(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    later, earlier = draws.ordered(rng, (tokens, width), edge)
    return {"later": later, "earlier": earlier, "mass": rng.dirichlet(np.full(tokens, 0.3 if edge else 1.0))}


@ordered("herasimchyk-A.4", "Lemma A.4", _draw_rowwise)
def lemma_a_4(later: Matrix, earlier: Matrix, mass: Any) -> Any:
    """Row-wise dominance gives μK ⪰ μK′ for one and the same μ; neither kernel need be monotone."""
    return stochastic_order.dominance(mass @ later, mass @ earlier)


def _draw_vector(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    values = rng.integers(-1, 2, tokens) * 1.0 if edge else rng.normal(size=tokens)
    return {"kernel": draws.monotone(rng, tokens, width, edge, ahead=True), "values": -np.sort(-values)}


@ordered("herasimchyk-A.5", "Lemma A.5", _draw_vector)
def lemma_a_5(kernel: Matrix, values: Any) -> float:
    """A stochastically monotone kernel keeps a decreasing vector decreasing."""
    return float(-np.diff(kernel @ values).max() / max(np.abs(values).max(), 1e-300))


# --- three steps of the proofs -------------------------------------------------------------------------------


def _draw_families(rng: Generator, edge: bool, monotone: bool = False) -> Instance:
    """Two kernels a layer, the later dominating row by row; one of them monotone, or neither need be."""
    shape, depth = draws.size(rng, edge), int(rng.integers(2, 6))
    later, earlier = zip(*[draws.ordered(rng, shape, edge, monotone) for _ in range(depth)], strict=True)
    mixing = draws.mixing(rng, depth, edge)
    return {"later": np.stack(later), "earlier": np.stack(earlier), "mixing": mixing}


@ordered(
    "herasimchyk-A.1.2",
    "Appendix A.1.2 and A.1.3, induction",
    (_draw_families, partial(_draw_families, monotone=True)),
    erratum="appendix-a.1.2",
    witness={
        "later": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]],
        "earlier": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 1, 0]]],
        "mixing": [1.0, 1.0],
    },
    **OURS,
)
def induction(later: Stack, earlier: Stack, mixing: Any, corrected: bool) -> Any:
    """Row-wise dominance in every layer, Eq. (8), and Lemma A.4 alone, applied at each step, give dominance of the
    rollouts inductively.

    Corrected: They do where in every layer one of the two kernels is stochastically monotone (Lemma A.2 too).

    Scope: a step of the proof as it is printed, not the proposition, which stands

    Shows: mass of token 0 under kernels that dominate row by row
    """
    return dominance(*(rollouts(kernels, mixing)[-1, -1] for kernels in (later, earlier)))


def _draw_row(rng: Generator, edge: bool) -> Instance:
    """The admitted keys of one row: content, logits that rise towards recent keys, and two strengths of these."""
    keys = draws.length(rng, edge)
    rises = rng.exponential(size=keys) * (rng.random(keys) < rng.random())
    strengths = rng.choice([-1.0, 0.0, 1e-9, 1.0], 2) if edge else rng.normal(0, 2, 2)
    return {
        "content": rng.normal(0, rng.choice([0.0, 30.0]) if edge else 2.0, keys),
        "positional": rng.normal() + np.cumsum(rises) * (rng.choice([0.0, 30.0]) if edge else 1.0),
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


@ordered("herasimchyk-A.1.3", "Appendix A.1.3, softmax step", _draw_row, strength="constant")
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


@ordered(
    "herasimchyk-A.1.4",
    "Appendix A.1.4, order of the product",
    draws.stack,
    erratum="appendix-a.1.4",
    witness={
        "kernels": [[[1, 0, 0], [1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]],
        "mixing": [1.0, 1.0],
        "width": 3,
    },
    strength="constant",
)
def bottom_first(kernels: Stack, mixing: Any, width: int, corrected: bool) -> float:
    """μ_t = μ_{t−1}R⁽ᵗ⁾ from e_i ends in row i of P⁽ᵀ⁾ = R⁽ᵀ⁾⋯R⁽¹⁾.

    Corrected: μ_s = μ_{s−1}R⁽ᵀ⁺¹⁻ˢ⁾, the top layer first, does.

    Scope: a step of the proof as it is printed, not the proposition, which stands

    Shows: mass of token 0 in the last row of two layers
    """
    layers = _residual(kernels, mixing)
    row, product = np.eye(len(layers[0]))[-1], rollouts(np.stack(layers))[-1]
    for layer in layers[::-1] if corrected else layers:
        row = row @ layer
    return least(-np.abs(row - product[-1]), product[-1], row, product)


# --- several heads -------------------------------------------------------------------------------------------


def _draw_heads(rng: Generator, edge: bool) -> Instance:
    (tokens, width), depth, heads = draws.size(rng, edge), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    kernels = [[draws.positive(rng, tokens, width, edge) for _ in range(heads)] for _ in range(depth)]
    return {"heads": np.array(kernels), "mixing": draws.mixing(rng, depth, edge), "width": width}


@ordered(
    "herasimchyk-5.1", "§5.1, multi-head averaging", _draw_heads, strength="observation", evidence="a remark"
)
def averaged_heads(heads: Any, mixing: Any, width: int) -> float:
    """The mean of monotone kernels is monotone, its floor is at least the least of the heads', and Proposition 4.2
    holds for it.
    """
    allowed, means = draws.admitted(heads.shape[-1], width), heads.mean(axis=1)
    return min(
        min(stochastic_order.monotonicity(kernel).margin for kernel in means),
        room(heads[..., allowed].min(), means[:, allowed]),
        _least_gain(means, mixing),
    )
