"""What residual connections make of infinite depth: the bounds and limits of Herasimchyk et al. 2026, §5.

A layer passes R = (1 − λ)I + λA, and every admitted weight of A is at least ε (`floor`). Under a causal mask
a token then keeps at least 1 − (1 − ε)λ of itself and hands at least jελ of what positions ≥ j hold to
positions before j. So everything turns on the total mixing Σλ: finite, and every token keeps a share of
itself for ever; infinite, and the first token takes all (Theorem 5.4).

Bounds at finite depth take the λ of the layers; limits take a schedule from `posbias.theory.mixing`.
Positions count from 0, so the paper's j − 1 is j here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import zeta

from posbias.core import machine
from posbias.core.errors import InvalidValueError, non_negative, whole
from posbias.theory.mixing import Layers, Mixing, PerLayer, PowerDecay
from posbias.theory.rollout.kernel import Kernel

EXPLICIT = 64
"""Layers of a power decay that are taken one by one before the series for the rest."""


@dataclass(frozen=True)
class Dichotomy:
    """What Theorem 5.4 says of a schedule λ and a floor ε at infinite depth.

    `total` is Σλ; `collapses` whether it is infinite, and the first token takes all; `retained` the share
    Π(1 − (1 − ε)λ) that every token at least keeps of itself, 0 where it collapses.
    """

    collapses: bool
    total: float
    retained: float

    @property
    def first_token(self) -> float:
        """The most that the first token can draw from any later one: 1 − `retained`."""
        return 1.0 - self.retained


def smallest_admitted(kernel: Kernel, allowed: Bool[np.ndarray, "query key"]) -> float:
    """ε of a kernel: the least weight among the pairs the mask admits.

    Raises `InvalidValueError` where the shapes differ, nothing is admitted, or weight lies outside the mask.
    """
    kernel, allowed = np.asarray(kernel, dtype=np.float64), np.asarray(allowed, dtype=bool)
    if kernel.shape != allowed.shape or not allowed.any():
        raise InvalidValueError(
            f"allowed: shape {allowed.shape} with {allowed.sum()} pairs given, shape {kernel.shape} with "
            "one pair or more needed"
        )
    if kernel[~allowed].any():
        raise InvalidValueError("kernel: weight where the mask admits none, zeros needed there")
    return float(kernel[allowed].min())


def softmax_floor(keys: int, logit_bound: float, positional_range: float = 0.0) -> float:
    """The least softmax weight among `keys` whose content logits lie in ±`logit_bound`: 1/(1 + (keys−1)e^r).

    r = 2·logit_bound + positional_range, where `positional_range` is the largest minus the smallest
    positional logit of a row. The sharp form of Lemma 5.3 (ii), which states it without positional logits.
    Raises `InvalidValueError` for fewer than one key or a bound that is negative or not finite.
    """
    whole("keys", keys, 1)
    spread = 2.0 * non_negative("logit_bound", logit_bound)
    spread += non_negative("positional_range", positional_range)
    # written with the falling exponential, which cannot overflow
    return math.exp(-spread) / (math.exp(-spread) + keys - 1) if keys > 1 else 1.0


def hidden_state_bound(coefficients: Layers, value_norms: Layers, initial: float) -> Layers:
    """A bound on every token's norm after each layer: initial·Π(1 − λ + λ‖W_V‖).

    For the residual update X ← (1 − λ)X + λ·A·X·W_V with operator norms `value_norms`, and `initial` the
    largest norm of an input row. Stands in for Lemma 5.3 (i), whose C·C_V holds only where W_V acts on the
    residual stream too. Raises `InvalidValueError` for norms that are negative, or not one per layer.
    """
    coefficients = _coefficients(coefficients)
    value_norms = np.asarray(value_norms, dtype=np.float64)
    if value_norms.shape != coefficients.shape or not (value_norms >= 0).all():
        raise InvalidValueError(
            f"value_norms: shape {value_norms.shape} given, {coefficients.size} numbers ≥ 0 needed"
        )
    return non_negative("initial", initial) * np.cumprod(1.0 - coefficients + coefficients * value_norms)


def self_bound(coefficients: Layers, floor: float) -> Layers:
    """What every token keeps of itself, at least, after each layer: Π(1 − (1 − ε)λ), Theorem 5.4 (i).

    Holds under every mask in which tokens see themselves. Raises `InvalidValueError` for a λ outside
    [0, 1] or a floor outside [0, 1].
    """
    return np.cumprod(1.0 - (1.0 - _floor(floor)) * _coefficients(coefficients))


def suffix_bound(coefficients: Layers, floor: float, position: int) -> Layers:
    """The most that positions ≥ j hold together after each layer, for any query: Π(1 − jελ).

    For the causal mask; Theorem 5.4 (ii) with C′ = 1, for the whole suffix instead of its first position,
    and before 1 − x ≤ e^−x. For j = 1 it bounds what has not yet gone to the first token. Raises
    `InvalidValueError` for a j < 0 or jε > 1, which no causal kernel has for a position of the text.
    """
    if position < 0 or position * _floor(floor) > 1.0 + 1e-12:
        raise InvalidValueError(
            f"position: {position} given with a floor of {floor:.6g}, position ≥ 0 and position·floor ≤ 1 needed"
        )
    return np.cumprod(1.0 - min(position * floor, 1.0) * _coefficients(coefficients))


def exponential_bound(coefficients: Layers, floor: float, position: int) -> Layers:
    """exp(−jε Σλ) after each layer: Theorem 5.4 (ii) as printed, with C′ = 1; never below `suffix_bound`."""
    return np.exp(-whole("position", position, 0) * _floor(floor) * np.cumsum(_coefficients(coefficients)))


def window_bound(coefficients: Layers, floor: float, query: int) -> float:
    """The most that `query` has not yet drawn from the first token, under a window of width ≥ 2.

    In every layer a token after the first moves its mass to an earlier one with at least ελ; `query` such
    moves suffice. The bound is the probability that fewer succeed: the lower tail of a Poisson binomial.
    In place of Theorem 5.4 (ii), whose rate (j − 1)ε is not that of a window. Raises as `self_bound`, and for
    query < 0.
    """
    moved = np.zeros(machine.length("query", query, 0))
    moved[:1] = 1.0
    for chance in _floor(floor) * _coefficients(coefficients):
        moved[1:] = (1.0 - chance) * moved[1:] + chance * moved[:-1]
        moved[:1] *= 1.0 - chance
    return float(moved.sum())


def total_mixing(mixing: Mixing) -> float:
    """Σλ over infinitely many layers: λ₀ζ(β) for a power decay with β > 1, else ∞ (or 0 where λ is 0).

    Raises `InvalidValueError` for `PerLayer`, which has no infinite depth.
    """
    if isinstance(mixing, PerLayer):
        raise InvalidValueError(
            f"mixing: {len(mixing.coefficients)} measured λ given, a schedule for every depth needed"
        )
    first = float(mixing.values(1)[0])
    if first == 0.0:
        return 0.0
    if isinstance(mixing, PowerDecay) and mixing.exponent > 1.0:
        return first * float(zeta(mixing.exponent, 1.0))
    return math.inf


def log_product(mixing: Mixing, share: float) -> float:
    """ln Π(1 − share·λ) over infinitely many layers, to about 1e-14 relative; −∞ where the product is zero.

    For a power decay with β > 1: `EXPLICIT` layers one by one, then −Σ_k (share·λ₀)^k ζ(kβ, EXPLICIT + 1)/k.
    Raises `InvalidValueError` for a share outside [0, 1] and as `total_mixing` does.
    """
    if not 0 <= share <= 1:
        raise InvalidValueError(f"share: {share} given, a number between 0 and 1 needed")
    if share == 0.0 or total_mixing(mixing) == 0.0:
        return 0.0
    if not isinstance(mixing, PowerDecay) or mixing.exponent <= 1.0:
        return -math.inf
    with np.errstate(divide="ignore"):
        explicit = float(np.log1p(-share * mixing.values(EXPLICIT)).sum())
    orders = np.arange(1.0, 41.0)
    rest = (share * mixing.initial) ** orders * zeta(orders * mixing.exponent, EXPLICIT + 1.0) / orders
    return explicit - float(rest[::-1].sum())


def dichotomy(mixing: Mixing, floor: float) -> Dichotomy:
    """Theorem 5.4 for a schedule and the floor ε of its kernels under the causal mask (0 < ε ≤ 1).

    Raises `InvalidValueError` for a floor that is not above 0 (without one neither half need hold) and as
    `total_mixing` does.
    """
    if _floor(floor) == 0:
        raise InvalidValueError(f"floor: {floor} given, a number above 0 needed")
    total = total_mixing(mixing)
    retained = math.exp(log_product(mixing, 1.0 - floor)) if total < math.inf else 0.0
    return Dichotomy(collapses=total == math.inf, total=total, retained=retained)


def average_heads(
    kernels: Float[np.ndarray, "head query key"], weights: Sequence[float] | None = None
) -> Kernel:
    """The effective kernel of a layer, its heads averaged uniformly or by `weights` (Eq. 4).

    Keeps mask, row sums and stochastic monotonicity, and its floor is at least the least of the heads'.
    Raises `InvalidValueError` unless there is one weight ≥ 0 per head and they sum to one.
    """
    kernels = np.asarray(kernels, dtype=np.float64)
    if kernels.ndim != 3 or not len(kernels):
        raise InvalidValueError(f"kernels: shape {kernels.shape} given, heads × queries × keys needed")
    share = np.full(len(kernels), 1.0 / len(kernels)) if weights is None else np.asarray(weights, dtype=float)
    if share.shape != kernels.shape[:1] or not (share >= 0).all() or abs(share.sum() - 1.0) > 1e-9:
        raise InvalidValueError(f"weights: {weights} given, {len(kernels)} numbers ≥ 0 with sum 1 needed")
    return np.tensordot(share, kernels, axes=1)


def _coefficients(coefficients: Layers) -> Layers:
    coefficients = np.asarray(coefficients, dtype=np.float64)
    if coefficients.ndim != 1 or not ((coefficients >= 0) & (coefficients <= 1)).all():
        raise InvalidValueError(f"coefficients: {coefficients} given, a λ between 0 and 1 per layer needed")
    return coefficients


def _floor(floor: float) -> float:
    if not 0 <= floor <= 1:
        raise InvalidValueError(f"floor: {floor} given, a number between 0 and 1 needed")
    return floor
