"""The paper's levels: influence predicted from more and more of what was measured, and how well each agrees.

(a) attention only: positional logits, λ = 1; (b) residual-aware: the same with the measured λ_t; (c) the same with
content as a constant and a diagonal (Proposition 4.5). Where positions add −m·(i − j) to the logits (ALiBi) these
are the paper's three. Any other encoding acts through queries and keys: its positional logits are the measured
means by distance, and a fourth level, (d), takes all mean logits by distance with the first column.

The reading `corrected` takes slopes, scale and λ (Eq. 1) from the model; `published` does as the paper's code:
slopes 2^(−8h/H), content without the factor 1/√d_head, λ averaged over tokens, and (b) with the λ of the first
corpus whatever the corpus. Rollouts: Herasimchyk et al. 2026, Eqs. (2) to (4) and §6.2. Models that nobody here
measured have levels from the authors' rollout files (`config_curves`) or from their configuration alone.
"""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.comparison.predictors import PREDICTORS, Fold, folds
from posbias.comparison.scores import Comparison, compare_all
from posbias.core.errors import InputFileError, wrong
from posbias.core.machine import stream
from posbias.profiles.curves import least_stretch, spearman, wasserstein
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, measured_influence
from posbias.profiles.summary import at_ends
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.configs import preset, read_architecture
from posbias.theory.content import ConstantDiagonal, Content, NoContent
from posbias.theory.masks import Causal, Mask, SlidingWindow
from posbias.theory.mixing import AttentionOnly, PerLayer
from posbias.theory.positional import ALiBi, Positional, Tabulated
from posbias_papers.herasimchyk2026 import configs

if TYPE_CHECKING:
    import xarray as xr

LABELS = {
    "a": "attention only",
    "b": "residual-aware",
    "c": "with constant content",
    "d": "with fitted logits",
}
"""The levels by letter."""
NEEDED = (
    "influence",
    "mixing",
    "mixing_token",
    "logits_distance",
    "logits_diagonal",
    "logits_first_column",
    "positional_distance",
    "content_mean",
    "content_diagonal",
    "content_first_column",
)
"""Variables of a measurement that the levels rest on."""
MIXING: dict[configs.Reading, str] = {"corrected": "mixing", "published": "mixing_token"}
"""The variable of a measurement that has λ by prompt and layer: of Eq. (1), or, as published, mean over tokens."""
FITTED = next(one for one in PREDICTORS if one.key == "fitted")
"""Level (d): all mean logits by distance, the diagonal among them, and the measured first column."""
LINEAR = 1e-3
"""Positional logits count as ALiBi's when no pair is further than this share of the largest from a line."""
RESAMPLES = 1000
SCORES: dict[str, Callable[..., np.ndarray]] = {"spearman": spearman, "wasserstein": wasserstein}
"""The scores of Tables 2 to 5: Spearman (higher is better) and 1-Wasserstein on positions over n − 1 (lower)."""
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""What logits and attention of a model in half precision are good to."""


@dataclass(frozen=True)
class MeanContent:
    """Mean content logits per layer and head: `constant` below the diagonal, `constant` + `offset` on it."""

    constant: Float[np.ndarray, "layer head"]
    offset: Float[np.ndarray, "layer head"]


# --- curves ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """Influence on the last token of one model on one corpus: as measured, if it was, and by level.

    `additive` says whether the model adds a line by distance to its logits. Resamples are drawn from `seed`;
    `folds` are levels from halves of the prompts, to be judged on the others. Differences are taken on the same
    resamples of the prompts for both levels, so that noise in the measured curve, which both share, drops out.
    """

    model: str
    corpus: str
    levels: Mapping[str, Profile]
    measured: Profile | None = None
    additive: bool = True
    seed: int = 0
    folds: tuple[Fold, ...] = ()

    @property
    def influence(self) -> Profile:
        """The measured curve."""
        assert self.measured is not None
        return self.measured

    @property
    def samples(self) -> Float[np.ndarray, "prompt position"]:
        """The measured influence of each prompt."""
        return np.asarray(self.influence.samples, dtype=np.float64)

    @cached_property
    def comparison(self) -> Comparison:
        """Scores with intervals by letter, with baselines and bounds of noise. Raises as `compare`."""
        return compare_all(self.levels, self.influence, held_out=self.folds, seed=self.seed)

    @cached_property
    def resampled(self) -> Float[np.ndarray, "resample position"]:
        """Normalised mean influence over prompts drawn with replacement."""
        prompts = len(self.samples)
        counts = stream(self.seed, "herasimchyk2026.bootstrap").multinomial(
            prompts, np.full(prompts, 1.0 / prompts), size=RESAMPLES
        )
        sums = counts @ self.samples
        return sums / sums.sum(axis=1, keepdims=True)

    def ahead(self, score: str, more: Profile, less: Profile) -> Estimate:
        """By how much the curve `more` agrees better with the measured one than `less`, paired by resample."""
        of, sign = SCORES[score], 1.0 if score == "spearman" else -1.0
        return self.estimate(lambda measured: sign * (of(more.mass, measured) - of(less.mass, measured)))

    def minimum(self, letter: str) -> Estimate:
        """How far the trough of a level lies behind that of the measured curve, as a share of the text."""
        predicted = self.levels[letter].mass
        width = at_ends(predicted.size)

        def behind(measured: np.ndarray) -> np.ndarray:
            places = np.apply_along_axis(least_stretch, -1, measured, width)
            return (least_stretch(predicted, width) - places) / (predicted.size - 1)

        return self.estimate(behind)

    def estimate(self, statistic: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        """A statistic of the measured curve ([…, position] → […]) with its error over prompts, NaN of one.

        Of a published curve, which has no prompts, it is that curve's own.
        """
        value = float(statistic(self.influence.mass))
        if self.influence.samples is None:
            return Estimate(value)
        prompts = len(self.samples)
        se = float(np.std(statistic(self.resampled), ddof=1)) if prompts > 1 else math.nan
        return Estimate(value, se, prompts)


def curves_of(
    measurement: "xr.Dataset",
    corpus: str,
    reading: configs.Reading = "corrected",
    first: "xr.Dataset | None" = None,
    seed: int = 0,
) -> Curves:
    """A model's measured influence with its levels, by letter; `first` is its measurement on the first corpus.

    Where the measurement keeps statistics of halves of the prompts, levels are held out too. Resamples of the
    prompts are drawn from `seed`.

    Raises `InvalidValueError` for a measurement that lacks a variable of `NEEDED`.
    """
    need(measurement, NEEDED)
    additive = slopes_of(measurement) is not None

    def levels(part: "xr.Dataset") -> dict[str, Profile]:
        own = part if first is measurement else first
        return _levels(part, reading, own, additive)

    name, measured = str(measurement.attrs.get("model", "")), measured_influence(measurement)
    held_out = folds(measurement, levels, needs="logits_distance")
    return Curves(name, corpus, levels(measurement), measured, additive, seed, held_out)


# --- levels of a measurement -------------------------------------------------------------------------------


def _levels(
    measurement: "xr.Dataset", reading: configs.Reading, first: "xr.Dataset | None", additive: bool
) -> dict[str, Profile]:
    """Levels (a) to (c), and (d) where positions do not add a line to the logits."""
    levels = profiles_of(architectures(measurement, reading, first), measurement.sizes["position"])
    if not additive:
        read = measurement.assign(mixing=measurement[MIXING[reading]])
        levels["d"] = _named("d", FITTED.predict(read))
    return levels


def architectures(
    measurement: "xr.Dataset", reading: configs.Reading = "corrected", first: "xr.Dataset | None" = None
) -> dict[str, Architecture]:
    """Levels (a) to (c) as architectures; arguments and errors as `curves_of`."""
    own = _mixing(measurement, reading)
    shared = own if reading == "corrected" or first is None else _mixing(first, reading)
    depth, heads = measurement.sizes["layer"], measurement.sizes["head"]
    positional, masks = _positional(measurement, reading), _masks(measurement)
    content = mean_content(measurement, reading)

    def stack(layers: Sequence[Content]) -> tuple[Layer, ...]:
        return tuple(
            Layer(heads=heads, mask=mask, positional=where, content=what)
            for mask, where, what in zip(masks, positional, layers, strict=True)
        )

    bare = shortest_pattern(stack([NoContent()] * depth))
    full = [
        ConstantDiagonal(tuple(offset.tolist()), tuple(constant.tolist()))
        for offset, constant in zip(content.offset, content.constant, strict=True)
    ]
    return {
        "a": Architecture(depth, bare, AttentionOnly()),
        "b": Architecture(depth, bare, shared),
        "c": Architecture(depth, shortest_pattern(stack(full)), own),
    }


def slopes_of(measurement: "xr.Dataset") -> Float[np.ndarray, "layer head"] | None:
    """The slopes m of a model that adds −m·(i − j) to its logits, read off the logits; None for any other.

    The positional logit of a token to itself less that to token 0 is m·i: in this difference drops out whatever
    a model adds to a whole row (BLOOM, MPT and Falcon add m·j). A line through it is the slope where every point
    lies within `LINEAR` of the largest (four roundings in half precision), and some head has one. Raises as
    `curves_of`.
    """
    need(measurement, NEEDED)
    own = measurement["logits_diagonal"].values - measurement["content_diagonal"].values
    first = measurement["logits_first_column"].values - measurement["content_first_column"].values
    rise = own - first
    position = np.arange(rise.shape[-1], dtype=np.float64)
    seen = np.isfinite(rise)
    kept = np.where(seen, rise, 0.0)
    if not seen[..., 1:].any(axis=-1).all():
        return None  # content could not be separated in some layer
    slopes = (kept * position).sum(axis=-1) / (seen * position**2).sum(axis=-1)
    reach = np.abs(slopes).max() * position[-1]
    off = np.abs(np.where(seen, rise - slopes[..., None] * position, 0.0)).max()
    # float32 logits of some tens are good to a few millionths each
    linear = max(LINEAR, 4 * _ROUNDING.get(str(measurement.attrs.get("dtype", "")), 0.0))
    if reach < 0.01 or off > linear * reach or slopes.min() < -LINEAR:
        return None
    return np.maximum(slopes, 0.0)


def mean_content(measurement: "xr.Dataset", reading: configs.Reading = "corrected") -> MeanContent:
    """Content as a constant and an offset on the diagonal (Proposition 4.5), from mean logits.

    `corrected` is in softmax units and leaves out token 0, which draws attention for its own sake, on the diagonal
    and as a key; `published` counts it and multiplies by √d_head. Raises as `curves_of`.
    """
    need(measurement, NEEDED)
    below, own = measurement["content_mean"].values, measurement["content_diagonal"].values
    if not (np.isfinite(below).all() and np.isfinite(own[..., 1:]).all()):
        got = f"NaN in that of {measurement.attrs.get('model', 'the model')}"
        raise wrong("measurement", "content logits apart from positional ones", got=got)
    if reading == "corrected":
        return MeanContent(below, own[..., 1:].mean(axis=-1) - below)
    tokens = own.shape[-1]
    column = np.nansum(measurement["content_first_column"].values[..., 1:], axis=-1)
    pairs = tokens * (tokens - 1) // 2
    below = (below * (pairs - (tokens - 1)) + column) / pairs
    scale = np.sqrt(head_size(measurement))
    return MeanContent(scale * below, scale * (own.mean(axis=-1) - below))


def head_size(measurement: "xr.Dataset") -> float:
    """d_head: the attribute `head_size` where there is one, else the model's width over its heads."""
    attributes = measurement.attrs
    if "head_size" in attributes:
        return float(attributes["head_size"])
    return float(attributes["hidden_size"]) / measurement.sizes["head"]


def published_slopes(heads: int) -> tuple[float, ...]:
    """2^(−8h/H) for h = 1 … H, whatever H: the slopes in the paper's rollout files."""
    return tuple((2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)).tolist())


def need(measurement: "xr.Dataset", names: tuple[str, ...]) -> None:
    """Raise `InvalidValueError` if the measurement lacks one of these variables."""
    missing = [name for name in names if name not in measurement]
    if missing:
        got = f"none in that of {measurement.attrs.get('model', '?')}"
        raise wrong("measurement", f"the variable {missing[0]!r} of 'posbias measure'", got=got)


def profiles_of(levels: Mapping[str, Architecture], tokens: int) -> dict[str, Profile]:
    """The influence that architectures predict for a text of `tokens` tokens, by level."""
    from posbias.theory.rollout.dispatch import influence

    return {letter: _named(letter, influence(one, tokens, threads=1).mass) for letter, one in levels.items()}


def _named(letter: str, weights: Float[np.ndarray, "position"]) -> Profile:
    return Profile.from_weights(weights, measures="rollout", predictor=f"({letter}) {LABELS[letter]}")


def _mixing(measurement: "xr.Dataset", reading: configs.Reading) -> PerLayer:
    return PerLayer(tuple(measurement[MIXING[reading]].values.mean(axis=0).tolist()))


def _positional(measurement: "xr.Dataset", reading: configs.Reading) -> list[Positional]:
    """The positional logits of each layer: slopes where there are, else a table by distance."""
    heads, slopes = measurement.sizes["head"], slopes_of(measurement)
    if slopes is None:
        tables = _filled(measurement["positional_distance"].values)
        return [Tabulated(tuple(map(tuple, table.tolist()))) for table in tables]
    if reading == "published":
        return [ALiBi(published_slopes(heads))] * len(slopes)
    return [ALiBi(tuple(layer.tolist())) for layer in slopes]


def _masks(measurement: "xr.Dataset") -> list[Mask]:
    """The mask of each layer: a window where mean logits end before the text does."""
    logits = measurement["logits_distance"].values
    # the longest distance has but one pair, in the first column, which the means leave out
    seen = np.isfinite(logits[..., :-1]).max(axis=1)
    widths = np.where(seen.all(axis=1), 0, seen.argmin(axis=1)).tolist()
    return [SlidingWindow(width) if width else Causal() for width in widths]


def _filled(tables: Float[np.ndarray, "layer head distance"]) -> Float[np.ndarray, "layer head distance"]:
    """Distances without a value (the longest, and those beyond a window) take the last one that has one."""
    finite = np.isfinite(tables)
    last = np.maximum.accumulate(np.where(finite, np.arange(tables.shape[-1]), 0), axis=-1)
    return np.take_along_axis(tables, last, axis=-1)


# --- levels without a measurement --------------------------------------------------------------------------


_FOLDERS = {"fineweb-edu": configs.CORPORA[0], "dclm": configs.CORPORA[1], "wikipedia": configs.CORPORA[2]}
"""Folders of the authors' rollout files by corpus; files without content have the corpus ""."""


@functools.cache
def attention_only(tokens: int = configs.TOKENS) -> tuple[tuple[str, Profile], ...]:
    """Level (a) of each of the paper's models, by its name, from its configuration alone.

    Slopes are the model's own and, where these are others, those of the authors' files too.
    """
    found = []
    for model, hub in configs.HUB.items():
        own = replace(preset(hub.preset), mixing=AttentionOnly())
        (layer,) = own.layers
        files = replace(own, layers=(replace(layer, positional=ALiBi(published_slopes(layer.heads))),))
        level, by_files = (profiles_of({"a": one}, tokens)["a"] for one in (own, files))
        found.append((model, level))
        if abs(level.mass[0] - by_files.mass[0]) > 1e-9:
            found.append((f"{model} with the files' slopes", by_files))
    return tuple(found)


def config_curves(
    folder: str | os.PathLike[str], reading: configs.Reading = "corrected", tokens: int = configs.TOKENS
) -> list[Curves]:
    """The levels of every printed model of which `folder` holds a file without content, by model and corpus.

    The folder has `.yaml` files in the layout of the authors' repository (`no_content/MODEL.yaml`,
    `all_content/CORPUS/MODEL.yaml`, with `_2048` after the first folder for that length) or flat
    (`MODEL-no-content.yaml`, `MODEL-content.yaml`). Level (a) is level (b) with λ = 1. Read as `published`, files
    are taken as the authors' code takes them: a diagonal given once is head 0's alone. `corrected` gives it to all
    heads, divides content by √d_head and takes slopes from the model's own configuration; the files' λ, averaged
    over tokens, is all there is. Raises `InputFileError` when it holds none, or a file cannot be read;
    `InvalidValueError` for a file whose keys or values are wrong.
    """
    files = rollout_architectures(folder, tokens)
    bare = [model for model in configs.HUB if (model, "") in files]
    if not bare:
        what = f"rollout files for {tokens} tokens without content, such as no_content/bloom.yaml"
        raise wrong("configs", what, got=f"{folder}", kind=InputFileError)
    curves = []
    for model in bare:
        plain = as_read(files[model, ""], model, reading)
        for corpus in [text for text in configs.CORPORA if (model, text) in files] or configs.CORPORA[:1]:
            found = {"a": replace(plain, mixing=AttentionOnly()), "b": plain}
            if (model, corpus) in files:
                found["c"] = as_read(files[model, corpus], model, reading)
            curves.append(Curves(model, corpus, profiles_of(found, tokens)))
    return curves


def published_levels() -> Curves:
    """The influence of BLOOM-176B that the authors measured, with the levels as published, from their figures."""
    curves = {name: np.array(values) for name, values in configs.published_curves().items()}
    levels = {letter: _named(letter, curves[letter]) for letter in "bc"}
    levels = {"a": dict(attention_only())[f"{configs.PUBLISHED[0]} with the files' slopes"]} | levels
    return Curves(*configs.PUBLISHED, levels, Profile.from_weights(curves["measured"], measures="gradient"))


def rollout_architectures(folder: str | os.PathLike[str], tokens: int) -> dict[tuple[str, str], Architecture]:
    """What the rollout files for `tokens` tokens hold, by model and corpus ("": without content)."""
    if not Path(folder).is_dir():
        raise InputFileError(f"configs: expected a folder with the authors' rollout files, got {folder}")
    found: dict[tuple[str, str], Architecture] = {}
    for path in sorted(Path(folder).rglob("*.yaml")):
        stem, _, kind = path.stem.partition("-content")
        corpus = None
        if stem.endswith("-no") or path.parent.name.startswith("no_content"):
            stem, corpus = stem.removesuffix("-no"), ""
        elif path.stem.endswith("-content"):
            corpus = configs.CORPORA[0]
        elif path.parents[1].name.startswith("all_content"):
            corpus = _FOLDERS.get(path.parent.name)
        model = configs.model_of(stem)
        if model and corpus is not None and not kind:
            read = read_architecture(path)
            if read.tokens == tokens:
                found.setdefault((model, corpus), read.architecture)
    return found


def as_read(
    architecture: Architecture, model: str, reading: configs.Reading, scaled: bool = False
) -> Architecture:
    """The architecture of a file, read one way or the other; content is `scaled` where it is corrected."""
    scale = 1.0 / np.sqrt(configs.HUB[model].head_size) if scaled or reading == "corrected" else 1.0
    own = preset(configs.HUB[model].preset).layers[0].positional

    def layer(given: Layer) -> Layer:
        content = given.content
        if isinstance(content, ConstantDiagonal):
            diagonal = np.array(content.diagonal) * scale
            if reading == "published" and len(diagonal) == 1:
                diagonal = np.concatenate([diagonal, np.zeros(given.heads - 1)])
            constant = np.array(content.constant) * scale
            content = ConstantDiagonal(tuple(diagonal.tolist()), tuple(constant.tolist()))
        return replace(given, content=content, positional=given.positional if reading == "published" else own)

    return replace(architecture, layers=tuple(map(layer, architecture.layers)), name=model)
