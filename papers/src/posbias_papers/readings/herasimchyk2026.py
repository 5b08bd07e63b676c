"""Herasimchyk et al. 2026 in both readings: Theorem 5.4, and what files and code take for a model.

Statements whose counterexample is a pair of numbers are read on that (`posbias_papers.statements`). What depends
on an architecture alone is computed from presets; what needs the λ or content of the paper's models, from the
authors' rollout files where a folder of them is given. The bundled model is measured here (8 prompts of 64 tokens,
seconds), unless the results hold a larger measurement of it; SmolLM2-135M, whose first token is a sink, only where
they do. The note says which. Positions and layers count from 0.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.predictors import predictions
from posbias.profiles.curves import spearman, wasserstein
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, measured_influence
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import PRESETS
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.mixing import ConstantMixing, Mixing, PowerDecay, PreNormInit
from posbias.theory.positional import ALiBi
from posbias.theory.rollout.dispatch import influence
from posbias_papers.closed_forms import bounds
from posbias_papers.errata import BOTH, BUNDLED, Comparison, Material, UnavailableError, answer, discrepancy
from posbias_papers.herasimchyk2026.configs import (
    HUB,
    LARGE,
    PUBLISHED,
    TABLE1,
    TABLE4,
    TABLE5,
    TOKENS,
    published_curves,
    rollout_files,
)
from posbias_papers.herasimchyk2026.levels import (
    Curves,
    architectures,
    config_curves,
    head_size,
    mean_content,
    published_slopes,
)
from posbias_papers.herasimchyk2026.quantities import homogeneity, order_of
from posbias_papers.statements.herasimchyk2026 import FOUR, deep_rollouts

if TYPE_CHECKING:
    import xarray as xr

SMALL = 7
"""Billions of parameters of the smaller models of the paper."""
OFFSET, MIXING = -4.66, 0.2
"""δ and λ of the example of a diagonal that is given once."""
SINK_MODEL = "smollm2-135m"
SINK_LAYER = 12
"""A layer of the sink model (from 0), the first whose stream has one token far longer than the others."""


# --- Theorem 5.4 -----------------------------------------------------------------------------------------------


def _two_tokens(initial: float, exponent: float) -> Any:
    """Ten layers of even attention with λ_t = initial/(t + 1)^exponent: rollouts, λ, ε."""
    return deep_rollouts(np.array([[[1.0, 0.0], [0.5, 0.5]]] * 10), initial, exponent)


@discrepancy("herasimchyk2026/theorem-5.4-i")
def _first_token(material: Material) -> Comparison:
    """what the first token draws from itself, λ_t = ½/(t + 1)², ε = ½: printed at most, true"""
    rollouts, _, floor = _two_tokens(0.5, 2.0)
    return answer(1.0 - bounds.retained(PowerDecay(0.5, 2.0), floor), float(rollouts[-1, 0, 0]))


@discrepancy("herasimchyk2026/theorem-5.4-attention-only")
def _attention_only(material: Material) -> Comparison:
    """what the second of two tokens keeps after ten layers of even attention, λ = 1: printed bound, Wu
    et al.'s
    """
    rollouts, mixing, floor = _two_tokens(1.0, 0.0)
    theirs = np.exp(bounds.log_collapse_bound(np.full(len(mixing), floor), 1, mixing))
    printed = bounds.exponential_bound(mixing, floor, 1)
    return answer(float(printed[-1]), float(theirs[-1]), kept=float(rollouts[-1, 1, 1]))


@discrepancy("herasimchyk2026/theorem-5.4-ii-window")
def _window(material: Material) -> Comparison:
    """what the last of four tokens keeps after 200 layers, w = 2: printed bound, true"""
    rollouts, mixing, floor = deep_rollouts(np.array(FOUR["kernels"]), FOUR["initial"], FOUR["exponent"])
    printed = bounds.exponential_bound(mixing, floor, rollouts.shape[-1] - 1)[-1]
    return answer(float(printed), float(rollouts[-1, -1, -1]))


# --- architectures and the authors' files ------------------------------------------------------------------------


def _last_tenth(mass: Any) -> float:
    """The mass of the last tenth of all positions."""
    return float(np.asarray(mass)[-round(0.1 * len(mass)) :].sum())


def _levels_of_files(material: Material) -> dict[str, dict[str, np.ndarray]]:
    """The levels of mpt-7b on the first corpus, by reading and letter, from the authors' files."""
    levels = {}
    for which in BOTH:
        curves = config_curves(material.configs, which, TOKENS)
        found = [one.levels for one in curves if one.model == "mpt-7b"]
        if not found or "c" not in found[0]:
            raise UnavailableError(f"{material.configs}: no rollout files of mpt-7b without and with content")
        levels[which] = {letter: np.asarray(profile.mass) for letter, profile in found[0].items()}
    return levels


@discrepancy("herasimchyk2026/content-scale")
def _content_of_files(material: Material) -> Comparison:
    """mass of the last tenth, mpt-7b with the content of the authors' files, 256 tokens"""
    published, corrected = _levels_of_files(material).values()
    sizes = [hub.head_size for hub in HUB.values()]
    return answer(
        _last_tenth(published["c"]),
        _last_tenth(corrected["c"]),
        without_content=_last_tenth(corrected["b"]),
        least_factor=float(np.sqrt(min(sizes))),
        largest_factor=float(np.sqrt(max(sizes))),
    )


@discrepancy("herasimchyk2026/printed-fit")
def _triangle(material: Material) -> Comparison:
    """rows of Table 5 that the triangle inequality allows, to rounding: (c) with content as published, scaled"""
    misses = {
        which: sorted(_miss(row, which) for row in rollout_files()) for which in ("published", "scaled")
    }
    published, scaled = (sum(miss <= 0 for miss in some) for some in misses.values())
    return answer(
        published,
        scaled,
        cases=len(misses["scaled"]),
        published_miss_at_most=misses["published"][-1],
        scaled_miss_at_least=misses["scaled"][3],
    )


def _miss(row: Mapping[str, Any], which: str) -> float:
    """By how much (b) and (c) lie farther apart, or nearer, than their printed distances allow; ≤ 0: possible.

    The printed distances are of each from the measured curve, to two digits.
    """
    _, b, c = TABLE5[row["model"]][row["corpus"]]
    return max(abs(b - c) - row[which], row[which] - (b + c)) - 0.01


@discrepancy("herasimchyk2026/table-3")
def _distance_of_content(material: Material) -> Comparison:
    """Wasserstein distance of (c) from the published influence of bloom-176b: printed, with scaled content"""
    curves = {name: np.array(values) for name, values in published_curves().items()}
    influence = curves.pop("measured")
    others: dict[str, Any] = {name: float(wasserstein(curve, influence)) for name, curve in curves.items()}
    others |= {f"rank of {name}": float(spearman(curve, influence)) for name, curve in curves.items()}
    return answer(0.01, others.pop("c_scaled"), "As named in `bloom-176b.csv`.", **others)


@discrepancy("herasimchyk2026/signs")
def _signs_of_files(material: Material) -> Comparison:
    """models of five whose mean δ has the sign of the first's: all, found"""
    rows = [row for row in rollout_files() if row["corpus"] == PUBLISHED[1]]
    alike = sum(row["offset"] * rows[0]["offset"] > 0 for row in rows)
    return answer(len(rows), alike, **{row["model"].replace("-", "_"): row["positive"] for row in rows})


def _profile(
    preset: str, positional: ALiBi, mixing: Mixing, content: ConstantDiagonal | NoContent | None = None
) -> Profile:
    """The influence on the last of 256 tokens, for the depth and heads of a preset."""
    known = PRESETS[preset]
    layer = Layer(known.heads, positional=positional, content=content or NoContent())
    return influence(Architecture(known.depth, (layer,), mixing), TOKENS, threads=1)


def _two_profiles(published: Profile, corrected: Profile) -> tuple[float, float, float]:
    """The mass of the first 5 % of each, and their Wasserstein distance."""
    apart = wasserstein(np.asarray(published.mass), np.asarray(corrected.mass))
    return published.summary.first_mass, corrected.summary.first_mass, float(apart)


@discrepancy("herasimchyk2026/one-diagonal")
def _one_head(material: Material) -> Comparison:
    """mass of the first 5 %, BLOOM-176B's shape with one δ: head 0 alone, all heads"""
    heads = PRESETS["bloom-176b"].heads
    contents = [ConstantDiagonal((OFFSET, *[0.0] * (heads - 1))), ConstantDiagonal((OFFSET,))]

    def masses(positional: ALiBi) -> tuple[float, float, float]:
        one, every = (_profile("bloom-176b", positional, ConstantMixing(MIXING), two) for two in contents)
        return _two_profiles(one, every)

    one, every, apart = masses(ALiBi())
    of_file, every_of_file, apart_of_file = masses(ALiBi(published_slopes(heads)))
    return answer(
        one,
        every,
        f"δ = −{-OFFSET:g}, λ = {MIXING:g}, 256 tokens, the model's own slopes; the files have others.",
        Wasserstein_distance_of_the_two=apart,
        with_the_files_slopes_as_published=of_file,
        with_the_files_slopes_corrected=every_of_file,
        with_the_files_slopes_Wasserstein=apart_of_file,
    )


def _slopes(preset: str, published: ALiBi, corrected: Any, note: str) -> Comparison:
    """The mass of the first 5 % under two sets of slopes, with λ at initialisation."""
    pair = (_profile(preset, one, PreNormInit()) for one in (published, corrected))
    first, other, apart = _two_profiles(*pair)
    note = f"λ as at initialisation, no content. {note}"
    return answer(first, other, note, Wasserstein_distance_of_the_two=apart)


@discrepancy("herasimchyk2026/falcon-slopes")
def _falcon(material: Material) -> Comparison:
    """mass of the first 5 %, falcon-rw-7b, 256 tokens"""
    note = "The files' own λ are not in the package, so their U is not shown."
    return _slopes("falcon-rw-7b", ALiBi(), PRESETS["falcon-rw-7b"].architecture.layers[0].positional, note)


@discrepancy("herasimchyk2026/bloom-slopes")
def _bloom(material: Material) -> Comparison:
    """mass of the first 5 %, BLOOM-176B, 256 tokens"""
    heads = PRESETS["bloom-176b"].heads
    of_file = ALiBi(published_slopes(heads))
    return _slopes("bloom-176b", of_file, ALiBi(), f"{heads} heads are no power of two.")


@discrepancy("herasimchyk2026/closer-alignment")
def _closer(material: Material) -> Comparison:
    """printed cases in which (c) agrees better than (b): in distance, in rank"""
    cases = [(model, corpus) for model, by in TABLE4.items() for corpus in by]
    nearer = [model for model, corpus in cases if TABLE5[model][corpus][2] < TABLE5[model][corpus][1]]
    ranks = [TABLE4[model][corpus][2] - TABLE4[model][corpus][1] for model, corpus in cases]
    gains = {}
    for name, scores in {"rank": TABLE4, "distance": TABLE5}.items():
        means = {model: float(np.mean([row[2] for row in by.values()])) for model, by in scores.items()}
        larger, smaller = ([means[m] for m in means if (m in LARGE) == large] for large in (True, False))
        gains[f"larger_models_{name}_of_c"] = float(np.mean(larger) - np.mean(smaller))
        by_depth = spearman(
            np.array([float(TABLE1[model][1]) for model in means]), np.array([*means.values()])
        )
        gains[f"depth_against_{name}_of_c"] = float(by_depth)
    return answer(
        len(nearer),
        sum(rank > 0 for rank in ranks),
        "Published is by Wasserstein distance, on which the text rests; corrected by Spearman's correlation.",
        cases=len(cases),
        b_ranks_above_c=sum(rank < 0 for rank in ranks),
        b_ranks_highest=sum(b > max(a, c) for by in TABLE4.values() for a, b, c in by.values()),
        c_is_nearer_in_models_of_7_billion=sum(TABLE1[model][0] <= SMALL for model in nearer),
        **gains,
    )


# --- measured ----------------------------------------------------------------------------------------------------


def _source(measurement: "xr.Dataset") -> str:
    """'tiny-alibi, 8 prompts of 64 tokens.'"""
    sizes = measurement.sizes
    return f"{measurement.attrs['model']}, {sizes['prompt']} prompts of {sizes['position']} tokens."


def _tenth(architecture: Architecture, measurement: "xr.Dataset") -> float:
    return _last_tenth(influence(architecture, measurement.sizes["position"], threads=1).mass)


@discrepancy("herasimchyk2026/content-scale-measured", "herasimchyk2026/content-scale")
def _content_scale(material: Material) -> Comparison:
    """mass of the last tenth, tiny-alibi with its measured content: √d_head times it, as it is"""
    measurement = material.measured()
    level, scale = architectures(measurement)["c"], float(np.sqrt(head_size(measurement)))

    def stretched(layer: Layer) -> Layer:
        assert isinstance(layer.content, ConstantDiagonal)
        return replace(layer, content=ConstantDiagonal(tuple(scale * one for one in layer.content.diagonal)))

    published = replace(level, layers=tuple(map(stretched, level.layers)))
    return answer(_tenth(published, measurement), _tenth(level, measurement), _source(measurement))


def _mixing(measurement: "xr.Dataset", layers: Any) -> Comparison:
    """λ per token and by norms, means over layers and prompts; the difference is one within prompts."""
    token, norm = (measurement[name].values[:, layers].mean(axis=1) for name in ("mixing_token", "mixing"))
    apart = Estimate.of_mean(norm - token)
    both = Estimate.of_mean(token), Estimate.of_mean(norm)
    return answer(*both, _source(measurement), difference=apart)


@discrepancy("herasimchyk2026/mixing-per-token")
def _mean_mixing(material: Material) -> Comparison:
    """λ, mean over layers of tiny-alibi: mean of ratios per token, ratio of norms"""
    return _mixing(material.measured(), slice(None))


@discrepancy("herasimchyk2026/mixing-per-token-sink", "herasimchyk2026/mixing-per-token")
def _sink_mixing(material: Material) -> Comparison:
    """λ of layer 12 of smollm2-135m: mean of ratios per token, ratio of norms"""
    return _mixing(material.measured(SINK_MODEL, needs=("mixing", "mixing_token")), [SINK_LAYER])


@discrepancy("herasimchyk2026/signs-measured", "herasimchyk2026/signs")
def _signs(material: Material) -> Comparison:
    """share of heads with δ > 0, tiny-alibi: one sign, measured"""
    measurement = material.measured()
    positive = float((mean_content(measurement).offset > 0).mean())
    return answer(1.0 if positive >= 0.5 else 0.0, positive, _source(measurement))


def _energy_and_rollout(material: Material, model: str) -> Comparison:
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
    return answer(one, other, _source(measurement), difference=apart)


@discrepancy("herasimchyk2026/predictor")
def _predictor(material: Material) -> Comparison:
    """Wasserstein distance from the measured influence, tiny-alibi: residual-aware rollout, energy
    rollout
    """
    return _energy_and_rollout(material, BUNDLED)


@discrepancy("herasimchyk2026/predictor-sink", "herasimchyk2026/predictor")
def _predictor_sink(material: Material) -> Comparison:
    """Wasserstein distance from the measured influence, smollm2-135m: residual-aware rollout, energy
    rollout
    """
    return _energy_and_rollout(material, SINK_MODEL)


@discrepancy("herasimchyk2026/table-6")
def _homogeneity(material: Material) -> Comparison:
    """similarity within the diagonal, tiny-alibi: one range for all heads, each head's own"""
    measurement = material.measured(needs=("content",))
    found = {}
    for which in BOTH:
        for region, pair in homogeneity(measurement["content"].values, which).items():
            place = "" if region == "diagonal" else "below the diagonal "
            for values, of in zip(pair, ("", " of normal numbers"), strict=True):
                found[f"{place}{which}{of}"] = Estimate.of_mean(values[np.isfinite(values)])
    return answer(found.pop("published"), found.pop("corrected"), _source(measurement), **found)


@discrepancy("herasimchyk2026/section-4")
def _order(material: Material) -> Comparison:
    """share of triples against monotonicity, tiny-alibi: after a second softmax with biases, of
    attention
    """
    measurement = material.measured(needs=("kernel",))
    corrected = order_of(measurement)
    rate = order_of(measurement, "published").rate
    return answer(rate, corrected.rate, _source(measurement), noise_floor=corrected.floor)


@discrepancy("herasimchyk2026/corpus-mixing")
def _corpus(material: Material) -> Comparison:
    """mass of the last tenth by level (b) on a second corpus, tiny-alibi: λ of the first, its own"""
    first, second = material.measured(), material.measured(scramble=True)
    own = architectures(second)["b"]
    other = replace(own, mixing=architectures(first)["b"].mixing)
    note = f"{_source(second)} The second corpus is the first with the tokens of each prompt shuffled."
    return answer(_tenth(other, second), _tenth(own, second), note)
