"""Kim et al. 2026 in both readings: printed equations against corrected forms, integrals and simulations.

Published and corrected are the readings of `posbias_papers.closed_forms.layernorm`; two or three tokens are
integrated (`posbias_papers.closed_forms.recency`), more are simulated (200,000 samples, with their error). Layers
and positions count as in the paper, from 1.
"""

import math
from typing import Any

import numpy as np

from posbias.core.machine import stream
from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias_papers.closed_forms.deviation import closed_form
from posbias_papers.closed_forms.layernorm import (
    cross_weight,
    isotropic_scores,
    log_key_factors,
    residual_coefficient,
    scores_without_layernorm,
    second_layer_scores,
)
from posbias_papers.readings.reading import BOTH, Comparison, Material, answer, reading

D, ALPHA = 64, 0.5
"""d and α of the examples."""


def _integrated(material: Material, dimension: int, **model: Any) -> float:
    """The rise S_32/S_31 − 1 of three tokens in layer 2."""
    exact = material.exact(3, dimension, ALPHA, **model)
    return float(exact.rises.value[1] / exact.scores.value[1, 2, 0])


# --- closed forms ----------------------------------------------------------------------------------------------


@reading("kim2026/cross-terms", "mean of S_21 in layer 2, d = 64, α = 0: Eq. 5, with κ")
def _cross_terms(material: Material) -> Comparison:
    published, corrected = (float(isotropic_scores(2, D, reading=which)[1, 0]) for which in BOTH)
    truth = float(material.exact(2, D).scores.value[1, 1, 0])
    return answer(published, corrected, integrated=truth, integrated_over_published=truth / published)


@reading("kim2026/fluctuation", "rise h(2)/h(1) − 1 of three tokens, d = 256, α = .5: without κ, with it")
def _fluctuation(material: Material) -> Comparison:
    without, with_it = (closed_form("rise", 3, 256, ALPHA, reading=which) for which in ("means", "corrected"))
    truth, large = _integrated(material, 256), closed_form("rise", 3, 1024, ALPHA, reading="means")
    return answer(
        without,
        with_it,
        integrated=truth,
        integrated_over_that_without_κ=truth / without,
        the_same_at_1024=_integrated(material, 1024) / large,
        limit_of_κ=math.exp((1 - ALPHA**2) ** 2 / 2),
    )


@reading("kim2026/eqs-17-19", "mean of S_32 without LayerNorm, d = 64: Eq. 19, over √d")
def _without_layernorm(material: Material) -> Comparison:
    published, corrected = (float(scores_without_layernorm(3, D, reading=which)[2, 1]) for which in BOTH)
    truth = float(material.exact(3, D, norm="none").scores.value[1, 2, 1])
    return answer(published, corrected, integrated=truth)


@reading("kim2026/residual-coefficient", "coefficient of y_i, d = 64, α = .5: γ, g")
def _coefficient(material: Material) -> Comparison:
    """What the residual connection adds to the weight of y_i."""
    published, corrected = (residual_coefficient(D, ALPHA, residual=True, reading=which) for which in BOTH)
    of_eq_26 = math.sqrt(D / (1 - ALPHA))
    return answer(published, corrected, in_Eq_26=of_eq_26, in_Eqs_27_to_33=float(D))


@reading("kim2026/eq-35", "‖x_3‖²/d, d = 64, α = .5: Eq. 35, Eq. 36")
def _equation_35(material: Material) -> Comparison:
    """Without residual, with the factors d that Eq. 35 has beyond Eq. 36, and without them."""
    weight, before = cross_weight(D, ALPHA, reading="published"), 2

    def squared(second: float, last: float) -> float:
        mixed = 2 * second * ALPHA * weight * before
        others = weight**2 * before + last * ALPHA * weight**2 * (before - 1) * before
        return (1 + mixed + others) / (1 + before * weight) ** 2

    h = math.exp(2 * float(log_key_factors(3, D, ALPHA, reading="means")[2]))
    return answer(squared(D**2, D), squared(1.0, 1.0), from_Eq_37=1 / h)


@reading("kim2026/eq-41", "S_21 in layer 2, d = 64, α = .5: Eq. 41, with √d and κ")
def _equation_41(material: Material) -> Comparison:
    published, corrected = (float(second_layer_scores(2, D, ALPHA, reading=which)[1, 0]) for which in BOTH)
    truth = float(material.exact(2, D, ALPHA).scores.value[1, 1, 0])
    return answer(published, corrected, on_the_diagonal=math.sqrt(D), integrated=truth)


@reading(
    "kim2026/closed-form",
    "rise h(2)/h(1) − 1 as a share of the integrated one, d = 128, α = .5, residual: printed, corrected",
)
def _closed_form(material: Material) -> Comparison:
    truth = _integrated(material, 128, residual=True)
    published, corrected = (
        closed_form("rise", 3, 128, ALPHA, residual=True, reading=which) / truth for which in BOTH
    )
    others: dict[str, Any] = {}
    for dimension, residual in ((16, True), (64, False)):
        exact = material.exact(3, dimension, ALPHA, residual=residual)
        scores = second_layer_scores(3, dimension, ALPHA, residual=residual)
        off = (scores[2, 1] - scores[2, 0]) / float(exact.rises.value[1]) - 1
        others[f"rise of a score is off at {dimension}{' with residual' * residual} by"] = float(off)
    for dimension in (16, 64):
        result = material.simulated(RecencyModel(10, dimension, ALPHA, depth=2))
        scores, rise = second_layer_scores(10, dimension, ALPHA), float(result.rises.value[1, 9, 8])
        share = float(scores[9, 8] - scores[9, 0]) / rise
        error = share * float(result.rises.se[1, 9, 8]) / rise
        name = f"rise of a score over ten tokens is off at {dimension} by"
        others[name] = Estimate(share - 1, error, result.samples)
    others["without κ it stays too small by"] = -math.expm1(-((1 - ALPHA**2) ** 2) / 2)
    return answer(published, corrected, **others)


@reading(
    "kim2026/proposition-1",
    "excess of S_32 over S_31 without LayerNorm, as a share, d = 16: printed, integrated",
)
def _proposition_1(material: Material) -> Comparison:
    exact = material.exact(3, 16, norm="none")
    share = float(exact.rises.value[1] / exact.scores.value[1, 2, 0])
    probability = 0.5 + float(material.excess(16, norm="none").value[1])
    return answer(0.0, share, recency_probability=probability)


@reading("kim2026/figure-2", "h(10)/h(1) of Eq. 42, d = 16, α = .75: more than at α = 0, found")
def _figure_2(material: Material) -> Comparison:
    zero, half, more = (
        math.exp(float(log_key_factors(10, 16, alpha, reading="published")[9])) for alpha in (0.0, 0.5, 0.75)
    )
    return answer(zero, more, at_α_one_half=half)


# --- drawn embeddings ------------------------------------------------------------------------------------------


@reading(
    "kim2026/theorem-1",
    "S_32 − S_31 in layer 2, d = 1024, α = 0: rise of the mean, standard deviation of a draw",
)
def _drawn(material: Material) -> Comparison:
    """Whether one draw shows recency: the spread of S_i,i−1 − S_i1 against the rise of its mean."""
    tokens, dimension = 3, 1024
    rise = math.expm1(float(log_key_factors(tokens, dimension, reading="corrected")[1]))
    rise *= float(isotropic_scores(tokens, dimension)[2, 0])
    result = material.simulated(RecencyModel(tokens, dimension, 0.0, depth=2), 20_000)
    # to rounding a score of layer 2 is one of layer 1 here, and those of a row are independent
    samples = result.samples
    spread = math.sqrt(2 * samples) * float(result.mean_scores.se[1, 2, 0])
    asymptotic = math.sqrt(dimension) * math.exp(1 - 2 * math.sqrt(dimension))
    sure = Estimate(spread, spread / math.sqrt(2 * samples), samples)
    return answer(rise, sure, rise_over_its_asymptotic_form=rise / asymptotic)


@reading(
    "kim2026/theorem-1-vanishes",
    "recency probability of layer 2, d = 1024, α = .5: of scores as the theorem has them, simulated",
    "kim2026/theorem-1",
)
def _vanishing(material: Material) -> Comparison:
    """As d grows; 1 for scores that show recency bias."""
    found = {
        d: material.simulated(RecencyModel(10, d, ALPHA, depth=2)).recency_probability[1]
        for d in (16, 64, 256, 1024)
    }
    return answer(1.0, found[1024], at_16=found[16], at_64=found[64], at_256=found[256])


@reading("kim2026/eqs-23-24", "mean of ‖x_i‖², d = 64, α = .5: printed, corrected")
def _norms(material: Material) -> Comparison:
    from posbias.simulation.token_space import embeddings

    drawn = embeddings(stream(0, "readings/embeddings"), RecencyModel(2, D, ALPHA, depth=1), 20_000)
    squares = Estimate.of_mean((drawn[:, 0] ** 2).sum(axis=-1))
    inner = D * (drawn[:, 0] * drawn[:, 1]).sum(axis=-1) / np.linalg.norm(drawn, axis=-1).prod(axis=1)
    return answer(
        math.sqrt(D) / (1 - ALPHA),
        1 / (1 - ALPHA),
        drawn=squares,
        inner_product_as_printed=math.sqrt(D) * ALPHA,
        inner_product_corrected=D * ALPHA,
        inner_product_drawn=Estimate.of_mean(inner),
    )


@reading("kim2026/eq-42", "S(9, 8)/S(9, 0) from 0, d = 64, α = .5, residual: Eq. 42 with γ = 1, with g and κ")
def _figure_7(material: Material) -> Comparison:
    published, means, corrected = (
        math.exp(float(log_key_factors(10, D, ALPHA, residual=True, reading=which)[8]))
        for which in ("published", "means", "corrected")
    )
    result = material.simulated(RecencyModel(10, D, ALPHA, residual=True, depth=2))
    level = result.mean_scores.value[1, 9, 0]
    rise, error = (float(part[1, 9, 8] / level) for part in (result.rises.value, result.rises.se))
    simulated = Estimate(1 + rise, error, result.samples)
    return answer(published, corrected, with_g_alone=means, simulated=simulated)


@reading("kim2026/eq-42-at-16", "S_32 − S_31 of three tokens, d = 16, α = .5: Eq. 42, integrated")
def _small(material: Material) -> Comparison:
    scores = second_layer_scores(3, 16, ALPHA, reading="means")
    plain, residual = (material.exact(3, 16, ALPHA, residual=given) for given in (False, True))
    recent, recent_residual = (
        0.5 + float(material.excess(16, ALPHA, residual=given).value[1]) for given in (False, True)
    )
    result = material.simulated(RecencyModel(10, 16, ALPHA, depth=2))
    rise = float(result.rises.value[1, 9, 8] / result.mean_scores.value[1, 9, 0])
    error = float(result.rises.se[1, 9, 8] / result.rises.value[1, 9, 8])
    printed = math.expm1(float(log_key_factors(10, 16, ALPHA, reading="published")[8]))
    return answer(
        float(scores[2, 1] - scores[2, 0]),
        float(plain.rises.value[1]),
        "Published is Eq. 42 with √d for the d of Eq. 41, which alone would be off by √d.",
        recency_probability=recent,
        with_residual=float(residual.rises.value[1]),
        recency_probability_with_residual=recent_residual,
        rise_over_ten_tokens_is_off_by=Estimate(printed / rise - 1, error, result.samples),
    )


@reading(
    "kim2026/without-layernorm",
    "recency probability of layer 3 without LayerNorm, d = 16, ten tokens: printed, simulated",
)
def _later_layers(material: Material) -> Comparison:
    layers = material.simulated(RecencyModel(10, 16, 0.0, "none", depth=4)).recency_probability
    return answer(0.5, layers[2], layer_4=layers[3])
