"""Appendix A.1, the order: what first-order dominance is, and what keeps it.

Definition A.1 and Lemmas A.2 to A.5 speak of one kernel or one pair of kernels, so they are tried on
kernels that may look ahead as well, with test functions and distributions drawn beside them.
"""

from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.profiles import stochastic_order
from posbias_papers.statements.herasimchyk import draws
from posbias_papers.statements.margins import Matrix, Stack
from posbias_papers.statements.statement import ROUNDING, Instance, Statement, statement


def _draw_definition(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    if rng.random() < 0.5:
        kernel = draws.monotone(rng, tokens, width, edge, ahead=True)
    else:
        kernel = draws.kernel_of(draws.prefixes(rng, tokens, width, edge, ahead=True))
    values = np.sort(rng.random((5, tokens)) if not edge else rng.integers(0, 2, (5, tokens)) * 1.0, axis=1)
    return {"kernel": kernel, "values": values}


def _slack_definition(kernel: Matrix, values: Any) -> float:
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
    pair = np.sort(draws.prefixes(rng, tokens, width, edge, ahead=True)[:2], axis=0)
    kernel = draws.monotone(rng, tokens, width, edge, ahead=True)
    return {"kernel": kernel, "later": draws.kernel_of(pair[:1])[0], "earlier": draws.kernel_of(pair[1:])[0]}


def _slack_residual(kernels: Stack, mixing: Any, width: int) -> float:
    layers = [(1 - lam) * np.eye(len(A)) + lam * A for A, lam in zip(kernels, mixing, strict=True)]
    return min(stochastic_order.monotonicity(layer).margin for layer in layers)


def _draw_rowwise(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    later, earlier = draws.ordered(rng, (tokens, width), edge)
    return {"later": later, "earlier": earlier, "mass": rng.dirichlet(np.full(tokens, 0.3 if edge else 1.0))}


def _draw_vector(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    values = rng.integers(-1, 2, tokens) * 1.0 if edge else rng.normal(size=tokens)
    return {"kernel": draws.monotone(rng, tokens, width, edge, ahead=True), "values": -np.sort(-values)}


def _slack_vector(kernel: Matrix, values: Any) -> float:
    return float(-np.diff(kernel @ values).max() / max(np.abs(values).max(), 1e-300))


ORDER: tuple[Statement, ...] = (
    statement(
        "herasimchyk-A.1",
        "Definition A.1",
        "The order of rows by all prefix masses and by all increasing test functions is one and the same.",
        _draw_definition,
        _slack_definition,
        tolerance=ROUNDING,
    ),
    statement(
        "herasimchyk-A.2",
        "Lemma A.2",
        "A stochastically monotone kernel preserves dominance: μ ⪰ ν gives μK ⪰ νK.",
        _draw_preserved,
        lambda kernel, later, earlier: stochastic_order.dominance(later @ kernel, earlier @ kernel),
        tolerance=ROUNDING,
    ),
    statement(
        "herasimchyk-A.3",
        "Lemma A.3",
        "(1 − λ)I + λA is stochastically monotone where A is.",
        draws.stack,
        _slack_residual,
        tolerance=ROUNDING,
    ),
    statement(
        "herasimchyk-A.4",
        "Lemma A.4",
        "Row-wise dominance gives μK ⪰ μK′ for one and the same μ; neither kernel need be monotone.",
        _draw_rowwise,
        lambda later, earlier, mass: stochastic_order.dominance(mass @ later, mass @ earlier),
        tolerance=ROUNDING,
    ),
    statement(
        "herasimchyk-A.5",
        "Lemma A.5",
        "A stochastically monotone kernel keeps a decreasing vector decreasing.",
        _draw_vector,
        _slack_vector,
        tolerance=ROUNDING,
    ),
)
"""Definition A.1, Lemmas A.2 to A.5."""
