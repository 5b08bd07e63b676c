"""Herasimchyk et al. 2026, measured: what their code makes of a model's attention, beside what the model does.

The bundled model is measured here (8 prompts of 64 tokens, seconds), unless the results hold a larger measurement
of it; SmolLM2-135M, whose first token is a sink, only where they do. The note says which.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from posbias.comparison.predictors import predictions
from posbias.profiles.estimate import Estimate
from posbias.profiles.influence import measured_influence
from posbias.profiles.profile import wasserstein
from posbias.theory.architecture import Architecture
from posbias.theory.content import ConstantDiagonal
from posbias.theory.rollout.dispatch import influence
from posbias_papers.herasimchyk2026.levels import Curves, architectures, head_size, mean_content
from posbias_papers.herasimchyk2026.quantities import homogeneity, order_of
from posbias_papers.readings.models import last_tenth, one_sign
from posbias_papers.readings.reading import BOTH, BUNDLED, Comparison, Material, answer, reading

if TYPE_CHECKING:
    import xarray as xr

SINK_MODEL = "smollm2-135m"
SINK_LAYER = 12
"""A layer of the sink model (from 0), the first whose stream has one token far longer than the others."""


def source(measurement: "xr.Dataset") -> str:
    """'tiny-alibi, 8 prompts of 64 tokens.'"""
    sizes = measurement.sizes
    return f"{measurement.attrs['model']}, {sizes['prompt']} prompts of {sizes['position']} tokens."


def _tenth(architecture: Architecture, measurement: "xr.Dataset") -> float:
    return last_tenth(np.asarray(influence(architecture, measurement.sizes["position"], threads=1).mass))


@reading(
    "herasimchyk2026/content-scale-measured",
    f"mass of the last tenth, {BUNDLED} with its measured content: √d_head times it, as it is",
    "herasimchyk2026/content-scale",
)
def _content_scale(material: Material) -> Comparison:
    """Level (c) with its content as it is, and times √d_head."""
    measurement = material.measured()
    levels, scale = architectures(measurement), float(np.sqrt(head_size(measurement)))

    def stretched(content: object) -> ConstantDiagonal:
        assert isinstance(content, ConstantDiagonal)
        return ConstantDiagonal(tuple((scale * np.array(content.diagonal)).tolist()))

    published = replace(
        levels["c"], layers=tuple(replace(one, content=stretched(one.content)) for one in levels["c"].layers)
    )
    return answer(
        _tenth(published, measurement),
        _tenth(levels["c"], measurement),
        source(measurement),
        without_content=_tenth(levels["b"], measurement),
        factor=scale,
    )


@reading(
    "herasimchyk2026/mixing-per-token",
    f"λ, mean over layers of {BUNDLED}: mean of ratios per token, ratio of norms",
)
def _mean_mixing(material: Material) -> Comparison:
    """λ over all layers, per token and by norms; the difference is one within prompts."""
    measurement = material.measured()
    token, norm = (measurement[name].values.mean(axis=1) for name in ("mixing_token", "mixing"))
    return _paired(token, norm, source(measurement))


@reading(
    "herasimchyk2026/mixing-per-token-sink",
    f"λ of layer {SINK_LAYER} of {SINK_MODEL}: mean of ratios per token, ratio of norms",
    "herasimchyk2026/mixing-per-token",
)
def _sink_mixing(material: Material) -> Comparison:
    measurement = material.measured(SINK_MODEL, needs=("mixing", "mixing_token"))
    token, norm = (measurement[name].values[:, SINK_LAYER] for name in ("mixing_token", "mixing"))
    return _paired(token, norm, source(measurement))


@reading(
    "herasimchyk2026/signs-measured",
    f"share of heads with δ > 0, {BUNDLED}: one sign, measured",
    "herasimchyk2026/signs",
)
def _signs(material: Material) -> Comparison:
    measurement = material.measured()
    found = one_sign(mean_content(measurement).offset)
    return replace(found, note=source(measurement))


def _paired(published: np.ndarray, corrected: np.ndarray, note: str) -> Comparison:
    """Means over prompts, and the mean of their differences."""
    apart = Estimate.of_mean(corrected - published)
    return answer(Estimate.of_mean(published), Estimate.of_mean(corrected), note, difference=apart)


@reading(
    "herasimchyk2026/predictor",
    f"Wasserstein distance from the measured influence, {BUNDLED}: residual-aware rollout, energy rollout",
)
def _predictor(material: Material) -> Comparison:
    return _energy_beside_rollout(material, BUNDLED)


def _energy_beside_rollout(material: Material, model: str) -> Comparison:
    """Distance from the measured influence: residual-aware rollout of measured attention, energy rollout."""
    measurement = material.measured(model, needs=("kernel", "energy_kernel"))
    levels = predictions(measurement)
    curves = Curves(model, "", {}, measured_influence(measurement))
    published, corrected = (np.asarray(levels[key].mass) for key in ("measured_kernels", "energy"))
    one, other, apart = (
        curves.estimate(statistic)
        for statistic in (
            lambda mass: wasserstein(published, mass),
            lambda mass: wasserstein(corrected, mass),
            lambda mass: wasserstein(corrected, mass) - wasserstein(published, mass),
        )
    )
    return answer(one, other, source(measurement), difference=apart)


@reading(
    "herasimchyk2026/predictor-sink",
    f"Wasserstein distance from the measured influence, {SINK_MODEL}: residual-aware rollout, energy rollout",
    "herasimchyk2026/predictor",
)
def _predictor_sink(material: Material) -> Comparison:
    return _energy_beside_rollout(material, SINK_MODEL)


@reading(
    "herasimchyk2026/table-6",
    f"similarity within the diagonal, {BUNDLED}: one range for all heads, each head's own",
)
def _homogeneity(material: Material) -> Comparison:
    """Table 6 with one range for all heads, and with each head's own."""
    measurement = material.measured(needs=("content",))
    content = measurement["content"].values
    found = {}
    for which in BOTH:
        for region, pair in homogeneity(content, which).items():
            place = "" if region == "diagonal" else "below the diagonal "
            for values, of in zip(pair, ("", " of normal numbers"), strict=True):
                found[f"{place}{which}{of}"] = Estimate.of_mean(values[np.isfinite(values)])
    return answer(found.pop("published"), found.pop("corrected"), source(measurement), **found)


@reading(
    "herasimchyk2026/section-4",
    f"share of triples against monotonicity, {BUNDLED}: after a second softmax with biases, of attention",
)
def _order(material: Material) -> Comparison:
    """Section 4: violating triples after a second softmax with ALiBi's biases, and of attention itself."""
    measurement = material.measured(needs=("kernel",))
    corrected = order_of(measurement)
    return answer(
        order_of(measurement, "published").rate,
        corrected.rate,
        source(measurement),
        noise_floor=corrected.floor,
    )


@reading(
    "herasimchyk2026/corpus-mixing",
    f"mass of the last tenth by level (b) on a second corpus, {BUNDLED}: λ of the first, its own",
)
def _corpus(material: Material) -> Comparison:
    """Level (b) on shuffled tokens, with the λ of the text in its order and with its own."""
    first, second = material.measured(), material.measured(scramble=True)
    own = architectures(second)["b"]
    other = replace(own, mixing=architectures(first)["b"].mixing)
    apart = np.abs(own.coefficients - other.coefficients).max()
    return answer(
        _tenth(other, second),
        _tenth(own, second),
        f"{source(second)} The second corpus is the first with the tokens of each prompt shuffled.",
        largest_difference_of_a_layers_mixing=float(apart),
    )
