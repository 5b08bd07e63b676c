"""Kim et al. 2026, closed forms: printed equations beside their corrected forms, and beside integrals.

Published and corrected are the readings of `posbias.theory.closed_forms.layernorm`, integrals of two or three
tokens those of `posbias_papers.closed_forms.recency`. Layers and positions count as in the paper, from 1. What is
simulated is in `recency`.
"""

import math
from typing import Any

from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias.theory.closed_forms.layernorm import (
    cross_weight,
    fluctuation_factor,
    isotropic_scores,
    log_key_factors,
    residual_coefficient,
    scores_without_layernorm,
    second_layer_scores,
)
from posbias_papers.closed_forms.deviation import closed_form
from posbias_papers.readings.reading import BOTH, Answer, Material, answer, reading

DIMENSION, ANISOTROPY = 64, 0.5
"""d and α of the examples."""


@reading("kim2026/cross-terms", "mean of S_21 in layer 2, d = 64, α = 0: Eq. 5, with κ")
def _cross_terms(material: Material) -> Answer:
    """S_21 of two tokens at α = 0."""
    published, corrected = (float(isotropic_scores(2, DIMENSION, reading=which)[1, 0]) for which in BOTH)
    truth = float(material.exact(2, DIMENSION).scores.value[1, 1, 0])
    return answer(
        published,
        corrected,
        integrated=truth,
        integrated_over_published=truth / published,
        rise_as_published_times=fluctuation_factor(DIMENSION) ** 2,
        limit_of_κ=math.sqrt(math.e),
    )


@reading("kim2026/fluctuation", "rise h(2)/h(1) − 1 of three tokens, d = 256, α = .5: without κ, with it")
def _fluctuation(material: Material) -> Answer:
    """The rise h(2)/h(1) − 1 of three tokens at α = ½, d = 256, without κ and with it."""
    without, with_it = (
        closed_form("rise", 3, 256, ANISOTROPY, reading=which) for which in ("means", "corrected")
    )
    truth = {}
    for dimension in (256, 1024):
        exact = material.exact(3, dimension, ANISOTROPY)
        truth[dimension] = float(exact.rises.value[1] / exact.scores.value[1, 2, 0])
    large = closed_form("rise", 3, 1024, ANISOTROPY, reading="means")
    return answer(
        without,
        with_it,
        integrated=truth[256],
        integrated_over_that_without_κ=truth[256] / without,
        the_same_at_1024=truth[1024] / large,
        κ_at_256=fluctuation_factor(256, ANISOTROPY),
        limit_of_κ=math.exp((1 - ANISOTROPY**2) ** 2 / 2),
    )


@reading("kim2026/eqs-17-19", "mean of S_32 without LayerNorm, d = 64: Eq. 19, over √d")
def _without_layernorm(material: Material) -> Answer:
    """S_32 without LayerNorm at α = 0."""
    published, corrected = (
        float(scores_without_layernorm(3, DIMENSION, reading=which)[2, 1]) for which in BOTH
    )
    truth = float(material.exact(3, DIMENSION, norm="none").scores.value[1, 2, 1])
    return answer(published, corrected, integrated=truth)


@reading("kim2026/residual-coefficient", "coefficient of y_i, d = 64, α = .5: γ, g")
def _coefficient(material: Material) -> Answer:
    """What the residual connection adds to the weight of y_i."""
    published, corrected = (
        residual_coefficient(DIMENSION, ANISOTROPY, residual=True, reading=which) for which in BOTH
    )
    norm = 1 / math.sqrt(1 - ANISOTROPY)
    return answer(
        published, corrected, in_Eq_26=math.sqrt(DIMENSION) * norm, in_Eqs_27_to_33=float(DIMENSION)
    )


@reading("kim2026/eq-35", "‖x_3‖²/d, d = 64, α = .5: Eq. 35, Eq. 36")
def _equation_35(material: Material) -> Answer:
    """‖x_3‖²/d without residual, with the factors d that Eq. 35 has beyond Eq. 36, and without them."""
    weight = cross_weight(DIMENSION, ANISOTROPY, reading="published")
    before = 2
    total = 1 + before * weight

    def squared(second: float, last: float) -> float:
        mixed = 2 * second * ANISOTROPY * weight * before
        others = weight**2 * before + last * ANISOTROPY * weight**2 * (before - 1) * before
        return (1 + mixed + others) / total**2

    h = math.exp(2 * float(log_key_factors(3, DIMENSION, ANISOTROPY, reading="means")[2]))
    return answer(squared(DIMENSION**2, DIMENSION), squared(1.0, 1.0), from_Eq_37=1 / h)


@reading("kim2026/eq-41", "S_21 in layer 2, d = 64, α = .5: Eq. 41, with √d and κ")
def _equation_41(material: Material) -> Answer:
    """S_21 at α = ½, and √d on the diagonal."""
    published, corrected = (
        float(second_layer_scores(2, DIMENSION, ANISOTROPY, reading=which)[1, 0]) for which in BOTH
    )
    truth = float(material.exact(2, DIMENSION, ANISOTROPY).scores.value[1, 1, 0])
    return answer(published, corrected, on_the_diagonal=math.sqrt(DIMENSION), integrated=truth)


@reading(
    "kim2026/closed-form",
    "rise h(2)/h(1) − 1 as a share of the integrated one, d = 128, α = .5, residual: printed, corrected",
)
def _closed_form(material: Material) -> Answer:
    """The rise h(2)/h(1) − 1 of three tokens with a residual, as a share of the integrated one, d = 128."""
    exact = material.exact(3, 128, ANISOTROPY, residual=True)
    truth = float(exact.rises.value[1] / exact.scores.value[1, 2, 0])
    found = {
        which: closed_form("rise", 3, 128, ANISOTROPY, residual=True, reading=which) / truth
        for which in ("published", "means", "corrected")
    }
    others: dict[str, Any] = {"without κ": found["means"]}
    for dimension, residual in ((16, False), (16, True), (64, False), (256, False)):
        exact = material.exact(3, dimension, ANISOTROPY, residual=residual)
        scores = second_layer_scores(3, dimension, ANISOTROPY, residual=residual)
        off = (scores[2, 1] - scores[2, 0]) / float(exact.rises.value[1]) - 1
        with_residual = " with residual" if residual else ""
        others[f"rise of a score is off at {dimension}{with_residual} by"] = float(off)
        if not residual:
            level = float(scores[2, 0] / exact.scores.value[1, 2, 0] - 1)
            others[f"level is off at {dimension} by"] = level
    for dimension in (16, 64):
        result = material.simulated(RecencyModel(10, dimension, ANISOTROPY, depth=2))
        scores, rise = second_layer_scores(10, dimension, ANISOTROPY), float(result.rises.value[1, 9, 8])
        share = float(scores[9, 8] - scores[9, 0]) / rise
        error = share * float(result.rises.se[1, 9, 8]) / rise
        others[f"rise of a score over ten tokens is off at {dimension} by"] = Estimate(
            share - 1, error, result.samples
        )
    others["without κ it stays too small by"] = -math.expm1(-((1 - ANISOTROPY**2) ** 2) / 2)
    return answer(found["published"], found["corrected"], **others)


@reading(
    "kim2026/proposition-1",
    "excess of S_32 over S_31 without LayerNorm, as a share, d = 16: printed, integrated",
)
def _proposition_1(material: Material) -> Answer:
    """By how much S_32 exceeds S_31 without LayerNorm, as a share."""
    shares = {}
    for dimension in (16, 64):
        exact = material.exact(3, dimension, norm="none")
        shares[dimension] = float(exact.rises.value[1] / exact.scores.value[1, 2, 0])
    excess = float(material.excess(16, norm="none").value[1])
    return answer(
        0.0,
        shares[16],
        at_64=shares[64],
        exponent_of_d=math.log(shares[64] / shares[16]) / math.log(4),
        recency_probability=0.5 + excess,
    )


@reading("kim2026/figure-2", "h(10)/h(1) of Eq. 42, d = 16, α = .75: more than at α = 0, found")
def _figure_2(material: Material) -> Answer:
    """h(10)/h(1) of Eq. 42 at d = 16: at α = 0, which every other should exceed, and at α = ¾."""
    growth = {
        alpha: math.exp(float(log_key_factors(10, 16, alpha, reading="published")[9]))
        for alpha in (0.0, 0.5, 0.75)
    }
    return answer(growth[0.0], growth[0.75], at_α_one_half=growth[0.5])
