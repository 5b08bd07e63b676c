"""How a bound becomes a margin, and the rollouts that bounds are about.

`room` and `below` are what is left between value and bound, relative to the larger of the two or to the bound. A
`Margin` is a number that also knows which value and bound came closest, or crossed, and in which matrix; the least
of several is the one that decides. Weights far from the diagonal under- and overflow, and so do their bounds:
there both are kept as logarithms, as is the product of the layers.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from posbias.core.errors import wrong
from posbias.theory.rollout.kernel import masked_softmax

Matrix = Float[np.ndarray, "query key"]
Stack = Float[np.ndarray, "layer query key"]
Bounds = Callable[[Any, int], tuple[Any, Any]]
"""From distances and a depth to ln of the lower and the upper bound there."""


class Margin(float):
    """A slack, the true `value` and the `bound` as claimed that it compares, and their `matrix`."""

    value: float
    bound: float
    matrix: Matrix | None

    @property
    def words(self) -> str:
        """'true value 1, bound 0.731'."""
        return f"true value {self.value:.4g}, bound {self.bound:.4g}"

    def as_dict(self) -> dict[str, Any]:
        """The numbers compared, for JSON."""
        matrix = None if self.matrix is None else self.matrix.tolist()
        return {"slack": float(self), "value": self.value, "bound": self.bound, "matrix": matrix}


def least(slack: Any, value: Any, bound: Any, matrix: Any = None, log: bool = False) -> float:
    """The least slack (1 of none) as a `Margin`; of several matrices that of its first index.

    `log`: value, bound and matrix are logarithms.
    """
    slack = np.asarray(slack, dtype=float)
    if not slack.size:
        return 1.0
    at = np.unravel_index(slack.argmin(), slack.shape)
    margin = Margin(slack[at] + 0.0)
    numbers = [np.broadcast_to(one, slack.shape)[at] for one in (value, bound)]
    margin.matrix = matrix if matrix is None or np.ndim(matrix) < 3 else matrix[at[0]]
    with np.errstate(over="ignore"):
        margin.value, margin.bound = map(float, np.exp(numbers) if log else numbers)
        margin.matrix = np.exp(margin.matrix) if log and margin.matrix is not None else margin.matrix
    return margin


def room(value: Any, bound: Any, matrix: Any = None, lower: bool = False) -> float:
    """The least of bound − value, in units of the larger of the two in size; 0 where both are.

    `lower`: `value` is what is claimed, a lower bound of the second.
    """
    value, bound = np.broadcast_arrays(np.asarray(value, dtype=float), np.asarray(bound, dtype=float))
    larger = np.maximum(np.abs(value), np.abs(bound))
    slack = np.divide(bound - value, larger, out=np.zeros(larger.shape), where=larger > 0)
    return least(slack, *((bound, value) if lower else (value, bound)), matrix)


def below(value: Any, log_bound: Any, matrix: Any = None) -> float:
    """Slack of value ≤ bound relative to the bound, the least over all."""
    with np.errstate(divide="ignore"):
        return log_below(np.log(value), log_bound, None if matrix is None else np.log(matrix))


def log_below(log_value: Any, log_bound: Any, matrix: Any = None, lower: bool = False) -> float:
    """The same for the logarithm of the value."""
    slack = -np.expm1(np.asarray(log_value) - np.asarray(log_bound))
    return least(slack, *((log_bound, log_value) if lower else (log_value, log_bound)), matrix, log=True)


def order_margin(
    later: Float[np.ndarray, "*#batch position"], earlier: Float[np.ndarray, "*#batch position"]
) -> Float[np.ndarray, "*batch"]:
    """The margin of `later` ⪰ `earlier`: least prefix mass of `earlier` minus `later` over cutoffs k < tokens − 1.

    ≥ 0 where `later` dominates in first order (Herasimchyk et al. 2026, Appendix A.1); 0 for one position.
    Raises `InvalidValueError` where the positions differ in number or a mass is not finite.
    """
    later, earlier = np.asarray(later, dtype=np.float64), np.asarray(earlier, dtype=np.float64)
    if later.shape[-1:] != earlier.shape[-1:]:
        raise wrong(
            "later, earlier", "equally many positions", got=f"{later.shape[-1:]} and {earlier.shape[-1:]}"
        )
    for name, mass in (("later", later), ("earlier", earlier)):
        if not np.isfinite(mass).all():
            raise wrong(name, "finite masses", got="one that is not")
    drift = (np.cumsum(earlier, axis=-1) - np.cumsum(later, axis=-1))[..., :-1]
    return np.asarray(drift.min(axis=-1)) if drift.shape[-1] else np.zeros(drift.shape[:-1])


def dominance(later: Float[np.ndarray, "key"], earlier: Float[np.ndarray, "key"]) -> float:
    """The margin of `order_margin`; value and bound are masses of a prefix."""
    slack = float(order_margin(later, earlier))
    cutoff = int(np.argmax(np.cumsum(later - earlier)[:-1])) + 1 if len(later) > 1 else 1
    return least(slack, later[:cutoff].sum(), earlier[:cutoff].sum(), np.stack([later, earlier]))


def inside(bounds: Bounds, log_kernels: Stack, layers: bool) -> float:
    """Least slack of ln weights between both bounds: of single `layers`, or of the rollout at each depth."""
    distance, slack = distances(log_kernels.shape[-1]), 1.0
    lower = distance >= 0
    for before, values in enumerate(log_kernels if layers else log_rollouts(log_kernels)):
        low, high = bounds(distance[lower], 1 if layers else before + 1)
        slack = min(slack, log_below(low, values[lower], values, lower=True))
        slack = min(slack, log_below(values[lower], high, values))
    return slack


def distances(tokens: int) -> Int[np.ndarray, "query key"]:
    """Query minus key."""
    return np.subtract.outer(np.arange(tokens), np.arange(tokens))


def log_softmax(logits: Float[np.ndarray, "*layer query key"], allowed: Any) -> Any:
    """ln of the softmax of each row over allowed keys, −inf elsewhere."""
    masked = np.where(allowed, logits, -np.inf)
    return masked - np.asarray(logsumexp(masked, axis=-1, keepdims=True))


def log_rollouts(log_kernels: Stack) -> Stack:
    """ln P⁽ᵗ⁾ for every t: the product of the layers, each sum taken over logarithms."""
    return np.stack([*accumulate(log_kernels, lambda P, A: np.logaddexp.reduce(A[:, :, None] + P, axis=1))])


def rollouts(kernels: Stack, mixing: Any = None) -> Stack:
    """P⁽ᵗ⁾ for every t, bottom layer first; with λ of each layer, or attention alone."""
    mixing = np.ones(len(kernels)) if mixing is None else mixing
    products = [np.eye(kernels.shape[-1])]
    for kernel, lam in zip(kernels, mixing, strict=True):
        products.append((1 - lam) * products[-1] + lam * (kernel @ products[-1]))
    return np.stack(products[1:])


def floor_of(kernels: Stack) -> float:
    """ε: the least weight; what a mask leaves out is 0."""
    return float(kernels[kernels > 0].min())


def suffixes(products: Stack) -> Float[np.ndarray, "layer key"]:
    """The most that any query has at a position and after it."""
    return np.flip(np.cumsum(np.flip(products, -1), axis=-1), -1).max(axis=1)


def operator_norm(matrices: Any) -> Any:
    """The largest singular value of each matrix."""
    return np.linalg.norm(np.asarray(matrices, dtype=float), 2, axis=(-2, -1))


def largest_product(matrices: Float[np.ndarray, "layer *head out in"]) -> float:
    """The largest norm of W_1⋯W_t over all depths t, and over heads: C_V of Assumption 5.2."""
    return float(operator_norm([*accumulate(matrices, np.matmul)]).max())


def run_network(
    hidden: Any,
    queries: Any,
    keys: Any,
    values: Any,
    allowed: Any,
    mixing: Any = None,
    whole: bool = False,
    added: bool = False,
    positional: Any = None,
) -> tuple[Float[np.ndarray, "layer token dimension"], Stack]:
    """The residual stream after each layer, X ← (1 − λ)X + λ·A·X·W_V, and the attention kernels.

    λ is 1 without `mixing`; `positional` logits are by layer. `whole` multiplies all of the stream by W_V, as the
    proof of Lemma 5.3 does, and with `added` X ← X + A·X·W_V whatever λ, as its Section 3 prints.
    """
    X, states, kernels = hidden, [], []
    mixing = np.ones(len(queries)) if mixing is None else mixing
    positional = np.zeros(len(queries)) if positional is None else positional
    for query, key, value, lam, bias in zip(queries, keys, values, mixing, positional, strict=True):
        kernels.append(masked_softmax((X @ query) @ (X @ key).T + bias, allowed))
        kept, lam = (X, 1.0) if added else ((1 - lam) * (X @ value if whole else X), lam)
        X = kept + lam * kernels[-1] @ X @ value
        states.append(X)
    return np.stack(states), np.stack(kernels)
