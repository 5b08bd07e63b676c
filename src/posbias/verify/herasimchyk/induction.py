"""Appendices A.1.2 to A.1.4: two steps of the proofs that do not stand as printed.

The induction of Propositions 4.3 and 4.4 compares, after a layer, two kernels on two distributions, for
which Lemma A.4 alone is not enough; and the recursion of A.1.4 multiplies the layers in the reverse order.
Both are repaired without harm to the propositions, so each is tried as printed and as repaired.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from posbias import stochastic_order
from posbias.verify.herasimchyk import draws
from posbias.verify.margins import Matrix, Stack, rollout_row, rollouts
from posbias.verify.statement import OURS, ROUNDING, Instance, Statement, both_readings, statement


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
    return stochastic_order.dominance(rollout_row(later, mixing), rollout_row(earlier, mixing))


def _slack_order(kernels: Stack, mixing: Any, width: int, corrected: bool) -> float:
    """Minus the largest difference of the recursion's row from the last row of R⁽ᵀ⁾⋯R⁽¹⁾; corrected: top first."""
    layers = [(1 - lam) * np.eye(len(A)) + lam * A for A, lam in zip(kernels, mixing, strict=True)]
    row = np.eye(kernels.shape[-1])[-1]
    for layer in reversed(layers) if corrected else layers:
        row = row @ layer
    return -float(np.abs(row - rollouts(np.stack(layers))[-1, -1]).max())


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
"""The induction of A.1.2 and A.1.3, the order of the product in A.1.4."""
