"""LayerNorm-induced recency in closed form: attention scores between random embeddings, layer by layer.

The model (Kim et al. 2026, Eqs. 2, 6 and 20): x_i = ε_i + √(α/(1−α))·v with ε_i, v ~ N(0, I/d); then, per
layer, Y = LayerNorm(X), S = YYᵀ/√d, X ← softmax(S)·Y (+ X with residual). LayerNorm makes ⟨y_i, y_j⟩/d the
sample correlation r_ij of two embeddings, near α. A token so weighs itself by e^√d and another by e^(√d·r),
and with ρ the ratio of their means the second layer has closed scores: below the diagonal S_ij = g(i)·h(j),
where h rises by about (1 − α)ρ per position. That is all of the recency, and it vanishes like e^(−(1−α)√d).

`published` is the letter of the paper, `corrected` (the default) what a simulation gives: the published
constants differ from line to line, and r_ij, replaced by α there, stands in an exponent, where its
fluctuation of order 1/√d counts (`fluctuation_factor`, κ). `means` has the right constants but not κ: it stays
off by the factor κ however large d. Corrected, what is left of the rise S_ij − S_i0 tends to −α(1 − α)²/(2√d)
of it, the level's to (1 − α²)/(2d), and at α = 0 without residual both vanish like e^−√d. For few dimensions
see `posbias_papers.closed_forms.recency`. Positions count from 0: the paper's j − 1 is j here.
"""

import math
from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import hyp2f1, poch

from posbias.core import machine
from posbias.core.errors import InvalidValueError, one_of, whole
from posbias.theory.rollout.kernel import masked_softmax

ReadingName = Literal["corrected", "means", "published"]
Scores = Float[np.ndarray, "query key"]
READINGS: tuple[ReadingName, ...] = ("corrected", "means", "published")
LEAST_DIMENSION = 4
"""The least dimension of the corrected reading: below it the mean of the fluctuating weights diverges at α → 1."""
NODES = 400
"""Gauss-Legendre nodes for means over a sample correlation."""


# --- Definition 1 ------------------------------------------------------------------------------------------


def recency_margin(scores: Scores) -> float:
    """The least of S_ij − S_ik over i ≥ j > k: positive exactly if the scores show recency bias (Definition 1).

    In units of the scores. What stands above the diagonal is not looked at; a single token has no pair, and
    margin +∞. Raises `InvalidValueError` for scores that are not square, or not finite on and below the
    diagonal.
    """
    scores = np.asarray(scores)
    tokens = scores.shape[0]
    if scores.shape != (tokens, tokens) or not tokens:
        raise InvalidValueError(f"scores: shape {scores.shape} given, a square matrix needed")
    causal = np.tri(tokens, dtype=bool)
    if not np.isfinite(scores[causal]).all():
        raise InvalidValueError("scores: not all finite on and below the diagonal, finite ones needed")
    if tokens == 1:
        return math.inf
    seen = np.where(causal, scores, 0.0)
    best_before = np.maximum.accumulate(seen, axis=1)[:, :-1]
    return float((seen[:, 1:] - best_before)[causal[:, 1:]].min())


def exhibits_recency(scores: Scores) -> bool:
    """Whether S_ij > S_ik for all i ≥ j > k (Kim et al. 2026, Definition 1). Raises as `recency_margin`."""
    return recency_margin(scores) > 0.0


# --- the weights of the first layer ------------------------------------------------------------------------


def fluctuation_factor(dimension: int, anisotropy: float = 0.0) -> float:
    """κ = E[(1 − r²)·e^(√d(r − α))]/(1 − α²): what fluctuation adds to the weight of another token.

    r is the correlation of d samples of two normal variables with correlation α (Fisher 1915; Hotelling's
    form of the density, integrated in Fisher's z). κ tends to exp((1 − α²)²/2) as d grows: √e at α = 0, 1 at
    α → 1. Not in the paper, which puts r = α; see `docs/errata.md`. Raises `InvalidValueError` for dimension
    < 4 or α outside [0, 1).
    """
    _check(dimension, anisotropy, least=LEAST_DIMENSION)
    centre = math.atanh(anisotropy)
    u, weight = correlation_rule(dimension - 1, anisotropy)
    cosh = np.cosh(u + centre) / math.cosh(centre)
    # r − α = sinh(u)/(cosh(z) cosh(ζ)) and (1 − r²)/(1 − α²) = cosh(ζ)²/cosh(z)²
    lift = math.sqrt(dimension) * np.sinh(u) / (cosh * math.cosh(centre) ** 2)
    return float(np.sum(weight * np.exp(lift) / cosh**2))


def correlation_rule(
    freedom: int, anisotropy: float = 0.0, count: int = NODES
) -> tuple[Float[np.ndarray, "node"], Float[np.ndarray, "node"]]:
    """Nodes and weights for means over r = tanh(u + artanh α), the correlation of two tokens of correlation α.

    `freedom` ≥ 2 is the number of dimensions that directions have: d − 1 under LayerNorm, d without. The nodes
    are values of u = Fisher's z less its mean's leading part; the density is Hotelling's (1953). Raises
    `InvalidValueError` for freedom < 2 or α outside [0, 1).
    """
    whole("freedom", freedom, 2)
    _check(freedom, anisotropy)
    k, centre = freedom - 1, math.atanh(anisotropy)
    width = max(45.0 / k, 16.0 / math.sqrt(k))
    node, weight = _quadrature(count)
    u = width * node
    cosh = np.cosh(u + centre) / math.cosh(centre)
    constant = k / (poch(k + 1, 0.5) * math.sqrt(2 * math.pi))
    log_density = 0.5 * np.log(cosh) - (k + 0.5) * np.log1p(2 * np.sinh(0.5 * u) ** 2)  # the last: ln cosh u
    series = hyp2f1(0.5, 0.5, k + 1.5, 0.5 + 0.5 * anisotropy * np.tanh(u + centre))
    return u, constant * width * weight * series * np.exp(log_density)


@cache
def _quadrature(count: int) -> tuple[Float[np.ndarray, "node"], Float[np.ndarray, "node"]]:
    return np.polynomial.legendre.leggauss(count)


def cross_weight(dimension: int, anisotropy: float = 0.0, *, reading: ReadingName = "corrected") -> float:
    """ρ, the weight of another token in units of the token's own, e^√d, before normalisation.

    Published and means: e^(−(1−α)√d), the law of large numbers. Corrected: κ times that, the mean weight with
    which another token enters the scores. Underflows to 0 beyond (1 − α)√d of about 700. Raises
    `InvalidValueError` as `fluctuation_factor` does (the other readings take any dimension ≥ 1).
    """
    one_of("reading", reading, READINGS)
    factor = fluctuation_factor(dimension, anisotropy) if reading == "corrected" else 1.0
    _check(dimension, anisotropy)
    return factor * math.exp(-(1.0 - anisotropy) * math.sqrt(dimension))


def residual_coefficient(
    dimension: int, anisotropy: float = 0.0, *, residual: bool, reading: ReadingName = "corrected"
) -> float:
    """What the residual connection adds to a token's weight on its own normalised y; 0 without one.

    x = ‖x‖·y/√d with ‖x‖² = 1/(1−α) makes it 1/√(d(1−α)). Published alone: 1, the paper's γ in Eqs. 34 to 42
    (Eq. 26 has √d‖x‖γ, Eqs. 27 to 33 dγ). Raises `InvalidValueError` for dimension < 1 or α outside [0, 1).
    """
    _check(dimension, anisotropy)
    one_of("reading", reading, READINGS)
    if not residual:
        return 0.0
    return 1.0 if reading == "published" else 1.0 / math.sqrt(dimension * (1.0 - anisotropy))


def normalisers(
    tokens: int, dimension: int, anisotropy: float = 0.0, *, reading: ReadingName = "corrected"
) -> Float[np.ndarray, "query"]:
    """D_i of Eqs. 26 and 27 in units of e^√d (which overflows beyond d = 503,791): 1 + iρ.

    Raises `InvalidValueError` for tokens < 1 and as `cross_weight` does.
    """
    return 1.0 + _positions(tokens) * cross_weight(dimension, anisotropy, reading=reading)


# --- the scores of the second layer ------------------------------------------------------------------------


def log_key_factors(
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    reading: ReadingName = "corrected",
) -> Float[np.ndarray, "key"]:
    """ln h(j)/h(0), Eq. 42: how much higher key j scores than the first key, for every query after j.

    Free of cancellation: right to rounding even where h(j) and h(0) agree to more digits than a double has.
    Raises `InvalidValueError` for tokens < 1, α outside [0, 1), or dimension < 4 (published: < 1).
    """
    weight = cross_weight(dimension, anisotropy, reading=reading)
    own = residual_coefficient(dimension, anisotropy, residual=residual, reading=reading)
    inverse = 1.0 / normalisers(tokens, dimension, anisotropy, reading=reading)
    linear = (1.0 - anisotropy) * (2.0 * own + weight)  # N_j = const + linear/D_j + square/D_j²
    square = (1.0 - anisotropy) * (1.0 - weight)
    loss = _positions(tokens) * weight * inverse * (linear + square * (1.0 + inverse))  # N_0 − N_j
    return -0.5 * np.log1p(-loss / (1.0 + own) ** 2)


def key_factors(
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    reading: ReadingName = "corrected",
) -> Float[np.ndarray, "key"]:
    """h(j) = 1/‖x_j‖ of the first layer's output, Eq. 42. Raises as `log_key_factors` does."""
    own = residual_coefficient(dimension, anisotropy, residual=residual, reading=reading)
    rise = log_key_factors(tokens, dimension, anisotropy, residual=residual, reading=reading)
    return np.exp(rise) / (math.sqrt(dimension) * (1.0 + own))


def query_factors(
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    reading: ReadingName = "corrected",
) -> Float[np.ndarray, "query"]:
    """g(i), so that S_ij = g(i)·h(j) for i > j: √d·⟨x_i, x_j⟩/‖x_i‖ (Eqs. 33 and 41); g(0) multiplies nothing.

    Published: d in the place of √d (Eq. 41), and dγ in the place of γ inside ⟨x_i, x_j⟩ (Eq. 33). Raises as
    `log_key_factors` does.
    """
    weight = cross_weight(dimension, anisotropy, reading=reading)
    own = residual_coefficient(dimension, anisotropy, residual=residual, reading=reading)
    scale = math.sqrt(dimension)
    if reading == "published":
        own, scale = dimension * own, dimension
    others = weight / normalisers(tokens, dimension, anisotropy, reading=reading)
    inner = dimension * (1.0 + own) * (anisotropy * (1.0 + own) + (1.0 - anisotropy) * others)
    return scale * inner * key_factors(tokens, dimension, anisotropy, residual=residual, reading=reading)


def second_layer_scores(
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    reading: ReadingName = "corrected",
) -> Scores:
    """The mean of S⁽²⁾ for large d: g(i)·h(j) below the diagonal, √d on it, −∞ above (Eqs. 11, 41).

    Corrected: of the differences within a row, those of a simulation at 6 tokens deviate by at most 5/d of
    themselves (d ≥ 16; by factors of two and more at d = 4). Where they are below 1e-16 of the scores,
    `log_key_factors` has them. Raises as `log_key_factors` does.
    """
    machine.length("tokens", tokens, squared=True)
    common = {"residual": residual, "reading": reading}
    rows = query_factors(tokens, dimension, anisotropy, **common)
    return _causal(np.outer(rows, key_factors(tokens, dimension, anisotropy, **common)), math.sqrt(dimension))


def isotropic_scores(tokens: int, dimension: int, *, reading: ReadingName = "corrected") -> Scores:
    """S⁽²⁾ at α = 0 without residual: Eq. 5, and √d on the diagonal (Theorem 1).

    Eq. 5 is `second_layer_scores` with ρ = e^−√d and √d for the d of Eq. 41; κ times that ρ corrects it: the
    mean score is κ → √e times the printed one, its rise per position κ² → e times. Raises as
    `log_key_factors` does.
    """
    if reading != "published":
        return second_layer_scores(tokens, dimension, reading=reading)
    machine.length("tokens", tokens, squared=True)
    published = query_factors(tokens, dimension, reading="published") / math.sqrt(dimension)
    return _causal(
        np.outer(published, key_factors(tokens, dimension, reading="published")), math.sqrt(dimension)
    )


# --- without LayerNorm, and further layers -----------------------------------------------------------------


def scores_without_layernorm(tokens: int, dimension: int, *, reading: ReadingName = "corrected") -> Scores:
    """S⁽²⁾ of attention alone at α = 0 (Proposition 1): 1/(√d(e^(1/√d) + i)) for every key before the query.

    Below the diagonal Eq. 19, which lacks the 1/√d, in the published reading; on the diagonal what Eq. 16
    gives; −∞ above. Raises `InvalidValueError` for tokens or dimension < 1.
    """
    _check(dimension, 0.0)
    machine.length("tokens", tokens, each=16, squared=True)
    position, own = _positions(tokens), math.exp(1.0 / math.sqrt(dimension))
    one_of("reading", reading, READINGS)
    unit = 1.0 if reading == "published" else 1.0 / math.sqrt(dimension)
    below = np.repeat(unit / (own + position)[:, None], tokens, axis=1)
    return _causal(below, unit * (own**2 + position) / (own + position) ** 2)


def limit_scores(
    depth: int,
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    layernorm: bool = True,
) -> Float[np.ndarray, "layer query key"]:
    """The scores of layers 1 to `depth` when all inner products are at their means, by recursion.

    With ⟨x_i, x_j⟩ = α/(1−α) + 1[i = j] at the bottom, inner products G go to WGWᵀ with W = A (+ the residual's
    diagonal). Without LayerNorm that is the limit of large d; with it fluctuations are left out, as in the
    paper (layer 2 is then `second_layer_scores` at κ = 1). Raises `InvalidValueError` for depth, tokens or
    dimension < 1, or α outside [0, 1).
    """
    _check(dimension, anisotropy)
    machine.length("tokens", tokens, each=48, squared=True)
    machine.require(8 * whole("depth", depth, 1) * tokens**2, "depth", depth)
    products = np.eye(_positions(tokens).size) + anisotropy / (1.0 - anisotropy)
    causal, layers = np.tri(tokens, dtype=bool), []
    for _ in range(depth):
        size = np.sqrt(np.diag(products) / dimension) if layernorm else np.ones(tokens)
        products = products / np.outer(size, size)
        scores = products / math.sqrt(dimension)
        layers.append(np.where(causal, scores, -np.inf))
        weights = masked_softmax(scores, causal) + (np.diag(size) if residual else 0.0)
        products = weights @ products @ weights.T
    return np.stack(layers)


# --- checks ------------------------------------------------------------------------------------------------


def _causal(below: Scores, diagonal: float | Float[np.ndarray, "query"]) -> Scores:
    scores = np.where(np.tri(len(below), dtype=bool), below, -np.inf)
    np.fill_diagonal(scores, diagonal)
    return scores


def _positions(tokens: int) -> Float[np.ndarray, "position"]:
    return np.arange(float(machine.length("tokens", tokens)))


def _check(dimension: int, anisotropy: float, least: int = 1) -> None:
    whole("dimension", dimension, least)
    if not 0.0 <= anisotropy < 1.0:
        raise InvalidValueError(f"anisotropy: {anisotropy} given, a number in [0, 1) needed")
