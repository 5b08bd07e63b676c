"""LayerNorm-induced recency of two or three tokens in full digits: no large dimension, no sampling.

Scores depend on the embeddings through their Gram matrix alone, and that of n normal embeddings is the one of
n short vectors (Bartlett): token 0 on an axis, token 1 in a plane with it, token 2 in a space with both. Each
is a mean in the direction of the tokens before it plus a noise of independent length (a chi variate) and
angles (densities sin^k). Three numbers for two tokens, six for three: few enough for a product of Gauss rules,
one made for each density, which takes all that sampling would average over into 10 to 16 nodes per number.
Whether S_21 > S_20 jumps, so of that chance one number is taken analytically: the noise along y_1 − y_0, with
which S_21 − S_20 rises, is normal, and where the difference is zero is found by bisection.

More tokens have no such answer here (four would need ten numbers): they are left to `posbias.simulation`. The
closed forms for large dimensions, at any number of tokens, are in `posbias_papers.closed_forms.layernorm`.

    model = RecencyModel(3, 16, 0.5, depth=2)
    exact_scores(model).rises.value[1]               # S_21 − S_20 of the second layer: 0.12159262
    recency_excess(model).value[1]                   # recency probability − ½: 0.0734968

Positions count from 0, layers from 0 in arrays. Model: Kim et al. 2026, Eqs. 1, 2, 6 and 20.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh_tridiagonal
from scipy.special import ndtr

from posbias.core.errors import InvalidValueError, whole
from posbias.simulation.model import RecencyModel
from posbias_papers.closed_forms.layernorm import NODES, correlation_rule, legendre, need_printed

Column = Any
"""A number, or one number per node."""
Tokens = Float[np.ndarray, "token coordinate *node"]
Rule = tuple[Float[np.ndarray, "node"], Float[np.ndarray, "node"]]
REACH = 15.0
"""Standard deviations within which the noise at which S_21 = S_20 is looked for."""


@dataclass(frozen=True)
class Integral:
    """Expected values, and how far each moved from a rule with two nodes fewer per variable, plus rounding.

    That is the error of the coarser rule, and more than that of `value`; but with the least dimensions, where
    rules converge slowly, only of its order. Equal shapes.
    """

    value: Float[np.ndarray, "..."]
    error: Float[np.ndarray, "..."]


@dataclass(frozen=True)
class ExactScores:
    """Expected scores [layer, query, key], NaN above the diagonal, and `rises` of the last query [layer].

    A rise is S_i,i−1 − S_i0 with i the last token: 0 for two tokens, and in the first layer; free of the
    cancellation between the two scores' common part.
    """

    scores: Integral
    rises: Integral


def exact_scores(model: RecencyModel, nodes: int | None = None) -> ExactScores:
    """The expected scores of a model of two or three tokens, at any dimension.

    Two tokens with a norm and no residual are one integral over their correlation, right to rounding. Else `nodes`
    per variable (default 40 for two tokens, 10 for three, 24 without anisotropy) give 7 digits at d = 16, 11 at
    d = 64, but 4 at d = 8 with much anisotropy and 3 at d = 4; time and memory grow with their sixth and fourth
    power.

    Raises `InvalidValueError` for tokens other than 2 or 3, nodes < 4, dimension < tokens (with LayerNorm, which
    takes one away: ≤ tokens), and a model with an order, temperature, affine norm or mask other than the paper's.
    """
    few, many = (40, NODES) if model.tokens == 2 else (10, 24)
    count = many if _lengthless(model) or (model.tokens == 2 and _directional(model)) else few
    count = _checked(model, count if nodes is None else nodes)
    (scores, rises), (other_scores, other_rises) = (_expected_scores(model, k) for k in (count, count - 2))
    rounding = np.finfo(float).eps * np.nanmax(np.abs(scores))
    return ExactScores(
        Integral(scores, np.abs(scores - other_scores) + rounding),
        Integral(rises, np.abs(rises - other_rises) + rounding),
    )


def recency_excess(model: RecencyModel, nodes: int | None = None) -> Integral:
    """The recency probability P(S_21 > S_20) of three tokens less one half, in every layer.

    0 in the first layer, where tokens are alike, and in the second without a norm. Right also where it is tiny:
    with `nodes` per variable (default 8, 16 where only directions count) to 6 digits in the second layer at
    d = 16, to 4 in the third; without a norm to 4 and 2. S_21 − S_20 rises with the noise of token 2 along
    y_1 − y_0 and so has one zero (from the third layer on this is tested, not proved). Raises as `exact_scores`,
    and for two tokens.
    """
    count = _checked(model, (16 if _lengthless(model) else 8) if nodes is None else nodes, tokens=(3,))
    fine, coarse = _expected_excess(model, count), _expected_excess(model, count - 2)
    return Integral(fine, np.abs(fine - coarse) + np.finfo(float).eps)


def _checked(model: RecencyModel, nodes: int, tokens: tuple[int, ...] = (2, 3)) -> int:
    """The nodes per variable, of a model that can be integrated."""
    if model.tokens not in tokens:
        few = " or ".join(map(str, tokens))
        raise InvalidValueError(f"tokens: expected {few} (simulate for others), got {model.tokens}")
    whole("dimension", model.dimension, model.tokens + (model.norm == "layernorm"))
    need_printed(model)
    return whole("nodes", nodes, 4)


# --- the model on a node -----------------------------------------------------------------------------------


def _directional(model: RecencyModel) -> bool:
    """Whether scores depend on the directions of the embeddings alone."""
    return model.norm != "none" and not model.residual


def _lengthless(model: RecencyModel) -> bool:
    """Whether the lengths of the noises do not matter: they are the tokens' own."""
    return _directional(model) and model.anisotropy == 0.0


def _factor(model: RecencyModel) -> Float[np.ndarray, "token noise"]:
    """The Cholesky factor of the tokens' covariance 1 + α/(1−α) and α/(1−α) per coordinate, over d."""
    shared = model.anisotropy / (1.0 - model.anisotropy)
    return np.linalg.cholesky((np.eye(model.tokens) + shared) / model.dimension)


def node_scores(model: RecencyModel, tokens: Tokens) -> Float[np.ndarray, "layer query key *node"]:
    """S_ij of every layer for tokens given by their coordinates; above the diagonal as without a mask."""
    diagonal, layers = np.arange(model.tokens), []
    hidden = np.tri(model.tokens).reshape(model.tokens, model.tokens, *[1] * (tokens.ndim - 2)) == 0
    inner = np.einsum("ic...,jc...->ij...", tokens, tokens)
    for _ in range(model.depth):
        squares = inner[diagonal, diagonal] / model.dimension
        length = np.sqrt(squares) if model.norm != "none" else np.ones_like(squares)
        inner = inner / (length[:, None] * length[None])
        layers.append(inner / math.sqrt(model.dimension))
        logits = np.where(hidden, -np.inf, layers[-1])
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        if model.residual:
            weights[diagonal, diagonal] += length
        mixed = np.einsum("ik...,kj...->ij...", weights, inner)
        inner = np.einsum("ik...,jk...->ij...", mixed, weights)
    return np.stack(layers)


def _plane(model: RecencyModel, first: Column, second: Column, angle: Column) -> list[list[Column]]:
    """Tokens in the plane of tokens 0 and 1, from the lengths of two noises and the angle between them.

    Of token 2 its mean, given the first two.
    """
    along, across = second * np.cos(angle), second * np.sin(angle)
    return [[row[0] * first + row[1] * along, row[1] * across] for row in _factor(model)]


def _third(
    model: RecencyModel, first: Column, second: Column, angle: Column
) -> tuple[Callable[[Column, Column, Column], Tokens], Column]:
    """Three tokens as a function of the noise of token 2, and its mean along y_1 − y_0.

    The noise is given by its parts along y_1 − y_0, across it in the plane, and out of the plane; the mean in
    units of the noise's standard deviation.
    """
    zero, one, mean = _plane(model, first, second, angle)
    size = 1.0 if model.norm == "none" else np.hypot(*one)
    u, w = one[0] / size - (zero[0] if model.norm == "none" else 1.0), one[1] / size
    size, spread = np.hypot(u, w), _factor(model)[2, 2]
    u, w = u / size, w / size

    def tokens(along: Column, across: Column, out: Column) -> Tokens:
        two = mean[0] + spread * (along * u - across * w), mean[1] + spread * (along * w + across * u)
        return _stacked([*zero, 0.0], [*one, 0.0], [*two, spread * out])

    return tokens, (mean[0] * u + mean[1] * w) / spread


def _stacked(*tokens: Sequence[Column]) -> Tokens:
    """Tokens by their coordinates as one array."""
    columns = np.broadcast_arrays(*itertools.chain(*tokens))
    return np.stack(columns).reshape(len(tokens), -1, *columns[0].shape)


# --- expectations ------------------------------------------------------------------------------------------


def _expected_scores(
    model: RecencyModel, nodes: int
) -> tuple[Float[np.ndarray, "layer query key"], Float[np.ndarray, "layer"]]:
    freedom, n = model.freedom, model.tokens
    pair_alone = n == 2 and _directional(model)
    if pair_alone:
        rules = [correlation_rule(freedom, model.anisotropy, nodes)]
    else:
        radii = lengths(freedom, 1 if _lengthless(model) else nodes)
        rules = [radii, radii, angles(freedom - 2, nodes)]
        if n == 3:
            rules += [radii, angles(freedom - 2, nodes), angles(freedom - 3, nodes)]
    scores, rises = np.zeros((model.depth, n, n)), np.zeros(model.depth)
    for values, weights in blocks(rules):
        if pair_alone:
            z = values[0] + math.atanh(model.anisotropy)  # Fisher's: cosine tanh z, sine 1/cosh z
            tokens = _stacked([1.0, 0.0], [np.tanh(z), 1.0 / np.cosh(z)])
        elif n == 2:
            tokens = _stacked(*_plane(model, *values))
        else:
            *pair, length, polar, around = values
            across = length * np.sin(polar)
            noise = length * np.cos(polar), across * np.cos(around), across * np.sin(around)
            tokens = _third(model, *pair)[0](*noise)
        layers = node_scores(model, tokens)
        scores += layers @ weights
        # the mean rise of the first layer is zero
        rises += (_last_rise(layers) - _last_rise(layers)[0]) @ weights
    return np.where(np.tri(n, dtype=bool), scores, np.nan), rises


def _expected_excess(model: RecencyModel, nodes: int) -> Float[np.ndarray, "layer"]:
    freedom = model.freedom
    radii = lengths(freedom, 1 if _lengthless(model) else nodes)
    rules = [radii, radii, angles(freedom - 2, nodes)]
    rules += [lengths(freedom - 1, nodes), angles(freedom - 3, nodes)]
    excess = np.zeros(model.depth)
    for values, weights in blocks(rules):
        *pair, length, around = values
        third, mean = _third(model, *pair)
        across, out = length * np.cos(around), length * np.sin(around)
        alike = ndtr(mean)  # the chance in the first layer, one half on average
        for layer in range(1, model.depth):
            low, high = np.full(weights.shape, -REACH), np.full(weights.shape, REACH)
            for _ in range(56):  # S_21 − S_20 rises with the noise: bisection
                middle = 0.5 * (low + high)
                above = _last_rise(node_scores(model, third(middle, across, out)))[layer] > 0.0
                low, high = np.where(above, low, middle), np.where(above, middle, high)
            excess[layer] += np.sum(weights * (ndtr(-0.5 * (low + high)) - alike))
    return excess


def _last_rise(scores: Float[np.ndarray, "layer query key *node"]) -> Float[np.ndarray, "layer *node"]:
    return scores[:, -1, -2] - scores[:, -1, 0]


# --- Gauss rules for the lengths and angles of normal vectors --------------------------------------------------

# A normal vector of k coordinates has a length, a chi variate, and independent angles of densities sin^(k−2),
# sin^(k−3), …. For each density a Gauss rule of its own is made, so that a few nodes take a mean over it in
# full digits wherever the integrand is smooth on the density's scale.


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

    def log_density(length: Column) -> Column:
        return (freedom - 1) * np.log(length / middle) - 0.5 * (length**2 - freedom)

    return _gauss_rule(log_density, max(0.0, middle - 10.0), middle + 10.0, count)


@cache
def angles(power: int, count: int) -> Rule:
    """The Gauss rule of an angle between 0 and π with density ∝ sin^power."""
    half = min(math.pi / 2, 12.0 / math.sqrt(power + 1.0))
    nodes, weights = _gauss_rule(lambda angle: power * np.log(np.cos(angle)), -half, half, count)
    return nodes + math.pi / 2, weights


def _gauss_rule(log_density: Callable[[Column], Column], low: float, high: float, count: int) -> Rule:
    """The Gauss rule of a density: Stieltjes' recurrence on a grid, then Golub and Welsch's eigenvalues."""
    point, weight = legendre(NODES)
    point = low + 0.5 * (high - low) * (point + 1.0)
    weight = weight * np.exp(log_density(point))
    weight /= weight.sum()
    diagonal, off_diagonal = np.empty(count), np.empty(count)
    before, now, norm = np.zeros_like(point), np.ones_like(point), 0.0
    for k in range(count):
        diagonal[k] = np.sum(weight * point * now**2)
        following = (point - diagonal[k]) * now - norm * before
        norm = off_diagonal[k] = math.sqrt(np.sum(weight * following**2))
        before, now = now, following / norm
    nodes, vectors = eigh_tridiagonal(diagonal, off_diagonal[:-1])
    return nodes, vectors[0] ** 2
