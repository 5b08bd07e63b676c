"""Definition 1 and the growth of h, on the closed forms of `posbias.theory.closed_forms.layernorm`.

Below the diagonal through ln h(j), where no margin is lost to rounding, on it through the scores.
"""

import math
from typing import Any

import numpy as np
from numpy.random import Generator

from posbias.theory.closed_forms.layernorm import (
    ReadingName,
    cross_weight,
    isotropic_scores,
    limit_scores,
    log_key_factors,
    recency_margin,
    residual_coefficient,
    scores_without_layernorm,
    second_layer_scores,
)
from posbias_papers.statements.margins import room
from posbias_papers.statements.statement import Instance


def draw_model(rng: Generator, edge: bool, *, anisotropic: bool, residuals: bool, least: int = 4) -> Instance:
    """A model for the closed forms: at the edge few or many tokens, few or very many dimensions, α at its ends."""
    if edge:
        dimension = int(rng.choice([least, 5, 16, 1024, 2**18]))
        tokens = int(rng.choice([2, 3, 1000]))
        anisotropy = float(rng.choice([0.0, 1e-9, 1.0 - 1.0 / math.sqrt(dimension), 1.0 - 1e-6]))
    else:
        dimension = int(2.0 ** rng.uniform(math.log2(least), 13.0))
        tokens = int(rng.integers(2, 65))
        anisotropy = float(rng.random())
    model = {"tokens": tokens, "dimension": dimension, "anisotropy": anisotropy if anisotropic else 0.0}
    return model | {"residual": bool(rng.random() < 0.5) if residuals else False}


def draw_three_or_more(rng: Generator, edge: bool) -> Instance:
    """The same, for 3 to 64 tokens."""
    drawn = dict(draw_model(rng, edge, anisotropic=True, residuals=True, least=1))
    return {**drawn, "tokens": min(max(int(drawn["tokens"]), 3), 64)}


def strict(margin: float) -> float:
    """A margin that has to be positive as a slack: none at all is a failure."""
    return margin if margin else -1.0


def definition(reading: ReadingName, theorem: bool = False, **model: Any) -> float:
    """Definition 1 on S_ij = g(i)h(j): g > 0, h rises, and the diagonal lies above its neighbour.

    A rise of ln h is in units of (1 − α)ρ, what it is per position for large d and few tokens; the distance
    to the diagonal in units of the larger of the two scores.
    """
    tokens, dimension, anisotropy = model["tokens"], model["dimension"], model["anisotropy"]
    if theorem:
        scores = isotropic_scores(tokens, dimension, reading=reading)
    else:
        scores = second_layer_scores(**model, reading=reading)
    margins = [room(np.diag(scores, -1), np.diag(scores)[1:], scores), float(np.diag(scores, -1).min() > 0.0)]
    if tokens > 2:
        rises = np.diff(log_key_factors(**model, reading=reading)[:-1])
        unit = (1.0 - anisotropy) * cross_weight(dimension, anisotropy, reading=reading)
        margins.append(float(rises.min()) / unit)
    return min(strict(margin) for margin in margins)


def grows_with_anisotropy(**model: Any) -> float:
    """h(j)/h(0) at some α below that at α = 0."""
    grown = log_key_factors(**model, reading="published")[-1]
    isotropic = log_key_factors(**{**model, "anisotropy": 0.0}, reading="published")[-1]
    return room(isotropic, grown, lower=True)


def growth_bounded(tokens: int, dimension: int, anisotropy: float, residual: bool) -> float:
    """ln h(j + 1)/h(j) ≤ (1 − α)ρ/(1 + g), (1 − α)e^(−(1−α)√d) ≤ 1/(e√d), and h(j)/h(0) within its limit."""
    own = residual_coefficient(dimension, anisotropy, residual=residual)
    bound = (1.0 - anisotropy) * cross_weight(dimension, anisotropy) / (1.0 + own)
    peak = 1.0 / (math.e * math.sqrt(dimension))
    printed = (1.0 - anisotropy) * cross_weight(dimension, anisotropy, reading="published")
    grown = log_key_factors(tokens, dimension, anisotropy, residual=residual)
    margins = [room(np.diff(grown), bound), room(printed, peak)]
    if anisotropy or residual:  # else h grows without limit
        limit = -0.5 * math.log1p(-(1.0 - anisotropy) * (1.0 + 2.0 * own) / (1.0 + own) ** 2)
        margins.append(room(grown[1:], limit))
    return min(margins)


def without_recency(**model: Any) -> float:
    """Minus the margin of Definition 1 on S⁽²⁾ without LayerNorm, by Eq. 19 and by recursion."""
    forms = [limit_scores(2, **model, layernorm=False)[1]]
    if not (model["anisotropy"] or model["residual"]):
        forms.append(scores_without_layernorm(model["tokens"], model["dimension"], reading="published"))
    return min(-recency_margin(scores) / float(np.diag(scores).max()) for scores in forms)
