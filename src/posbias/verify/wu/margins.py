"""How a bound becomes a margin: (bound − value)/bound, from logarithms.

Weights far from the diagonal under- and overflow, and so do their bounds; both are kept as logarithms, and
so is the product of the layers. An envelope
(`posbias.theory.closed_forms.collapse_bounds.Envelope`) is two bounds by distance.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from posbias.theory.closed_forms import collapse_bounds

SOURCE = "wu2025"

Matrix = Float[np.ndarray, "query key"]
Stack = Float[np.ndarray, "layer query key"]
Distances = Int[np.ndarray, "query key"]


def below(value: Any, log_bound: Any) -> float:
    """Relative slack of value ≤ bound, the least over all."""
    with np.errstate(divide="ignore"):
        return log_below(np.log(value), log_bound)


def log_below(log_value: Any, log_bound: Any) -> float:
    """The same for the logarithm of the value."""
    return float(np.min(-np.expm1(np.asarray(log_value) - np.asarray(log_bound)), initial=1.0)) + 0.0


def log_softmax(logits: Float[np.ndarray, "*layer query key"], allowed: Any) -> Any:
    """ln of the softmax of each row over allowed keys, −inf elsewhere."""
    masked = np.where(allowed, logits, -np.inf)
    return masked - np.asarray(logsumexp(masked, axis=-1, keepdims=True))


def log_rollouts(log_kernels: Stack) -> Stack:
    """ln P⁽ᵗ⁾ for every t: the product of the layers, each sum taken over logarithms."""
    product, products = log_kernels[0], [log_kernels[0]]
    for log_kernel in log_kernels[1:]:
        product = np.logaddexp.reduce(log_kernel[:, :, None] + product[None], axis=1)
        products.append(product)
    return np.stack(products)


def inside(envelope: collapse_bounds.Envelope, log_values: Stack, distance: Distances, layers: bool) -> float:
    """Least slack of ln weights between both bounds: of single `layers`, or of the rollout at each depth."""
    lower, slack = distance >= 0, 1.0
    for before, values in enumerate(log_values):
        low, high = envelope.log_bounds(distance[lower], 1 if layers else before + 1)
        slack = min(slack, log_below(low, values[lower]), log_below(values[lower], high))
    return slack
