"""Appendix A.1, the order: what first-order dominance is, and what keeps it.

Definition A.1 and Lemmas A.2 to A.5 speak of one kernel or one pair of kernels, so they are tried on
kernels that may look ahead as well, with test functions and distributions drawn beside them.
"""

import numpy as np
from numpy.random import Generator

from posbias import stochastic_order
from posbias.verify.herasimchyk import draws
from posbias.verify.herasimchyk.margins import rounded, statement
from posbias.verify.statement import Instance, Statement


def _draw_definition(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    if rng.random() < 0.5:
        kernel = draws.monotone(rng, tokens, width, edge, ahead=True)
    else:
        kernel = draws.kernel_of(draws.prefixes(rng, tokens, width, edge, ahead=True))
    values = np.sort(rng.random((5, tokens)) if not edge else rng.integers(0, 2, (5, tokens)) * 1.0, axis=1)
    return {"kernel": kernel, "values": values}


def _slack_definition(instance: Instance) -> float:
    kernel, values = np.asarray(instance["kernel"]), np.asarray(instance["values"])
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


def _slack_preserved(instance: Instance) -> float:
    kernel = np.asarray(instance["kernel"])
    return float(
        stochastic_order.dominance(
            np.asarray(instance["later"]) @ kernel, np.asarray(instance["earlier"]) @ kernel
        )
    )


def _slack_residual(instance: Instance) -> float:
    kernels = zip(np.asarray(instance["kernels"]), np.asarray(instance["mixing"]), strict=True)
    return min(
        stochastic_order.monotonicity((1 - lam) * np.eye(len(A)) + lam * A).margin for A, lam in kernels
    )


def _draw_rowwise(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    later, earlier = draws.ordered(rng, (tokens, width), edge)
    return {"later": later, "earlier": earlier, "mass": rng.dirichlet(np.full(tokens, 0.3 if edge else 1.0))}


def _slack_rowwise(instance: Instance) -> float:
    mass = np.asarray(instance["mass"])
    return float(
        stochastic_order.dominance(
            mass @ np.asarray(instance["later"]), mass @ np.asarray(instance["earlier"])
        )
    )


def _draw_vector(rng: Generator, edge: bool) -> Instance:
    tokens, width = draws.size(rng, edge)
    values = rng.integers(-1, 2, tokens) * 1.0 if edge else rng.normal(size=tokens)
    return {"kernel": draws.monotone(rng, tokens, width, edge, ahead=True), "values": -np.sort(-values)}


def _slack_vector(instance: Instance) -> float:
    values = np.asarray(instance["values"], dtype=float)
    return float(-np.diff(np.asarray(instance["kernel"]) @ values).max() / max(np.abs(values).max(), 1e-300))


ORDER: tuple[Statement, ...] = (
    statement(
        "A.1",
        "Definition A.1",
        rounded(
            "The order of rows by all prefix masses and by all increasing test functions is one and the "
            "same.",
            _draw_definition,
            _slack_definition,
        ),
    ),
    statement(
        "A.2",
        "Lemma A.2",
        rounded(
            "A stochastically monotone kernel preserves dominance: μ ⪰ ν gives μK ⪰ νK.",
            _draw_preserved,
            _slack_preserved,
        ),
    ),
    statement(
        "A.3",
        "Lemma A.3",
        rounded("(1 − λ)I + λA is stochastically monotone where A is.", draws.stack, _slack_residual),
    ),
    statement(
        "A.4",
        "Lemma A.4",
        rounded(
            "Row-wise dominance gives μK ⪰ μK′ for one and the same μ; neither kernel need be monotone.",
            _draw_rowwise,
            _slack_rowwise,
        ),
    ),
    statement(
        "A.5",
        "Lemma A.5",
        rounded(
            "A stochastically monotone kernel keeps a decreasing vector decreasing.",
            _draw_vector,
            _slack_vector,
        ),
    ),
)
"""Definition A.1, Lemmas A.2 to A.5."""
