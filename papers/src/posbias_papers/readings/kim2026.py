"""Kim et al. 2026 in both readings: printed equations against corrected forms, integrals and simulations.

Published and corrected are the readings of `posbias_papers.closed_forms.layernorm`; two or three tokens are
integrated (`posbias_papers.closed_forms.recency`), more are simulated (200,000 samples, with their error). Layers
and positions count as in the paper, from 1.
"""

import functools
import math
from typing import Any

import numpy as np

from posbias.core.machine import stream
from posbias.profiles.estimate import Estimate
from posbias.simulation import RecencyResult, simulate_recency
from posbias.simulation.model import RecencyModel
from posbias.simulation.token_space import embeddings
from posbias_papers.closed_forms import layernorm
from posbias_papers.closed_forms.recency import exact_scores, recency_excess
from posbias_papers.errata import BOTH, Comparison, Material, answer, discrepancy

exact = functools.cache(exact_scores)
"""Expected scores of two or three tokens, integrated."""
excess = functools.cache(recency_excess)
"""The recency probability of three tokens less one half, integrated."""
D, ALPHA = 64, 0.5
"""d and α of the examples."""
Model = functools.partial(RecencyModel, anisotropy=ALPHA, depth=2)
"""Two layers of the example's α."""


@functools.cache
def simulated(model: RecencyModel, samples: int = 200_000) -> RecencyResult:
    """A simulation of a model with this many samples."""
    return simulate_recency(model, samples)


def _rise(tokens: int, dimension: int, reading: layernorm.ReadingName, **model: Any) -> float:
    """The rise S_i,i−1/S_i1 − 1 of the last token in layer 2, in closed form at α = .5."""
    return layernorm.closed_form("rise", Model(tokens, dimension, **model), reading)


def _integrated(dimension: int, **model: Any) -> float:
    """The same of three tokens, integrated."""
    integral = exact(Model(3, dimension, **model))
    return float(integral.rises.value[1] / integral.scores.value[1, 2, 0])


def _simulated(dimension: int, residual: bool = False) -> Estimate:
    """The same of ten tokens, simulated."""
    result = simulated(Model(10, dimension, residual=residual))
    level = result.mean_scores.value[1, 9, 0]
    rise, error = (float(part[1, 9, 8] / level) for part in (result.rises.value, result.rises.se))
    return Estimate(rise, error, result.samples)


# --- closed forms ----------------------------------------------------------------------------------------------


@discrepancy("kim2026/cross-terms")
def _cross_terms(material: Material) -> Comparison:
    """mean of S_21 in layer 2, d = 64, α = 0: Eq. 5, with κ"""
    model = Model(2, D, anisotropy=0.0)
    published, corrected = (float(layernorm.closed_scores(model, which)[1, 0]) for which in BOTH)
    truth = float(exact(model).scores.value[1, 1, 0])
    return answer(published, corrected, integrated=truth, integrated_over_published=truth / published)


@discrepancy("kim2026/fluctuation")
def _fluctuation(material: Material) -> Comparison:
    """rise h(2)/h(1) − 1 of three tokens, d = 256, α = .5: without κ, with it"""
    without, truth = _rise(3, 256, "means"), _integrated(256)
    return answer(
        without,
        _rise(3, 256, "corrected"),
        integrated=truth,
        integrated_over_that_without_κ=truth / without,
        the_same_at_1024=_integrated(1024) / _rise(3, 1024, "means"),
        limit_of_κ=math.exp((1 - ALPHA**2) ** 2 / 2),
    )


@discrepancy("kim2026/eqs-17-19")
def _without_layernorm(material: Material) -> Comparison:
    """mean of S_32 without LayerNorm, d = 64: Eq. 19, over √d"""
    model = Model(3, D, anisotropy=0.0, norm="none")
    published, corrected = (float(layernorm.closed_scores(model, which)[2, 1]) for which in BOTH)
    return answer(published, corrected, integrated=float(exact(model).scores.value[1, 2, 1]))


@discrepancy("kim2026/residual-coefficient")
def _coefficient(material: Material) -> Comparison:
    """coefficient of y_i, d = 64, α = .5: γ, g

    What the residual connection adds to the weight of y_i.
    """
    published, corrected = (
        layernorm.residual_coefficient(D, ALPHA, residual=True, reading=which) for which in BOTH
    )
    return answer(published, corrected, in_Eq_26=math.sqrt(D / (1 - ALPHA)), in_Eqs_27_to_33=float(D))


@discrepancy("kim2026/eq-35")
def _equation_35(material: Material) -> Comparison:
    """‖x_3‖²/d, d = 64, α = .5: Eq. 35, Eq. 36

    Without residual, with the factors d that Eq. 35 has beyond Eq. 36, and without them.
    """
    weight, before = layernorm.cross_weight(D, ALPHA, reading="published"), 2

    def squared(second: float, last: float) -> float:
        mixed = 2 * second * ALPHA * weight * before
        others = weight**2 * before + last * ALPHA * weight**2 * (before - 1) * before
        return (1 + mixed + others) / (1 + before * weight) ** 2

    h = math.exp(2 * layernorm.SecondLayer(3, D, ALPHA, reading="means").log_rise[-1])
    return answer(squared(D**2, D), squared(1.0, 1.0), from_Eq_37=1 / h)


@discrepancy("kim2026/eq-41")
def _equation_41(material: Material) -> Comparison:
    """S_21 in layer 2, d = 64, α = .5: Eq. 41, with √d and κ"""
    published, corrected = (float(layernorm.closed_scores(Model(2, D), which)[1, 0]) for which in BOTH)
    truth = float(exact(Model(2, D)).scores.value[1, 1, 0])
    return answer(published, corrected, on_the_diagonal=math.sqrt(D), integrated=truth)


@discrepancy("kim2026/closed-form")
def _closed_form(material: Material) -> Comparison:
    """rise h(2)/h(1) − 1 as a share of the integrated one, d = 128, α = .5, residual: printed, corrected"""
    truth = _integrated(128, residual=True)
    published, corrected = (_rise(3, 128, which, residual=True) / truth for which in BOTH)
    others: dict[str, Any] = {}
    for dimension, residual in ((16, True), (64, False)):
        model = Model(3, dimension, residual=residual)
        scores, rise = layernorm.closed_scores(model), float(exact(model).rises.value[1])
        name = f"rise of a score is off at {dimension}{' with residual' * residual} by"
        others[name] = layernorm.deviation(float(scores[2, 1] - scores[2, 0]), rise)
    for dimension in (16, 64):
        model = Model(10, dimension)
        result, scores = simulated(model), layernorm.closed_scores(model)
        rise, error = (float(part[1, 9, 8]) for part in (result.rises.value, result.rises.se))
        name = f"rise of a score over ten tokens is off at {dimension} by"
        others[name] = layernorm.deviation(
            float(scores[9, 8] - scores[9, 0]), Estimate(rise, error, result.samples)
        )
    others["without κ it stays too small by"] = -math.expm1(-((1 - ALPHA**2) ** 2) / 2)
    return answer(published, corrected, **others)


@discrepancy("kim2026/proposition-1")
def _proposition_1(material: Material) -> Comparison:
    """excess of S_32 over S_31 without LayerNorm, as a share, d = 16: printed, integrated"""
    model = Model(3, 16, anisotropy=0.0, norm="none")
    integral, probability = exact(model), 0.5 + float(excess(model).value[1])
    share = float(integral.rises.value[1] / integral.scores.value[1, 2, 0])
    return answer(0.0, share, recency_probability=probability)


@discrepancy("kim2026/figure-2")
def _figure_2(material: Material) -> Comparison:
    """h(10)/h(1) of Eq. 42, d = 16, α = .75: more than at α = 0, found"""
    forms = (layernorm.SecondLayer(10, 16, alpha, reading="published") for alpha in (0.0, 0.5, 0.75))
    zero, half, more = (math.exp(form.log_rise[-1]) for form in forms)
    return answer(zero, more, at_α_one_half=half)


# --- drawn embeddings ------------------------------------------------------------------------------------------


@discrepancy("kim2026/theorem-1")
def _drawn(material: Material) -> Comparison:
    """S_32 − S_31 in layer 2, d = 1024, α = 0: rise of the mean, standard deviation of a draw

    Whether one draw shows recency: the spread of S_i,i−1 − S_i1 against the rise of its mean.
    """
    model = Model(3, 1024, anisotropy=0.0)
    rise = layernorm.closed_form("rise", model) * layernorm.closed_form("level", model)
    result = simulated(model, 20_000)
    # to rounding a score of layer 2 is one of layer 1 here, and those of a row are independent
    spread = math.sqrt(2 * result.samples) * float(result.mean_scores.se[1, 2, 0])
    asymptotic = math.sqrt(1024) * math.exp(1 - 2 * math.sqrt(1024))
    sure = Estimate(spread, spread / math.sqrt(2 * result.samples), result.samples)
    return answer(rise, sure, rise_over_its_asymptotic_form=rise / asymptotic)


@discrepancy("kim2026/theorem-1-vanishes", "kim2026/theorem-1")
def _vanishing(material: Material) -> Comparison:
    """recency probability of layer 2, d = 1024, α = .5: of scores as the theorem has them, simulated

    As d grows; 1 for scores that show recency bias.
    """
    shares = {d: simulated(Model(10, d)) for d in (16, 64, 256, 1024)}
    others: dict[str, Any] = {f"at {d}": result.recency_probability[1] for d, result in shares.items()}
    return answer(1.0, others.pop("at 1024"), **others)


@discrepancy("kim2026/eqs-23-24")
def _norms(material: Material) -> Comparison:
    """mean of ‖x_i‖², d = 64, α = .5: printed, corrected"""
    drawn = embeddings(stream(0, "readings/embeddings"), RecencyModel(2, D, ALPHA, depth=1), 20_000)
    inner = D * (drawn[:, 0] * drawn[:, 1]).sum(axis=-1) / np.linalg.norm(drawn, axis=-1).prod(axis=1)
    return answer(
        math.sqrt(D) / (1 - ALPHA),
        1 / (1 - ALPHA),
        drawn=Estimate.of_mean((drawn[:, 0] ** 2).sum(axis=-1)),
        inner_product_as_printed=math.sqrt(D) * ALPHA,
        inner_product_corrected=D * ALPHA,
        inner_product_drawn=Estimate.of_mean(inner),
    )


@discrepancy("kim2026/eq-42")
def _figure_7(material: Material) -> Comparison:
    """S(9, 8)/S(9, 0) from 0, d = 64, α = .5, residual: Eq. 42 with γ = 1, with g and κ"""
    published, means, corrected = (
        1 + _rise(10, D, which, residual=True) for which in ("published", "means", "corrected")
    )
    return answer(
        published, corrected, with_g_alone=means, simulated=_simulated(D, residual=True) + Estimate(1.0)
    )


@discrepancy("kim2026/eq-42-at-16")
def _small(material: Material) -> Comparison:
    """S_32 − S_31 of three tokens, d = 16, α = .5: Eq. 42, integrated"""
    scores = layernorm.closed_scores(Model(3, 16), "means")
    models = [Model(3, 16, residual=given) for given in (False, True)]
    plain, residual = (float(exact(model).rises.value[1]) for model in models)
    probability, other = (0.5 + float(excess(model).value[1]) for model in models)
    return answer(
        float(scores[2, 1] - scores[2, 0]),
        plain,
        "Published is Eq. 42 with √d for the d of Eq. 41, which alone would be off by √d.",
        recency_probability=probability,
        with_residual=residual,
        recency_probability_with_residual=other,
        rise_over_ten_tokens_is_off_by=layernorm.deviation(_rise(10, 16, "published"), _simulated(16)),
    )


@discrepancy("kim2026/without-layernorm")
def _later_layers(material: Material) -> Comparison:
    """recency probability of layer 3 without LayerNorm, d = 16, ten tokens: printed, simulated"""
    layers = simulated(RecencyModel(10, 16, 0.0, "none", depth=4)).recency_probability
    return answer(0.5, layers[2], layer_4=layers[3])
