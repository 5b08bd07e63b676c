"""How a positive curve falls with the distance r: γ + β·s(r), γ and β ≥ 0, s one of four forms.

    power        (r + 1)^−p
    exponential  e^{−r/ℓ}
    stretched    e^{−(r/ℓ)^s}
    none         γ alone

A fit has the least Σ (f/m − 1)², m the curve: relative deviations, since a curve may fall by orders of magnitude.
With s(r) given that is linear in γ and β and solved exactly; the form's own numbers are searched on a grid, then
from its best place. What a fit is worth is seen on a curve that it was not fitted to (`deviation`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError

Distances = Float[np.ndarray, "distance"]


@dataclass(frozen=True)
class Form:
    """s(r) with the ranges of its own numbers, searched by their logarithm on `steps` places each."""

    shape: Callable[..., np.ndarray]
    ranges: tuple[tuple[float, float], ...]
    steps: int


FORMS: Mapping[str, Form] = {
    "power": Form(lambda r, p: (r + 1.0) ** -p, ((0.01, 6.0),), 60),
    "exponential": Form(lambda r, length: np.exp(-r / length), ((0.3, 3000.0),), 60),
    "stretched": Form(lambda r, length, s: np.exp(-((r / length) ** s)), ((1e-3, 3000.0), (0.1, 1.0)), 25),
    "none": Form(lambda r: np.zeros_like(r), (), 1),
}


@dataclass(frozen=True)
class DecayFit:
    """γ, β and the form's own numbers (p; ℓ; ℓ and s; none), and the sum of squares that is left."""

    form: str
    gamma: float
    beta: float
    own: tuple[float, ...]
    left: float

    def at(self, r: Distances) -> Distances:
        """γ + β·s(r)."""
        return self.gamma + self.beta * FORMS[self.form].shape(np.asarray(r, dtype=float), *self.own)

    def deviation(self, r: Distances, curves: Float[np.ndarray, "*curve distance"]) -> np.ndarray:
        """The mean over distances of |ln m − ln f|, for each curve."""
        return deviation(self.at(r), curves)


def deviation(
    expected: Distances, curves: Float[np.ndarray, "*curve distance"]
) -> Float[np.ndarray, "*curve"]:
    """The mean over distances of |ln curve − ln expected|."""
    return np.abs(np.log(curves) - np.log(expected)).mean(axis=-1)


def fit_decay(r: Distances, curve: Distances, form: str) -> DecayFit:
    """The least squares of relative deviations. Raises `InvalidValueError` unless the curve is positive."""
    from scipy.optimize import minimize

    r, curve = np.asarray(r, dtype=float), np.asarray(curve, dtype=float)
    if not (np.isfinite(curve).all() and (curve > 0.0).all()):
        raise InvalidValueError("curve: zero, negative or not finite somewhere, positive numbers needed")
    form_of = FORMS[form]

    def linear(own: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
        return _weights(1.0 / curve, form_of.shape(r, *own) / curve)

    if not form_of.ranges:
        return DecayFit(form, *linear(())[:2], (), linear(())[2])
    axes = [np.log(np.geomspace(low, high, form_of.steps)) for low, high in form_of.ranges]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    start = min(places, key=lambda place: linear(np.exp(place))[2])
    found = minimize(
        lambda place: linear(np.exp(place))[2],
        start,
        method="Nelder-Mead",
        bounds=np.log(form_of.ranges),
        options={"xatol": 1e-7, "fatol": 1e-15, "maxiter": 400, "initial_simplex": _simplex(start, axes)},
    )
    own = tuple(np.exp(found.x).tolist())
    gamma, beta, left = linear(own)
    return DecayFit(form, gamma, beta, own, left)


def _simplex(start: np.ndarray, axes: Sequence[np.ndarray]) -> np.ndarray:
    """The start, and a place half a step of the grid inwards of it along each axis."""
    steps = np.array([axis[1] - axis[0] for axis in axes]) / 2.0
    middle = np.array([axis.mean() for axis in axes])
    return np.vstack([start, start + np.diag(np.where(start > middle, -steps, steps))])


def _weights(one: Distances, other: Distances) -> tuple[float, float, float]:
    """γ, β ≥ 0 with the least Σ (γ·one + β·other − 1)², and that sum."""
    aa, ab, bb = one @ one, one @ other, other @ other
    a, b = one.sum(), other.sum()
    tried = [(a / aa, 0.0), (0.0, b / bb if bb > 0.0 else 0.0)]
    determinant = aa * bb - ab * ab
    if determinant > 1e-14 * aa * bb:
        both = ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant)
        tried += [both] if min(both) >= 0.0 else []
    left = [float(((gamma * one + beta * other - 1.0) ** 2).sum()) for gamma, beta in tried]
    best = int(np.argmin(left))
    return float(tried[best][0]), float(tried[best][1]), left[best]
