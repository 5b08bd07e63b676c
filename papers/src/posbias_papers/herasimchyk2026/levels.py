"""From a measured model to the paper's levels: influence predicted from more and more of what was measured.

(a) attention only: positional logits, λ = 1; (b) residual-aware: the same with the measured λ_t; (c) the same with
content as a constant and a diagonal (Proposition 4.5). Where positions add −m·(i − j) to the logits (ALiBi) these
are the paper's three. Any other encoding acts through queries and keys: its positional logits are the measured
means by distance, and a fourth level, (d), takes all mean logits by distance with the first column.

The reading `corrected` takes slopes, scale and λ (Eq. 1) from the model; `published` does as the paper's code:
slopes 2^(−8h/H), content without the factor 1/√d_head, λ averaged over tokens, and (b) with the λ of the first
corpus whatever the corpus. Rollouts: Herasimchyk et al. 2026, Eqs. (2) to (4) and §6.2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.comparison.held_out import folds
from posbias.comparison.predictors import PREDICTORS
from posbias.core.errors import InvalidValueError
from posbias.profiles.influence import measured_influence
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture, Layer, shortest_pattern
from posbias.theory.content import ConstantDiagonal, Content, NoContent
from posbias.theory.distance import Tabulated
from posbias.theory.masks import Causal, Mask, SlidingWindow
from posbias.theory.mixing import AttentionOnly, PerLayer
from posbias.theory.positional import ALiBi, Positional
from posbias_papers.herasimchyk2026.curves import Curves
from posbias_papers.herasimchyk2026.printed import Reading

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
MIXING: dict[Reading, str] = {"corrected": "mixing", "published": "mixing_token"}
"""The variable of a measurement that has λ by prompt and layer: of Eq. (1), or, as published, mean over tokens."""
FITTED = next(one for one in PREDICTORS if one.key == "fitted")
"""Level (d): all mean logits by distance, the diagonal among them, and the measured first column."""
LINEAR = 1e-3
"""Positional logits count as ALiBi's when no pair is further than this share of the largest from a line."""
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""What logits and attention of a model in half precision are good to."""


@dataclass(frozen=True)
class MeanContent:
    """Mean content logits per layer and head: `constant` below the diagonal, `constant` + `offset` on it."""

    constant: Float[np.ndarray, "layer head"]
    offset: Float[np.ndarray, "layer head"]


def curves_of(
    measurement: "xr.Dataset",
    corpus: str,
    reading: Reading = "corrected",
    first: "xr.Dataset | None" = None,
    seed: int = 0,
    more: "Callable[[xr.Dataset], Mapping[str, Profile]]" = lambda measurement: {},
) -> Curves:
    """A model's measured influence with its levels, by letter; `first` is its measurement on the first corpus.

    Where the measurement keeps statistics of halves of the prompts, levels are held out too. Resamples of the
    prompts are drawn from `seed`; `more` gives further levels.

    Raises `InvalidValueError` for a measurement that lacks a variable of `NEEDED`.
    """
    need(measurement, NEEDED)
    additive = slopes_of(measurement) is not None

    def levels(part: "xr.Dataset") -> dict[str, Profile]:
        own = part if first is measurement else first
        return _levels(part, reading, own, additive) | dict(more(part))

    lost = float(measurement["missing_mass"].max()) if "missing_mass" in measurement else 0.0
    remarks = (
        ("learned sinks draw attention that no level knows of",)
        if np.isfinite(lost) and lost > max(1e-6, _rounding(measurement))
        else ()
    )
    name = str(measurement.attrs.get("model", ""))
    measured = measured_influence(measurement)
    fitted = folds(measurement, levels, needs="logits_distance")
    return Curves(name, corpus, levels(measurement), measured, additive, remarks, seed, fitted)


def _levels(
    measurement: "xr.Dataset", reading: Reading, first: "xr.Dataset | None", additive: bool
) -> dict[str, Profile]:
    """Levels (a) to (c), and (d) where positions do not add a line to the logits."""
    tokens = measurement.sizes["position"]
    levels = {
        letter: profile_of(letter, architecture, tokens)
        for letter, architecture in architectures(measurement, reading, first).items()
    }
    if not additive:
        read = measurement.assign(mixing=measurement[MIXING[reading]])
        levels["d"] = _named("d", FITTED.predict(read))
    return levels


def architectures(
    measurement: "xr.Dataset", reading: Reading = "corrected", first: "xr.Dataset | None" = None
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
        return None  # content could not be told in some layer
    slopes = (kept * position).sum(axis=-1) / (seen * position**2).sum(axis=-1)
    reach = np.abs(slopes).max() * position[-1]
    off = np.abs(np.where(seen, rise - slopes[..., None] * position, 0.0)).max()
    # float32 logits of some tens are good to a few millionths each
    if reach < 0.01 or off > max(LINEAR, 4 * _rounding(measurement)) * reach or slopes.min() < -LINEAR:
        return None
    return np.maximum(slopes, 0.0)


def mean_content(measurement: "xr.Dataset", reading: Reading = "corrected") -> MeanContent:
    """Content as a constant and an offset on the diagonal (Proposition 4.5), from mean logits.

    `corrected` is in softmax units and leaves out token 0, which draws attention for its own sake, on the diagonal
    and as a key; `published` counts it and multiplies by √d_head. Raises as `curves_of`.
    """
    need(measurement, NEEDED)
    below, own = measurement["content_mean"].values, measurement["content_diagonal"].values
    if not (np.isfinite(below).all() and np.isfinite(own[..., 1:]).all()):
        raise InvalidValueError(
            f"measurement: content logits of {measurement.attrs.get('model', 'the model')} could not be told from "
            "positional ones, finite ones needed"
        )
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
        raise InvalidValueError(
            f"measurement: variable {missing[0]!r} is missing in that of {measurement.attrs.get('model', '?')}, "
            "one written by this version of 'posbias measure' needed"
        )


def profile_of(letter: str, architecture: Architecture, tokens: int) -> Profile:
    """The influence that an architecture predicts for a text of so many tokens, named after its level."""
    from posbias.theory.rollout.dispatch import influence

    return _named(letter, influence(architecture, tokens, threads=1).mass)


def _rounding(measurement: "xr.Dataset") -> float:
    """The relative rounding of what the model computed; 0 for float32, which tolerances cover."""
    return _ROUNDING.get(str(measurement.attrs.get("dtype", "")), 0.0)


def _named(letter: str, weights: Float[np.ndarray, "position"]) -> Profile:
    attrs = {"predictor": f"({letter}) {LABELS[letter]}"}
    return Profile.from_weights(weights, measures="rollout", attrs=attrs)


def _mixing(measurement: "xr.Dataset", reading: Reading) -> PerLayer:
    return PerLayer(tuple(measurement[MIXING[reading]].values.mean(axis=0).tolist()))


def _positional(measurement: "xr.Dataset", reading: Reading) -> list[Positional]:
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
