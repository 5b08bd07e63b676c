"""What the closed forms say about drawn inputs, tried against small simulations in token space.

Two kinds of noise are taken out exactly: the score of the first layer, which has the same mean for all pairs, and,
where the effect is of second order in e^−√d, the first order, of which the same holds at α = 0 (`first_order`).
A simulation agrees if it deviates by at most 5 standard errors and 5/d of the predicted number.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from posbias.core.seeds import stream
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings, layer_scores
from posbias.theory.closed_forms.layernorm import (
    ReadingName,
    isotropic_scores,
    limit_scores,
    log_key_factors,
    recency_margin,
)
from posbias_papers.statements.kim.closed_forms import strict
from posbias_papers.statements.margins import least
from posbias_papers.statements.statement import Instance

SIGMAS = 5.0
"""Standard errors that a simulation may be off by."""
DEVIATION = 5.0
"""What a closed form may be off by, times 1/d of itself; what simulations at 6 tokens and d ≥ 16 stay within."""
NEAR_HALF = 0.05
"""How far a recency probability may be from one half to count as close to it."""

Scores = Float[np.ndarray, "layer sample query key"]
LayerScores = Float[np.ndarray, "sample query key"]


def simulated_scores(
    seed: int,
    samples: int,
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    residual: bool = False,
    layernorm: bool = True,
    depth: int = 2,
) -> Scores:
    """YYᵀ/√d of layers 1 to `depth` for `samples` drawn inputs (Eqs. 2, 6, 20), the mask not yet applied.

    From `posbias.simulation.token_space`; all samples at once, so for small numbers of them.
    """
    norm = "layernorm" if layernorm else "none"
    model = RecencyModel(tokens, dimension, anisotropy, norm, residual, depth)
    return layer_scores(model, embeddings(stream(seed, "verify/kim/embeddings"), model, samples))[0]


def draw_inputs(
    rng: Generator,
    edge: bool,
    *,
    anisotropic: bool = False,
    samples: int = 250,
    largest: int = 400,
    fewest: int = 4,
) -> Instance:
    """A model to be simulated, with its seed; at the edge as few or as many dimensions as are tried."""
    least = 64 if largest > 100 else 16
    return {
        "seed": int(rng.integers(2**31)),
        "samples": samples,
        "tokens": int(rng.integers(fewest, fewest + 3)),
        "dimension": int(rng.choice([least, largest]) if edge else rng.integers(least, largest + 1)),
        "anisotropy": float(rng.choice([0.2, 0.99]) if edge else rng.uniform(0.2, 0.99)) * anisotropic,
        "residual": bool(anisotropic and rng.random() < 0.5),
    }


def first_order(scores: LayerScores, dimension: int) -> LayerScores:
    """The part of S⁽²⁾ − S⁽¹⁾ of first order in the weights u_ik = e^(√d(r_ik − 1)), below the diagonal.

    √d·[Σ_k u_ik(r_kj − r_ij r_ik) + Σ_l u_jl(r_il − r_ij r_jl)], without residual; `scores` are S⁽¹⁾.
    """
    r = scores / math.sqrt(dimension)
    u = np.tril(np.exp(math.sqrt(dimension) * (r - 1.0)), -1)
    seen = (u * r).sum(axis=-1)
    return math.sqrt(dimension) * (u @ r + r @ u.swapaxes(1, 2) - r * (seen[:, :, None] + seen[:, None, :]))


def _agreement(drawn: Float[np.ndarray, "sample"], predicted: float, dimension: int) -> float:
    """What is left of the allowance after |mean − predicted|, in units of the predicted number.

    The allowance is never more than that number: a simulation too noisy to show its sign agrees with nothing.
    """
    error = float(drawn.std(ddof=1)) / math.sqrt(drawn.size)
    allowed = DEVIATION / dimension + SIGMAS * error / abs(predicted)
    off = abs(float(drawn.mean()) / predicted - 1.0)
    return least(min(allowed, 1.0) - off, drawn.mean(), predicted)


def recency_shares(scores: LayerScores) -> Float[np.ndarray, "sample"]:
    """Per sample the share of triples i > j > k with S_ij > S_ik."""
    pairs = []
    for query in range(2, scores.shape[-1]):
        j, k = np.tril_indices(query, -1)
        pairs.append(scores[:, query, j] > scores[:, query, k])
    return np.concatenate(pairs, axis=1).mean(axis=1)


# --- Theorem 1 on drawn inputs, and the mean scores --------------------------------------------------------


def one_draw(dimension: int, **drawn: Any) -> float:
    """The margin of Definition 1 on the scores of one input."""
    scores = simulated_scores(dimension=dimension, **drawn)[1, 0]
    margin = recency_margin(scores)
    return least(margin / math.sqrt(dimension), margin, 0.0, scores)


def _row_rises(scores: LayerScores) -> Float[np.ndarray, "sample row"]:
    """S_{i,i−1} − S_{i,0} of the queries i from 2, the first that has two keys before it."""
    nearest = np.diagonal(scores, -1, axis1=1, axis2=2)
    return nearest[:, 1:] - scores[:, 2:, 0]


def mean_rise(tokens: int, dimension: int, **drawn: Any) -> float:
    """Whether the mean of S⁽²⁾ rises along its rows as the closed form does."""
    first, second = simulated_scores(tokens=tokens, dimension=dimension, **drawn)
    rest = second - first - first_order(first, dimension)
    rise = float(_row_rises(isotropic_scores(tokens, dimension)[None]).sum())
    return _agreement(_row_rises(rest).sum(axis=1), rise, dimension)


def mean_score(
    of: Callable[..., Any], reading: ReadingName, layernorm: bool, tokens: int, dimension: int, **drawn: Any
) -> float:
    """Whether the mean of S⁽²⁾ below the diagonal is that of a closed form at α = 0."""
    first, second = simulated_scores(tokens=tokens, dimension=dimension, layernorm=layernorm, **drawn)
    lower = np.tri(tokens, k=-1, dtype=bool)
    predicted = float(of(tokens, dimension, reading=reading)[lower].mean())
    return _agreement((second - first)[:, lower].mean(axis=1), predicted, dimension)


def key_ratio(reading: ReadingName, seed: int, samples: int, **model: Any) -> float:
    """Whether h(i − 1)/h(0) − 1, summed over the queries i, is what the mean scores of their rows give."""
    first, second = simulated_scores(seed, samples, **model)
    change, dimension = second - first, model["dimension"]
    level = change[:, 2:, 0].mean(axis=0) + model["anisotropy"] * math.sqrt(dimension)
    rise = np.expm1(log_key_factors(**model, reading=reading)[1:-1]).sum()
    return _agreement((_row_rises(change) / level).sum(axis=1), float(rise), dimension)


# --- Section 3, without LayerNorm --------------------------------------------------------------------------


def draw_without_layernorm(rng: Generator, edge: bool) -> Instance:
    """A model without LayerNorm, and one of its first four layers."""
    return {
        "seed": int(rng.integers(2**31)),
        "samples": 100,
        "tokens": int(rng.choice([3, 16]) if edge else rng.integers(3, 13)),
        "dimension": int(rng.choice([4, 256]) if edge else rng.integers(4, 129)),
        "anisotropy": 0.0,
        "residual": False,
        "layer": int(rng.integers(1, 5)),
    }


def _probability(layer: int, **drawn: Any) -> tuple[float, float]:
    """The recency probability of a layer without LayerNorm, and its standard error."""
    shares = recency_shares(simulated_scores(**drawn, layernorm=False, depth=layer)[-1])
    return float(shares.mean()), float(shares.std(ddof=1)) / math.sqrt(shares.size)


def close_to_half(**drawn: Any) -> float:
    """The recency probability, against one half."""
    probability, error = _probability(**drawn)
    allowed = NEAR_HALF + SIGMAS * error
    return least((allowed - abs(probability - 0.5)) / allowed, probability, 0.5)


def primacy_from_layer_three(layer: int, seed: int, samples: int, **model: Any) -> float:
    """Layers 1 and 2: equal scores, a probability close to one half. From layer 3: falling, and below it."""
    scores = limit_scores(layer, **model, layernorm=False)[-1]
    rows = [scores[query, :query] / scores[query, query] for query in range(2, model["tokens"])]
    drawn = {"layer": layer, "seed": seed, "samples": samples, **model}
    if layer <= 2:
        return min(close_to_half(**drawn), -max(float(np.ptp(row)) for row in rows))
    probability, error = _probability(**drawn)
    rise = max(float(np.diff(row).max()) for row in rows)
    return min(strict(-rise), (0.5 - probability + SIGMAS * error) / 0.5)
