"""§5.1: what holds for one head, for the mean over heads.

Order, floor and drift carry over to the mean kernel. The norm bound does not: a path may change heads
between layers, so the products of one head's value matrices bound nothing.
"""

from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.profiles import stochastic_order
from posbias.theory.closed_forms import residual_bounds
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.herasimchyk import draws
from posbias_papers.statements.herasimchyk.forces import slack_depth
from posbias_papers.statements.herasimchyk.network import alternating, draw_values
from posbias_papers.statements.margins import largest_product, operator_norm, room
from posbias_papers.statements.statement import ROUNDING, Instance, Statement, both_readings, statement


def _draw_heads(rng: Generator, edge: bool) -> Instance:
    (tokens, width), depth, heads = draws.size(rng, edge), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    kernels = [[draws.positive(rng, tokens, width, edge) for _ in range(heads)] for _ in range(depth)]
    return {"heads": np.array(kernels), "mixing": draws.mixing(rng, depth, edge), "width": width}


def _slack_heads(heads: Any, mixing: Any, width: int) -> float:
    """Order, mask, row sums and floor of the mean kernel, and Proposition 4.2 for it."""
    allowed = draws.admitted(heads.shape[-1], width)
    means = np.stack([residual_bounds.average_heads(layer) for layer in heads])
    floor = min(float(kernel[allowed].min()) for kernel in heads.reshape(-1, *allowed.shape))
    return min(
        min(stochastic_order.monotonicity(kernel).margin for kernel in means),
        room(floor, [residual_bounds.smallest_admitted(kernel, allowed) for kernel in means]),
        slack_depth(means, mixing),
    )


def _draw_head_values(rng: Generator, edge: bool) -> Instance:
    tokens, dim, depth, heads = (int(rng.integers(1, high)) for high in (5, 4, 20, 4))
    return {
        "hidden": rng.normal(size=(tokens, dim)),
        "heads": masked_softmax(rng.normal(size=(depth, heads, tokens, tokens)), np.tri(tokens, dtype=bool)),
        "values": np.stack([draw_values(rng, depth, dim, edge) for _ in range(heads)], axis=1),
        "mixing": draws.mixing(rng, depth, edge),
    }


def _draw_head_values_only(rng: Generator, edge: bool) -> Instance:
    """λ = 1, where both readings of the residual dynamics are the same."""
    instance = dict(_draw_head_values(rng, edge))
    return instance | {"mixing": np.ones(len(instance["mixing"]))}


def _slack_head_values(hidden: Any, heads: Any, values: Any, mixing: Any, corrected: bool) -> float:
    X, norms = hidden, []
    start = np.linalg.norm(X, axis=1).max()
    for kernels, value, lam in zip(heads, values, mixing, strict=True):
        X = (1 - lam) * X + lam * (kernels @ (X @ value)).mean(axis=0)
        norms.append(np.linalg.norm(X, axis=1).max())
    if corrected:
        mean_norms = operator_norm(values).mean(axis=1)
        return room(norms, residual_bounds.hidden_state_bound(mixing, mean_norms, float(start)))
    return room(norms, np.full(len(norms), start * largest_product(values)))


HEADS: tuple[Statement, ...] = (
    statement(
        "herasimchyk-5.1",
        "§5.1, multi-head averaging",
        "The mean of monotone kernels is monotone, its floor is at least the least of the heads', and "
        "Proposition 4.2 holds for it.",
        _draw_heads,
        _slack_heads,
        tolerance=ROUNDING,
        about={"strength": "observation", "effort": "a remark"},
    ),
    statement(
        "herasimchyk-5.1-values",
        "§5.1, Lemma 5.3 (i) for heads",
        "Lemma 5.3 (i) applies verbatim to the mean over heads if Assumption 5.2 holds uniformly across them: "
        "norms stay bounded at all depths (by ‖X⁽⁰⁾‖·C_V, C_V the largest product of any one head's value "
        "matrices; λ = 1).",
        (_draw_head_values_only, _draw_head_values),
        both_readings(_slack_head_values),
        corrected="Norms stay within the input's times Π(1 − λ + λ·mean_h‖W_V^h‖), for every λ.",
        witness={
            "hidden": [[1.0]],
            "heads": [[[[1.0]], [[1.0]]]] * 20,
            "values": [
                [one, other] for one, other in zip(alternating(2, 20), alternating(0.5, 20), strict=True)
            ],
            "mixing": [1.0] * 20,
        },
        about={
            "strength": "observation",
            "scope": "networks of several heads, each with value matrices under Assumption 5.2",
            "effort": "a remark",
        },
        note="Not verbatim: paths change heads between layers, so products of one head's matrices bound "
        "nothing. Values 2, ½, … and ½, 2, … in two heads (products ≤ 2) grow by 5/4 per layer, "
        "beyond any bound.",
    ),
)
"""§5.1: averaging, and Lemma 5.3 (i) for heads."""
