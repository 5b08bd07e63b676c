"""A network that runs: X ← (1 − λ)X + λ·A·X·W_V, the residual update of §3, with A = softmax(X W_Q (X W_K)ᵀ).

Assumption 5.2 bounds the products of the value matrices, not each of them. Drawn are networks whose
products are bounded by construction (`draw_values`), and the sharpest case known (`growing`): values that
alternate between large and small, whose products stay bounded while the residual stream grows.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.theory.closed_forms import residual_bounds
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.statements.herasimchyk import draws
from posbias_papers.statements.margins import Matrix, largest_product, operator_norm
from posbias_papers.statements.statement import Instance


def draw_values(rng: Generator, depth: int, dim: int, edge: bool) -> Float[np.ndarray, "layer out in"]:
    """W_t with W_1⋯W_t = G_t for random invertible G_t, so that every product is bounded (Assumption 5.2)."""
    turns = np.linalg.qr(rng.normal(size=(depth + 1, dim, dim)))[0]
    shape = (depth + 1, 1, dim)
    stretch = rng.choice([0.2, 1.0, 2.0], shape) if edge else rng.uniform(0.5, 1, shape)
    products = turns * stretch
    products[0] = np.eye(dim)
    return np.linalg.solve(products[:-1], products[1:])


def alternating(high: float, depth: int) -> list[list[list[float]]]:
    """1×1 value matrices whose products stay at `high` or 1."""
    return [[[high if layer % 2 == 0 else 1 / high]] for layer in range(depth)]


def growing(hidden: list[list[float]], weight: float, high: float, depth: int) -> Instance:
    """A network of width one with values high, 1/high, … and λ = ½: their products are at most `high`."""
    weights = [[[weight]]] * depth
    network = {"hidden": hidden, "queries": weights, "keys": weights, "values": alternating(high, depth)}
    return network | {"mixing": [0.5] * depth}


def draw_network(rng: Generator, edge: bool) -> Instance:
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
        "values": draw_values(rng, depth, dim, edge),
        "mixing": draws.mixing(rng, depth, edge),
    }


def assumed_constants(hidden: Any, queries: Any, keys: Any, values: Any, mixing: Any) -> tuple[float, float]:
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


def hidden_bound(hidden: Any, values: Any, mixing: Any, **_: Any) -> Float[np.ndarray, "layer"]:
    """The norm bound of Lemma 5.3 (i) as corrected, after each layer: ‖X‖·Π(1 − λ + λ‖W_V‖)."""
    start = float(np.linalg.norm(hidden, axis=1).max())
    return residual_bounds.hidden_state_bound(mixing, operator_norm(values), start)
