"""Causal averages with residual connections in the limit of many tokens: what each position gives to the last.

Attention without content whose weights grow as e^{cσ} with the position σ ∈ [0, 1] of the key (ALiBi of slope c/N
on N tokens; c = 0: no encoding) is the kernel c·e^{−c(σ − σ')}/(1 − e^{−cσ}). In the coordinate

    y = (e^{cσ} − 1)/(e^c − 1)          (y = σ for c = 0)

it is the Cesàro average dy'/y on [0, y] for every c. So k layers of it draw y with the density
ℓ^{k−1}/(k − 1)!, ℓ = −ln y, and layers of which k attend with the chance P(k) draw

    f(y) = Σ_{k≥1} P(k) ℓ^{k−1}/(k − 1)!,     and the last token keeps P(0) of itself in addition.

With layers (1 − λ_t)I + λ_t·A, P is the Poisson binomial of the λ_t; with many layers of little mixing, that add
up to s = `strength`, it is Poisson's, and f is e^{−s}√(s/ℓ)·I₁(2√(sℓ)). Times e^s that is the retrieval profile of
one Fourier mode in Duerinckx et al. 2026 (s = t·a_n(β)), as far as the authors' scripts tell.

Turning points of the density p(σ) = f·dy/dσ: p falls where f'/f > 1 − e^{−cσ} (the derivative by ℓ). Σ P(k)x^k has
real zeros only, so has f, and 1/(f'/f) = 1/Σ 1/(ℓ + z_k) is concave in ℓ; 1/(1 − e^{−cσ}) = 1 + e^ℓ/(e^c − 1) is
convex. So p turns at most twice, it ends rising if and only if P(2)/P(1) < 1 − e^{−c}, and then has one minimum
and no other turning point. For c = 0 it always falls.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln, xlogy

from posbias.core.errors import InvalidValueError, non_negative
from posbias.theory.mixing import Layers

Positions = Float[np.ndarray, "position"]
"""Positions of keys as shares of the text, in (0, 1]."""
Hops = Float[np.ndarray, "hop"]
"""P(k): the chance that k layers attend and the others pass the residual stream on; from k = 0."""
FLAT = 1e-12
"""How far the largest difference of a turning condition may be from zero and be said to touch it."""


def hops_of(mixing: Layers | Sequence[float]) -> Hops:
    """P(k) of layers with these λ: their Poisson binomial."""
    hops = np.ones(1)
    for weight in mixing:
        hops = np.append((1.0 - weight) * hops, 0.0) + np.append(0.0, weight * hops)
    return hops


def poisson_hops(strength: float) -> Hops:
    """P(k) of infinitely many layers whose λ add up to `strength`. Raises `InvalidValueError` if negative.

    Chances below 1e-17 at the end are left out.
    """
    strength = non_negative("strength", strength)
    kept = math.ceil(strength + 12.0 * math.sqrt(strength) + 40.0)
    k = np.arange(kept + 1.0)
    return np.exp(xlogy(k, strength) - strength - gammaln(k + 1.0))


def influence_density(position: Positions, hops: Hops, decay: float = 0.0) -> Positions:
    """p(σ): the influence on the last token by position, without what it keeps of itself.

    `decay` is c, the ALiBi slope times the number of tokens. The integral over (0, 1] is 1 − P(0). Raises
    `InvalidValueError` for positions outside (0, 1] or decay < 0.
    """
    position = np.asarray(position, dtype=np.float64)
    if not ((position > 0.0) & (position <= 1.0)).all():
        raise InvalidValueError(f"position: expected shares of the text in (0, 1], got {position}")
    share, stretch = position, np.ones_like(position)
    if non_negative("decay", decay):  # falling exponentials cannot overflow
        stretch = np.exp(decay * (position - 1.0)) / -math.expm1(-decay)
        share, stretch = stretch * -np.expm1(-decay * position), decay * stretch
    return _polynomial(-np.log(share), hops, 0) * stretch


def turning_points(hops: Hops, decay: float) -> tuple[float, ...]:
    """The positions in (0, 1) where the density turns, rising: none; one minimum; or a minimum and a maximum.

    Raises `InvalidValueError` for decay < 0.
    """
    if non_negative("decay", decay) == 0.0 or len(hops) < 3 or not np.any(hops[2:]):
        return ()  # it falls throughout, or, of at most one layer, rises throughout

    def excess(distance: float) -> float:
        value, slope = (_polynomial(np.array([distance]), hops, order)[0] for order in (0, 1))
        # at the last token f and f' are both zero where two layers or more surely attend
        return (value / slope if slope else 0.0) - 1.0 - math.exp(distance) / math.expm1(decay)

    far = 1.0
    while excess(far) > 0.0 or excess(far) > excess(far / 2.0):
        far *= 2.0
    highest: Any = minimize_scalar(lambda at: -excess(at), bounds=(0.0, far), options={"xatol": 1e-12})
    top = max((0.0, float(highest.x)), key=excess)
    if excess(top) <= FLAT:
        return ()
    ends: list[Any] = [brentq(excess, top, far, xtol=1e-14)]
    if top > 0.0 and excess(0.0) < 0.0:
        ends.append(brentq(excess, 0.0, top, xtol=1e-14))
    return tuple(math.log1p(math.exp(-distance) * math.expm1(decay)) / decay for distance in ends)


def _polynomial(distance: Positions, hops: Hops, order: int) -> Positions:
    """f, or its derivative of an order, at ℓ = `distance`: Σ P(k) ℓ^{k−1−order}/(k − 1 − order)!."""
    k = np.arange(len(hops) - 1.0 - order)
    logarithms = xlogy(k, np.asarray(distance)[:, None]) - gammaln(k + 1.0)
    return np.exp(logarithms) @ np.asarray(hops)[1 + order :]
