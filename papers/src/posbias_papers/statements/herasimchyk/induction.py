"""Appendices A.1.2 to A.1.4: three steps of the proofs, two of which do not stand as printed.

The softmax step of A.1.3 is about one row: the prefix mass of softmax(s + θb), b rising towards recent keys, has
the covariance of prefix and b as its derivative in θ, and falls. The derivative is taken by a complex step, which
loses no digits. The induction of Propositions 4.3 and 4.4 compares, after a layer, two kernels on two
distributions, for which Lemma A.4 alone is not enough; and the recursion of A.1.4 multiplies the layers in the
reverse order. These two are repaired without harm to the propositions, so each is tried as printed and repaired.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.herasimchyk import draws
from posbias_papers.statements.margins import Matrix, Stack, dominance, least, rollout_row, rollouts
from posbias_papers.statements.statement import OURS, ROUNDING, Instance, Statement, both_readings, statement

STEP_SIZE = 1e-30
"""Of the complex step: its square is nothing beside 1."""


def _draw_families(rng: Generator, edge: bool, monotone: bool = False) -> Instance:
    """Two kernels a layer, the later dominating row by row; one of them `monotone`, or neither need be."""
    shape, depth = draws.size(rng, edge), int(rng.integers(2, 6))
    draw = _ordered_monotone if monotone else draws.ordered
    later, earlier = zip(*[draw(rng, shape, edge) for _ in range(depth)], strict=True)
    return {"later": np.stack(later), "earlier": np.stack(earlier), "mixing": draws.mixing(rng, depth, edge)}


def _ordered_monotone(rng: Generator, shape: tuple[int, int], edge: bool) -> tuple[Matrix, Matrix]:
    base, other = np.cumsum(draws.monotone(rng, *shape, edge), axis=1), draws.prefixes(rng, *shape, edge)
    pair = (np.minimum(base, other), base) if rng.random() < 0.5 else (base, np.maximum(base, other))
    return draws.kernel_of(pair[0]), draws.kernel_of(pair[1])


def _slack_families(later: Stack, earlier: Stack, mixing: Any) -> Any:
    return dominance(rollout_row(later, mixing), rollout_row(earlier, mixing))


def _draw_row(rng: Generator, edge: bool) -> Instance:
    """The admitted keys of one row: content, logits that rise towards recent keys, and two strengths of these."""
    keys = 2 if edge and rng.random() < 0.3 else int(rng.integers(2, 9))
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
    weights = masked_softmax((content + strength * positional)[None], np.ones((1, len(content)), dtype=bool))[
        0
    ]
    return np.cumsum(weights * (positional - weights @ positional))[:-1]


def _slack_softmax(content: Any, positional: Any, strengths: Any) -> float:
    """What prefixes lose between two strengths, minus the covariances, and minus their distance from the slope.

    Covariances and slopes are divided by the range of the positional logits where it is above 1.
    """
    lower, higher = (prefix_at(content, positional, strength) for strength in strengths)
    slack, span = float((lower - higher).min()), max(float(np.ptp(positional)), 1.0)
    for strength in strengths:
        covariance = prefix_covariance(content, positional, strength)
        slope = prefix_at(content, positional, strength + STEP_SIZE * 1j).imag / STEP_SIZE
        slack = min(slack, -covariance.max() / span, -np.abs(slope - covariance).max() / span)
    return slack


def _slack_order(kernels: Stack, mixing: Any, width: int, corrected: bool) -> float:
    """Minus the largest difference of the recursion's row from the last row of R⁽ᵀ⁾⋯R⁽¹⁾; corrected: top first."""
    layers = [(1 - lam) * np.eye(len(A)) + lam * A for A, lam in zip(kernels, mixing, strict=True)]
    row = np.eye(kernels.shape[-1])[-1]
    for layer in reversed(layers) if corrected else layers:
        row = row @ layer
    product = rollouts(np.stack(layers))[-1]
    return least(-np.abs(row - product[-1]), product[-1], row, product)


STEP = "a step of the proof as it is printed, not the proposition, which stands"
STEPS: tuple[Statement, ...] = (
    statement(
        "herasimchyk-A.1.2",
        "Appendix A.1.2 and A.1.3, induction",
        "Row-wise dominance in every layer, Eq. (8), and Lemma A.4 alone, applied at each step, give dominance "
        "of the rollouts inductively.",
        (_draw_families, partial(_draw_families, monotone=True)),
        _slack_families,
        corrected="They do where in every layer one of the two kernels is stochastically monotone (Lemma A.2 "
        "too).",
        tolerance=ROUNDING,
        witness={
            "later": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]],
            "earlier": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 1, 0]]],
            "mixing": [1.0, 1.0],
        },
        about={**OURS, "scope": STEP},
        note="The proof names Lemma A.4 alone. It compares two kernels on one distribution, but after "
        "a layer the distributions differ. Assumption 4.1 supplies what is missing, so Propositions 4.3 and 4.4 "
        "stand.",
    ),
    statement(
        "herasimchyk-A.1.3",
        "Appendix A.1.3, softmax step",
        "For any content s and any b that does not fall along the row, the prefix mass of softmax(s + θb) has the "
        "derivative Cov(1{j ≤ m}, b) ≤ 0 in θ, so it falls with θ, for every prefix m.",
        _draw_row,
        _slack_softmax,
        tolerance=ROUNDING,
        about={"strength": "constant", "scope": "one row of attention and its admitted keys"},
        note="Holds for θ of either sign. No order between rows is needed; it is needed from one layer to the "
        "next.",
    ),
    statement(
        "herasimchyk-A.1.4",
        "Appendix A.1.4, order of the product",
        "μ_t = μ_{t−1}R⁽ᵗ⁾ from e_i ends in row i of P⁽ᵀ⁾ = R⁽ᵀ⁾⋯R⁽¹⁾.",
        draws.stack,
        both_readings(_slack_order),
        corrected="μ_s = μ_{s−1}R⁽ᵀ⁺¹⁻ˢ⁾, the top layer first, does.",
        tolerance=ROUNDING,
        witness={
            "kernels": [[[1, 0, 0], [1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]],
            "mixing": [1.0, 1.0],
            "width": 3,
        },
        about={"strength": "constant", "scope": STEP},
        note="The recursion as printed gives a row of R⁽¹⁾⋯R⁽ᵀ⁾. Each step of the induction is the same with "
        "the layers counted from the top, so Proposition 4.5 stands.",
    ),
)
"""The induction of A.1.2 and A.1.3, the softmax step of A.1.3, the order of the product in A.1.4."""
