"""Appendices A.1.2 to A.1.4: two steps of the proofs that do not stand as printed.

The induction of Propositions 4.3 and 4.4 compares, after a layer, two kernels on two distributions, for
which Lemma A.4 alone is not enough; and the recursion of A.1.4 multiplies the layers in the reverse order.
Both are repaired without harm to the propositions, so each is tried as printed and as repaired.
"""

import numpy as np
from numpy.random import Generator

from posbias import stochastic_order
from posbias.verify.herasimchyk import draws
from posbias.verify.herasimchyk.margins import rollout_row, rounded, statement
from posbias.verify.statement import Instance, Statement


def _draw_families(rng: Generator, edge: bool) -> Instance:
    shape, depth = draws.size(rng, edge), int(rng.integers(2, 6))
    later, earlier = zip(*[draws.ordered(rng, shape, edge) for _ in range(depth)], strict=True)
    return {"later": np.stack(later), "earlier": np.stack(earlier), "mixing": draws.mixing(rng, depth, edge)}


def _draw_families_monotone(rng: Generator, edge: bool) -> Instance:
    """In each layer one of the two is monotone, the other dominates it or is dominated by it."""
    shape, depth = draws.size(rng, edge), int(rng.integers(2, 6))
    later, earlier = [], []
    for _ in range(depth):
        base, other = np.cumsum(draws.monotone(rng, *shape, edge), axis=1), draws.prefixes(rng, *shape, edge)
        pair = (np.minimum(base, other), base) if rng.random() < 0.5 else (base, np.maximum(base, other))
        later.append(draws.kernel_of(pair[0]))
        earlier.append(draws.kernel_of(pair[1]))
    return {"later": np.stack(later), "earlier": np.stack(earlier), "mixing": draws.mixing(rng, depth, edge)}


def _slack_families(instance: Instance) -> float:
    rows = (rollout_row(instance[key], instance["mixing"]) for key in ("later", "earlier"))
    return float(stochastic_order.dominance(*rows))


def _slack_order(instance: Instance, top_first: bool) -> float:
    """Minus the largest difference of the recursion's row from the last row of R⁽ᵀ⁾⋯R⁽¹⁾."""
    kernels, mixing = np.asarray(instance["kernels"]), np.asarray(instance["mixing"])
    layers = [(1 - lam) * np.eye(len(A)) + lam * A for A, lam in zip(kernels, mixing, strict=True)]
    product = np.eye(kernels.shape[-1])
    for layer in layers:
        product = layer @ product
    row = np.eye(kernels.shape[-1])[-1]
    for layer in reversed(layers) if top_first else layers:
        row = row @ layer
    return -float(np.abs(row - product[-1]).max())


STEPS: tuple[Statement, ...] = (
    statement(
        "A.1.2",
        "Appendix A.1.2 and A.1.3, induction",
        rounded(
            "Row-wise dominance in every layer gives dominance of the rollouts, by Lemma A.4 alone.",
            _draw_families,
            _slack_families,
        ),
        corrected=rounded(
            "It does where in every layer one of the two kernels is stochastically monotone (Lemma A.2 too).",
            _draw_families_monotone,
            _slack_families,
        ),
        witness={
            "later": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]],
            "earlier": [[[1, 0, 0], [0, 1, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 1, 0]]],
            "mixing": [1.0, 1.0],
        },
        note="Lemma A.4 compares two kernels on one distribution, but after a layer the distributions "
        "differ. Assumption 4.1 supplies what is missing, so Propositions 4.3 and 4.4 stand.",
    ),
    statement(
        "A.1.4",
        "Appendix A.1.4, order of the product",
        rounded(
            "μ_t = μ_{t−1}R⁽ᵗ⁾ from e_i ends in row i of P⁽ᵀ⁾ = R⁽ᵀ⁾⋯R⁽¹⁾.",
            draws.stack,
            lambda instance: _slack_order(instance, top_first=False),
        ),
        corrected=rounded(
            "μ_s = μ_{s−1}R⁽ᵀ⁺¹⁻ˢ⁾, the top layer first, does.",
            draws.stack,
            lambda instance: _slack_order(instance, top_first=True),
        ),
        witness={
            "kernels": [[[1, 0, 0], [1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]],
            "mixing": [1.0, 1.0],
            "width": 3,
        },
        note="The recursion as printed gives a row of R⁽¹⁾⋯R⁽ᵀ⁾. Each step of the induction is the same with "
        "the layers counted from the top, so Proposition 4.5 stands.",
    ),
)
"""The induction of A.1.2 and A.1.3, the order of the product in A.1.4."""
