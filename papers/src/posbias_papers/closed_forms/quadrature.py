"""Gauss rules for the lengths and angles of normal vectors, and their products.

A normal vector of k coordinates has a length, a chi variate, and independent angles of densities sin^(k−2),
sin^(k−3), …. For each density a Gauss rule of its own is made, so that a few nodes take a mean over it in
full digits wherever the integrand is smooth on the density's scale.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh_tridiagonal

GRID = 400
"""Gauss-Legendre nodes on which a density stands when a Gauss rule is made for it."""
Column = Any
"""A number, or one number per node."""
Rule = tuple[Float[np.ndarray, "node"], Float[np.ndarray, "node"]]


def blocks(rules: Sequence[Rule]) -> Iterator[tuple[list[Column], Float[np.ndarray, "node"]]]:
    """All nodes of a product of rules, the last four variables together as columns, with their weights."""
    outer, inner = rules[:-4], rules[-4:]
    columns = [column.ravel() for column in np.meshgrid(*(nodes for nodes, _ in inner), indexing="ij")]
    weights = np.ones(1)
    for _, weight in inner:
        weights = np.multiply.outer(weights, weight).ravel()
    for place in itertools.product(*(range(nodes.size) for nodes, _ in outer)):
        share = math.prod(rule[1][k] for rule, k in zip(outer, place, strict=True))
        yield [rule[0][k] for rule, k in zip(outer, place, strict=True)] + columns, share * weights


@cache
def lengths(freedom: int, count: int) -> Rule:
    """The Gauss rule of a chi variate."""
    middle = math.sqrt(freedom)
    low = max(0.0, middle - 10.0)
    point, weight = _stretched(low, middle + 10.0)
    log_density = (freedom - 1) * np.log(point / middle) - 0.5 * (point**2 - freedom)
    return _gauss_rule(point, weight * np.exp(log_density), count)


@cache
def angles(power: int, count: int) -> Rule:
    """The Gauss rule of an angle between 0 and π with density ∝ sin^power."""
    half = min(math.pi / 2, 12.0 / math.sqrt(power + 1.0))
    point, weight = _stretched(-half, half)
    nodes, weights = _gauss_rule(point, weight * np.exp(power * np.log(np.cos(point))), count)
    return nodes + math.pi / 2, weights


@cache
def _legendre() -> Rule:
    return np.polynomial.legendre.leggauss(GRID)


def _stretched(low: float, high: float) -> Rule:
    point, weight = _legendre()
    return low + 0.5 * (high - low) * (point + 1.0), weight


def _gauss_rule(point: Float[np.ndarray, "point"], weight: Float[np.ndarray, "point"], count: int) -> Rule:
    """The Gauss rule of a density given on a grid: Stieltjes' recurrence, then Golub and Welsch's eigenvalues."""
    weight = weight / weight.sum()
    diagonal, off_diagonal = np.empty(count), np.empty(count)
    before, now, norm = np.zeros_like(point), np.ones_like(point), 0.0
    for k in range(count):
        diagonal[k] = np.sum(weight * point * now**2)
        following = (point - diagonal[k]) * now - norm * before
        norm = off_diagonal[k] = math.sqrt(np.sum(weight * following**2))
        before, now = now, following / norm
    nodes, vectors = eigh_tridiagonal(diagonal, off_diagonal[:-1])
    return nodes, vectors[0] ** 2
