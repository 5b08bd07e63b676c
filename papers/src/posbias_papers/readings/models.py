"""Herasimchyk et al. 2026, models: what the paper's files and code take for a model, beside the model's own.

What depends on the architecture alone is computed from presets. What needs the λ or content of the paper's models
is computed from the authors' rollout files where a folder of them is given.
"""

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError
from posbias.profiles.profile import Profile, wasserstein
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import PRESETS
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.mixing import ConstantMixing, Mixing, PreNormInit
from posbias.theory.positional import ALiBi
from posbias.theory.rollout.dispatch import influence
from posbias_papers.herasimchyk2026.configs import HUB, TABLE1, TABLE4, TABLE5, TOKENS
from posbias_papers.herasimchyk2026.levels import config_curves, published_slopes
from posbias_papers.readings.reading import BOTH, Comparison, Material, UnavailableError, answer, reading

SMALL = 7
"""Billions of parameters of the smaller models of the paper."""
OFFSET, MIXING = -4.66, 0.2
"""δ and λ of the example of a diagonal that is given once."""


def last_tenth(mass: Float[np.ndarray, "position"]) -> float:
    """The mass of the last tenth of all positions."""
    return float(np.asarray(mass)[-round(0.1 * len(mass)) :].sum())


def one_sign(offsets: Float[np.ndarray, "*head"]) -> Comparison:
    """The share of heads whose δ is above zero, beside that of one sign alone (Proposition 4.5)."""
    positive = float((np.asarray(offsets) > 0).mean())
    return answer(1.0 if positive >= 0.5 else 0.0, positive)


def _profile(
    preset: str, positional: ALiBi, mixing: Mixing, content: ConstantDiagonal | NoContent | None = None
) -> Profile:
    """The influence on the last of 256 tokens, for the depth and heads of a preset."""
    known = PRESETS[preset]
    layer = Layer(known.heads, positional=positional, content=content or NoContent())
    return influence(Architecture(known.depth, (layer,), mixing), TOKENS, threads=1)


def _levels_of_files(material: Material) -> dict[str, dict[str, np.ndarray]]:
    """The levels of mpt-7b on the first corpus, by reading and letter, from the authors' files."""
    levels = {}
    for which in BOTH:
        found = [
            one.levels for one in config_curves(material.configs, which, TOKENS) if one.model == "mpt-7b"
        ]
        if not found or "c" not in found[0]:
            raise UnavailableError(f"{material.configs}: no rollout files of mpt-7b without and with content")
        levels[which] = {letter: np.asarray(profile.mass) for letter, profile in found[0].items()}
    return levels


@reading(
    "herasimchyk2026/content-scale",
    "mass of the last tenth, mpt-7b with the content of the authors' files, 256 tokens",
)
def _content_of_files(material: Material) -> Comparison:
    """Mass of the last tenth in level (c)."""
    levels = _levels_of_files(material)
    sizes = [hub.head_size for hub in HUB.values()]
    return answer(
        last_tenth(levels["published"]["c"]),
        last_tenth(levels["corrected"]["c"]),
        without_content=last_tenth(levels["corrected"]["b"]),
        least_factor=float(np.sqrt(min(sizes))),
        largest_factor=float(np.sqrt(max(sizes))),
    )


@reading(
    "herasimchyk2026/one-diagonal",
    "mass of the first 5 %, BLOOM-176B's shape with one δ: head 0 alone, all heads",
)
def _one_head(material: Material) -> Comparison:
    heads = PRESETS["bloom-176b"].heads
    given = {"all": (OFFSET,), "one": (OFFSET, *[0.0] * (heads - 1))}
    found = {
        (slopes, name): _profile("bloom-176b", positional, ConstantMixing(MIXING), ConstantDiagonal(diagonal))
        for slopes, positional in (("own", ALiBi()), ("file", ALiBi(published_slopes(heads))))
        for name, diagonal in given.items()
    }

    def first(slopes: str, name: str) -> float:
        return found[slopes, name].summary.first_mass

    def apart(slopes: str) -> float:
        return float(wasserstein(*(np.asarray(found[slopes, name].mass) for name in given)))

    return answer(
        first("own", "one"),
        first("own", "all"),
        f"δ = −{-OFFSET:g}, λ = {MIXING:g}, 256 tokens, the model's own slopes; the files have others.",
        Wasserstein_distance_of_the_two=apart("own"),
        with_the_files_slopes_as_published=first("file", "one"),
        with_the_files_slopes_corrected=first("file", "all"),
        with_the_files_slopes_Wasserstein=apart("file"),
    )


def _slopes(preset: str, published: ALiBi, corrected: ALiBi, note: str) -> Comparison:
    """The mass of the first 5 % under two sets of slopes, with λ at initialisation."""
    profiles = [_profile(preset, one, PreNormInit()) for one in (published, corrected)]
    masses = [np.asarray(one.mass) for one in profiles]
    return answer(
        profiles[0].summary.first_mass,
        profiles[1].summary.first_mass,
        f"λ as at initialisation, no content. {note}",
        last_tenth_as_published=last_tenth(masses[0]),
        last_tenth_corrected=last_tenth(masses[1]),
        Wasserstein_distance_of_the_two=float(wasserstein(*masses)),
    )


@reading("herasimchyk2026/falcon-slopes", "mass of the first 5 %, falcon-rw-7b, 256 tokens")
def _falcon(material: Material) -> Comparison:
    corrected = PRESETS["falcon-rw-7b"].architecture.layers[0].positional
    assert isinstance(corrected, ALiBi)
    return _slopes(
        "falcon-rw-7b",
        ALiBi(),
        corrected,
        "The files' own λ are not in the package, so their U is not shown.",
    )


@reading("herasimchyk2026/bloom-slopes", "mass of the first 5 %, BLOOM-176B, 256 tokens")
def _bloom(material: Material) -> Comparison:
    heads = PRESETS["bloom-176b"].heads
    own = ALiBi()
    return _slopes("bloom-176b", ALiBi(published_slopes(heads)), own, f"{heads} heads are no power of two.")


@reading("herasimchyk2026/signs", "share of heads with δ > 0, mpt-7b of the authors' files: one sign, found")
def _signs_of_files(material: Material) -> Comparison:
    """The share of heads of mpt-7b with δ > 0, from the authors' files."""
    from posbias.theory.configs import read_architecture

    places = sorted(material.configs.rglob("mpt-7b*.yaml"))
    for path in places:
        try:
            layers = read_architecture(path).architecture.stack
        except InputFileError:
            continue
        contents = [one.content for one in layers]
        if any(isinstance(one, ConstantDiagonal) for one in contents):
            offsets = np.stack(
                [one.diagonal_of(layer.heads) for one, layer in zip(contents, layers, strict=True)]
            )
            return one_sign(offsets)
    raise UnavailableError(f"{material.configs}: no rollout file of mpt-7b with content")


@reading(
    "herasimchyk2026/printed-fit",
    "Wasserstein distance of (c) from (b), mpt-7b of the authors' files: content as published, scaled",
)
def _fit_of_files(material: Material) -> Comparison:
    """How far (c) lies from (b)."""
    levels = _levels_of_files(material)
    published, corrected = (float(wasserstein(by["c"], by["b"])) for by in levels.values())
    return answer(published, corrected)


@reading(
    "herasimchyk2026/closer-alignment",
    "printed cases in which (c) agrees better than (b): in distance, in rank",
)
def _closer(material: Material) -> Comparison:
    """In how many of the printed cases (c) agrees better than (b), by either score."""
    cases = [(model, corpus) for model, by in TABLE4.items() for corpus in by]
    nearer = [model for model, corpus in cases if TABLE5[model][corpus][2] < TABLE5[model][corpus][1]]
    ranks = sum(TABLE4[model][corpus][2] > TABLE4[model][corpus][1] for model, corpus in cases)
    above = sum(TABLE4[model][corpus][1] > TABLE4[model][corpus][2] for model, corpus in cases)
    small = [model for model, _ in cases if TABLE1[model][0] <= SMALL]
    return answer(
        len(nearer),
        ranks,
        "Published is by Wasserstein distance, on which the text rests; corrected by Spearman's correlation.",
        cases=len(cases),
        b_ranks_above_c=above,
        c_is_nearer_in_models_of_7_billion=sum(model in small for model in nearer),
        cases_of_7_billion=len(small),
    )
