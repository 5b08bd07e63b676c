"""Kim et al. 2026, drawn: what the paper says of drawn embeddings beside what simulations of them give.

Simulations are small (200,000 samples) and carry their error; three tokens are integrated. Layers and positions
count as in the paper, from 1.
"""

import math

import numpy as np

from posbias.core.seeds import stream
from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias.theory.closed_forms.layernorm import isotropic_scores, log_key_factors, second_layer_scores
from posbias_papers.readings.reading import Answer, Material, answer, reading

DIMENSION, ANISOTROPY = 64, 0.5
"""d and α of the examples."""


@reading(
    "kim2026/theorem-1",
    "S_32 − S_31 in layer 2, d = 1024, α = 0: rise of the mean, standard deviation of a draw",
)
def _drawn(material: Material) -> Answer:
    """Whether one draw shows recency: the spread of S_i,i−1 − S_i1 beside the rise of its mean."""
    tokens, dimension = 3, 1024
    rise = math.expm1(float(log_key_factors(tokens, dimension, reading="corrected")[1]))
    rise *= float(isotropic_scores(tokens, dimension)[2, 0])
    result = material.simulated(RecencyModel(tokens, dimension, 0.0, depth=2), 20_000)
    # to rounding a score of layer 2 is one of layer 1 here, and those of a row are independent
    samples = result.samples
    spread = math.sqrt(2 * samples) * float(result.mean_scores.se[1, 2, 0])
    probability = result.recency_probability[1]
    sure = Estimate(spread, spread / math.sqrt(2 * samples), samples)
    asymptotic = math.sqrt(dimension) * math.exp(1 - 2 * math.sqrt(dimension))
    return answer(
        rise,
        sure,
        recency_probability=probability,
        log10_of_the_rise=math.log10(rise),
        rise_over_its_asymptotic_form=rise / asymptotic,
    )


@reading(
    "kim2026/theorem-1-vanishes",
    "recency probability of layer 2, d = 1024, α = .5: of scores as the theorem has them, simulated",
    "kim2026/theorem-1",
)
def _vanishing(material: Material) -> Answer:
    """The recency probability of layer 2 at α = ½ as d grows; 1 for scores that show recency bias."""
    found = {
        d: material.simulated(RecencyModel(10, d, ANISOTROPY, depth=2)).recency_probability[1]
        for d in (16, 64, 256, 1024)
    }
    return answer(1.0, found[1024], at_16=found[16], at_64=found[64], at_256=found[256])


@reading("kim2026/eqs-23-24", "mean of ‖x_i‖², d = 64, α = .5: printed, corrected")
def _norms(material: Material) -> Answer:
    """E‖x‖², and ⟨y_i, y_j⟩, of the embeddings."""
    from posbias.simulation.token_space import embeddings

    model = RecencyModel(2, DIMENSION, ANISOTROPY, depth=1)
    drawn = embeddings(stream(0, "readings/embeddings"), model, 20_000)
    squares = (drawn[:, 0] ** 2).sum(axis=-1)
    length = np.linalg.norm(drawn, axis=-1)
    inner = DIMENSION * (drawn[:, 0] * drawn[:, 1]).sum(axis=-1) / length.prod(axis=1)
    return answer(
        math.sqrt(DIMENSION) / (1 - ANISOTROPY),
        1 / (1 - ANISOTROPY),
        drawn=Estimate.of_mean(squares),
        inner_product_as_printed=math.sqrt(DIMENSION) * ANISOTROPY,
        inner_product_corrected=DIMENSION * ANISOTROPY,
        inner_product_drawn=Estimate.of_mean(inner),
    )


@reading("kim2026/eq-42", "S(9, 8)/S(9, 0) from 0, d = 64, α = .5, residual: Eq. 42 with γ = 1, with g and κ")
def _figure_7(material: Material) -> Answer:
    """S(9, 8)/S(9, 0), positions from 0, with a residual connection."""
    ratio = {
        which: math.exp(float(log_key_factors(10, DIMENSION, ANISOTROPY, residual=True, reading=which)[8]))
        for which in ("published", "means", "corrected")
    }
    result = material.simulated(RecencyModel(10, DIMENSION, ANISOTROPY, residual=True, depth=2))
    level = result.mean_scores.value[1, 9, 0]
    rise, error = (float(part[1, 9, 8] / level) for part in (result.rises.value, result.rises.se))
    return answer(
        ratio["published"],
        ratio["corrected"],
        with_g_alone=ratio["means"],
        simulated=Estimate(1 + rise, error, result.samples),
    )


@reading("kim2026/eq-42-at-16", "S_32 − S_31 of three tokens, d = 16, α = .5: Eq. 42, integrated")
def _small(material: Material) -> Answer:
    """S_32 − S_31 of three tokens at d = 16: Eq. 42 with √d for the d of Eq. 41, and integrated."""
    scores = second_layer_scores(3, 16, ANISOTROPY, reading="means")
    plain, residual = (material.exact(3, 16, ANISOTROPY, residual=given) for given in (False, True))
    recent = {
        given: 0.5 + float(material.excess(16, ANISOTROPY, residual=given).value[1])
        for given in (False, True)
    }
    result = material.simulated(RecencyModel(10, 16, ANISOTROPY, depth=2))
    rise = float(result.rises.value[1, 9, 8] / result.mean_scores.value[1, 9, 0])
    printed = math.expm1(float(log_key_factors(10, 16, ANISOTROPY, reading="published")[8]))
    return answer(
        float(scores[2, 1] - scores[2, 0]),
        float(plain.rises.value[1]),
        "Published is Eq. 42 with √d for the d of Eq. 41, which alone would be off by √d.",
        recency_probability=recent[False],
        with_residual=float(residual.rises.value[1]),
        recency_probability_with_residual=recent[True],
        rise_over_ten_tokens_is_off_by=Estimate(
            printed / rise - 1,
            float(result.rises.se[1, 9, 8] / result.rises.value[1, 9, 8]),
            result.samples,
        ),
    )


@reading(
    "kim2026/without-layernorm",
    "recency probability of layer 3 without LayerNorm, d = 16, ten tokens: printed, simulated",
)
def _later_layers(material: Material) -> Answer:
    """The recency probability without LayerNorm, layer 3."""
    result = material.simulated(RecencyModel(10, 16, 0.0, "none", depth=4))
    layers = result.recency_probability
    return answer(0.5, layers[2], layer_2=layers[1], layer_4=layers[3])
