"""Lemma A.1: attention never weighs an admitted key with less than ε, whatever the depth.

Networks run, X ← A·X·W_V with A = softmax(X W_Q (X W_K)ᵀ), no residual, no 1/√d (§3.2). Their value
matrices have bounded products, though single ones may be large.
"""

from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.theory.closed_forms import collapse_bounds
from posbias_papers.statements.margins import largest_product, log_below, log_softmax, operator_norm
from posbias_papers.statements.statement import Instance, Statement, statement
from posbias_papers.statements.wu import draws


def draw_network(rng: Generator, edge: bool) -> Instance:
    """Value matrices with bounded products: rotations, scaled up and down again, sometimes singular."""
    tokens, dim, depth = draws.length(rng, edge), int(rng.integers(1, 4)), int(rng.integers(1, 9))
    scales = rng.choice([0.5, 1.0, 2.0], depth + 1) if edge else rng.uniform(0.5, 1.0, depth + 1)
    values = np.linalg.qr(rng.normal(size=(depth, dim, dim)))[0] * (scales[1:] / scales[:-1])[:, None, None]
    if rng.random() < 0.2:
        values[rng.integers(depth)] *= 0.0
    hidden = rng.normal(size=(tokens, dim)) / np.sqrt(dim)
    weights = rng.normal(size=(2, depth, dim, dim)) * rng.choice([0.0, 0.3, 1.0]) / np.sqrt(dim)
    if edge and rng.random() < 0.5:  # one key opposite to all others: sharp
        hidden = np.ones((tokens, 1))
        hidden[0] = -1.0
        weights, values = np.full((2, 1, 1, 1), rng.choice([0.0, 1.0, 3.0])), np.ones((1, 1, 1))
    kind = str(rng.choice(["causal", "window", "prefix", "full"]))
    networks = {"hidden": hidden, "queries": weights[0], "keys": weights[1], "values": values}
    return networks | {"kind": kind, "size": int(rng.integers(1, tokens + 1))}


def _slack_floor(hidden: Any, queries: Any, keys: Any, values: Any, kind: str, size: int) -> float:
    X, allowed = hidden, draws.mask_of(kind, size).allowed(len(hidden))
    C = max(operator_norm(weights).max() for weights in (queries, keys))
    C_V = max(1.0, largest_product(values))
    start = float(np.linalg.norm(X, axis=1).max())
    bound = collapse_bounds.logit_bound(start, float(C), C_V)
    log_floor = collapse_bounds.log_attention_floor(int(allowed.sum(axis=1).max()), bound)
    slack = 1.0
    for query, key, value in zip(queries, keys, values, strict=True):
        log_kernel = log_softmax((X @ query) @ (X @ key).T, allowed)
        slack = min(slack, log_below(log_floor, log_kernel[allowed]))
        X = np.exp(log_kernel) @ X @ value
        slack = min(slack, 1 - float(np.linalg.norm(X, axis=1).max()) / (start * C_V))
    return slack


FLOOR: tuple[Statement, ...] = (
    statement(
        "wu-A.1",
        "Lemma A.1",
        "A_ij ≥ 1/(1 + (k − 1)e^(2M)) with M = (max‖X_i⁽⁰⁾‖·C_V·C)² and k the most keys a query sees; "
        "‖X_i⁽ᵗ⁾‖ ≤ max‖X_i⁽⁰⁾‖·C_V",
        draw_network,
        _slack_floor,
        note="Holds, and the floor is attained. The C of Eq. (6) is not that of A1: it is max‖X_i‖·C_V·C. "
        "Eq. (3)'s second line prints R_i for R_(i−j).",
    ),
)
"""Lemma A.1."""
