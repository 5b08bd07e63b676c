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
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import hyp2f1, poch

from posbias.core.errors import one_of, whole, wrong
from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias.theory.rollout.kernel import masked_softmax

ReadingName = Literal["corrected", "means", "published"]
Scores = Float[np.ndarray, "query key"]
READINGS: tuple[ReadingName, ...] = ("corrected", "means", "published")
QuantityName = Literal["rise", "level"]
LEAST_DIMENSION = 4
"""The least dimension of the corrected reading: below it the mean of the fluctuating weights diverges at α → 1."""
PARTS = ("tokens", "dimension", "anisotropy", "norm", "residual", "depth")
"""The fields of a `RecencyModel`, in their order, that may differ from the paper's."""
NODES = 400
"""Gauss-Legendre nodes for means over a sample correlation."""


def need_printed(model: RecencyModel) -> None:
    """Raise `InvalidValueError` for an order, temperature, affine norm or mask other than the paper's."""
    if model != RecencyModel(*(getattr(model, name) for name in PARTS)):
        raise wrong("model", "the paper's order, temperature, norms and mask", got=f"{model}")


def recency_margin(scores: Scores) -> float:
    """The least of S_ij − S_ik over i ≥ j > k: positive exactly if the scores show recency bias (Definition 1).

    In units of the scores. What stands above the diagonal is not looked at; a single token has no pair, and
    margin +∞.
    """
    causal = np.tri(len(scores), dtype=bool)
    seen = np.where(causal, scores, 0.0)
    best_before = np.maximum.accumulate(seen, axis=1)[:, :-1]
    return float((seen[:, 1:] - best_before)[causal[:, 1:]].min(initial=math.inf))


# --- the weights of the first layer ------------------------------------------------------------------------


def fluctuation_factor(dimension: int, anisotropy: float = 0.0) -> float:
    """κ = E[(1 − r²)·e^(√d(r − α))]/(1 − α²): what fluctuation adds to the weight of another token.

    r is the correlation of d samples of two normal variables with correlation α (Fisher 1915; Hotelling's
    form of the density, integrated in Fisher's z). κ tends to exp((1 − α²)²/2) as d grows: √e at α = 0, 1 at
    α → 1. Not in the paper, which puts r = α; see the erratum kim2026/fluctuation. For dimension ≥ 4.
    """
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
    are values of u = Fisher's z less its mean's leading part; the density is Hotelling's (1953).
    """
    k, centre = freedom - 1, math.atanh(anisotropy)
    width = max(45.0 / k, 16.0 / math.sqrt(k))
    node, weight = legendre(count)
    u = width * node
    cosh = np.cosh(u + centre) / math.cosh(centre)
    constant = k / (poch(k + 1, 0.5) * math.sqrt(2 * math.pi))
    log_density = 0.5 * np.log(cosh) - (k + 0.5) * np.log1p(2 * np.sinh(0.5 * u) ** 2)  # the last: ln cosh u
    series = hyp2f1(0.5, 0.5, k + 1.5, 0.5 + 0.5 * anisotropy * np.tanh(u + centre))
    return u, constant * width * weight * series * np.exp(log_density)


@cache
def legendre(count: int) -> tuple[Float[np.ndarray, "node"], Float[np.ndarray, "node"]]:
    """Gauss-Legendre nodes and weights on [−1, 1]."""
    return np.polynomial.legendre.leggauss(count)


def cross_weight(dimension: int, anisotropy: float = 0.0, *, reading: ReadingName = "corrected") -> float:
    """ρ, the weight of another token in units of the token's own, e^√d, before normalisation.

    Published and means: e^(−(1−α)√d), the law of large numbers. Corrected: κ times that, the mean weight with
    which another token enters the scores. Underflows to 0 beyond (1 − α)√d of about 700. Raises
    `InvalidValueError` for α outside [0, 1), an unknown reading, and dimension < 4 (other readings: < 1).
    """
    one_of("reading", reading, READINGS)
    whole("dimension", dimension, LEAST_DIMENSION if reading == "corrected" else 1)
    if not 0.0 <= anisotropy < 1.0:
        raise wrong("anisotropy", "a number in [0, 1)", got=f"{anisotropy}")
    factor = fluctuation_factor(dimension, anisotropy) if reading == "corrected" else 1.0
    return factor * math.exp(-(1.0 - anisotropy) * math.sqrt(dimension))


def residual_coefficient(
    dimension: int, anisotropy: float = 0.0, *, residual: bool, reading: ReadingName = "corrected"
) -> float:
    """What the residual connection adds to a token's weight on its own normalised y; 0 without one.

    x = ‖x‖·y/√d with ‖x‖² = 1/(1−α) makes it 1/√(d(1−α)). Published alone: 1, the paper's γ in Eqs. 34 to 42
    (Eq. 26 has √d‖x‖γ, Eqs. 27 to 33 dγ).
    """
    if not residual:
        return 0.0
    return 1.0 if reading == "published" else 1.0 / math.sqrt(dimension * (1.0 - anisotropy))


# --- the scores of the second layer ------------------------------------------------------------------------


@dataclass(frozen=True)
class SecondLayer:
    """The closed form of S⁽²⁾ in a `reading`: S_ij = g(i)·h(j) below the diagonal.

    Raises `InvalidValueError` for tokens < 1 and as `cross_weight`.
    """

    tokens: int
    dimension: int
    anisotropy: float = 0.0
    residual: bool = False
    reading: ReadingName = "corrected"

    def __post_init__(self):
        whole("tokens", self.tokens, 1)

    @classmethod
    def of(cls, model: RecencyModel, reading: ReadingName = "corrected") -> "SecondLayer":
        """That of a model under LayerNorm or RMSNorm, which are one for large d. Raises as `need_printed`."""
        need_printed(model)
        return cls(model.tokens, model.dimension, model.anisotropy, model.residual, reading)

    @property
    def _weight(self) -> float:
        return cross_weight(self.dimension, self.anisotropy, reading=self.reading)

    @property
    def _own(self) -> float:
        named = {"residual": self.residual, "reading": self.reading}
        return residual_coefficient(self.dimension, self.anisotropy, **named)

    @property
    def log_rise(self) -> Float[np.ndarray, "key"]:
        """ln h(j)/h(0), Eq. 42: how much higher key j scores than the first key, for every query after j.

        Free of cancellation: right to rounding even where h(j) and h(0) agree to more digits than a double has.
        """
        weight, own, position = self._weight, self._own, np.arange(float(self.tokens))
        inverse = 1.0 / (1.0 + position * weight)  # 1/D_i of Eqs. 26 and 27, in units of e^√d
        linear = (1.0 - self.anisotropy) * (2.0 * own + weight)  # N_j = const + linear/D_j + square/D_j²
        square = (1.0 - self.anisotropy) * (1.0 - weight)
        loss = position * weight * inverse * (linear + square * (1.0 + inverse))  # N_0 − N_j
        return -0.5 * np.log1p(-loss / (1.0 + own) ** 2)

    @property
    def keys(self) -> Float[np.ndarray, "key"]:
        """h(j) = 1/‖x_j‖ of the first layer's output, Eq. 42."""
        return np.exp(self.log_rise) / (math.sqrt(self.dimension) * (1.0 + self._own))

    @property
    def queries(self) -> Float[np.ndarray, "query"]:
        """g(i) = √d·⟨x_i, x_j⟩/‖x_i‖ (Eqs. 33 and 41); g(0) multiplies nothing.

        Published: d in the place of √d (Eq. 41), and dγ in the place of γ inside ⟨x_i, x_j⟩ (Eq. 33).
        """
        weight, own, scale = self._weight, self._own, math.sqrt(self.dimension)
        if self.reading == "published":
            own, scale = self.dimension * own, self.dimension
        others = (1.0 - self.anisotropy) * weight / (1.0 + np.arange(self.tokens) * weight)
        return scale * self.dimension * (1.0 + own) * (self.anisotropy * (1.0 + own) + others) * self.keys

    @property
    def scores(self) -> Scores:
        """The mean of S⁽²⁾ for large d: g(i)·h(j) below the diagonal, √d on it, −∞ above (Eqs. 11, 41).

        Corrected: of the differences within a row, those of a simulation at 6 tokens deviate by at most 5/d of
        themselves (d ≥ 16; by factors of two and more at d = 4). Where they are below 1e-16 of the scores,
        `log_rise` has them.
        """
        return _causal(np.outer(self.queries, self.keys), math.sqrt(self.dimension))


# --- without LayerNorm, and further layers -----------------------------------------------------------------


def scores_without_layernorm(tokens: int, dimension: int, *, reading: ReadingName = "corrected") -> Scores:
    """S⁽²⁾ of attention alone at α = 0 (Proposition 1): 1/(√d(e^(1/√d) + i)) for every key before the query.

    Below the diagonal Eq. 19, which lacks the 1/√d, in the published reading; on the diagonal what Eq. 16
    gives; −∞ above.
    """
    position, own = np.arange(float(tokens)), math.exp(1.0 / math.sqrt(dimension))
    unit = 1.0 if reading == "published" else 1.0 / math.sqrt(dimension)
    below = np.repeat(unit / (own + position)[:, None], tokens, axis=1)
    return _causal(below, unit * (own**2 + position) / (own + position) ** 2)


def closed_scores(model: RecencyModel, reading: ReadingName = "corrected") -> Scores:
    """S⁽²⁾ of a model in closed form: Eq. 19 without a norm, Eq. 5 at α = 0 without residual, else Eq. 41.

    Eq. 5 is `SecondLayer` with ρ = e^−√d and √d for the d of Eq. 41, its reading of means; κ times that ρ corrects
    it: the mean score is κ → √e times the printed one, its rise per position κ² → e times.
    Raises as `need_printed`.
    """
    need_printed(model)
    if model.norm == "none":
        return scores_without_layernorm(model.tokens, model.dimension, reading=reading)
    if reading == "published" and not (model.anisotropy or model.residual):
        reading = "means"
    return SecondLayer.of(model, reading).scores


def limit_scores(model: RecencyModel) -> Float[np.ndarray, "layer query key"]:
    """The scores of every layer when all inner products are at their means, by recursion.

    With ⟨x_i, x_j⟩ = α/(1−α) + 1[i = j] at the bottom, inner products G go to WGWᵀ with W = A (+ the residual's
    diagonal). Without a norm that is the limit of large d; with it fluctuations are left out, as in the paper
    (layer 2 is then `SecondLayer` at κ = 1). Raises as `need_printed`.
    """
    need_printed(model)
    tokens = model.tokens
    products = np.eye(tokens) + model.anisotropy / (1.0 - model.anisotropy)
    causal, layers = np.tri(tokens, dtype=bool), []
    for _ in range(model.depth):
        size = np.sqrt(np.diag(products) / model.dimension) if model.norm != "none" else np.ones(tokens)
        products = products / np.outer(size, size)
        scores = products / math.sqrt(model.dimension)
        layers.append(np.where(causal, scores, -np.inf))
        weights = masked_softmax(scores, causal) + (np.diag(size) if model.residual else 0.0)
        products = weights @ products @ weights.T
    return np.stack(layers)


def _causal(below: Scores, diagonal: float | Float[np.ndarray, "query"]) -> Scores:
    scores = np.where(np.tri(len(below), dtype=bool), below, -np.inf)
    np.fill_diagonal(scores, diagonal)
    return scores


# --- how far the closed forms are off ------------------------------------------------------------------------


def closed_form(quantity: QuantityName, model: RecencyModel, reading: ReadingName = "corrected") -> float:
    """Of the last query, the rise S_i,i−1/S_i0 − 1 = h(i−1)/h(0) − 1, or the level S_i0 of `closed_scores`."""
    if quantity == "rise":
        return math.expm1(SecondLayer.of(model, reading).log_rise[-2])
    return float(closed_scores(model, reading)[-1, 0])


def deviation(predicted: float, found: float | Estimate) -> Estimate:
    """predicted/found − 1, by which share of it a prediction is off what was found."""
    found = found if isinstance(found, Estimate) else Estimate(found)
    share = predicted / found.value
    return Estimate(share - 1.0, abs(share * found.se / found.value), found.n)
