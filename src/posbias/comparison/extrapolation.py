"""A model's influence at a length at which it was not measured, from a measurement at a shorter one.

    measurement = posbias.load_measurement("results/smollm2-135m-512x32/measurement.nc")
    posbias.extrapolate(measurement, tokens=2048).summary

Queries and keys decide what a rotary model favours, so that no theory gives its profile from the configuration
alone. Two things may stay when a context grows: what a share of the context has, or what stands at a distance from
the query. The default goes from the one at the beginning to the other at the end. `extrapolation.toml` holds how
each rule fared on models that were measured at both lengths. Only where a rule was surely better there than an
even spread and than the stretched curve, and its verdict right, does a profile have a verdict.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from posbias.comparison.extrapolation_trials import Calibration, nearest_trial, won_up_to
from posbias.comparison.predictors import PREDICTORS, measured_mixing, prediction
from posbias.core import memory
from posbias.core.arguments import one_of
from posbias.core.errors import InvalidValueError
from posbias.profiles.curves import at_shares
from posbias.profiles.influence import measured_influence
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture
from posbias.theory.huggingface_families import rope_words
from posbias.theory.masks import Causal, Mask, Split, is_causal
from posbias.theory.positional import NeedsMeasurement
from posbias.theory.rollout.kernel import masked_softmax, through

if TYPE_CHECKING:
    import xarray as xr

Weights = Float[np.ndarray, "position"]
BUNDLED = Path(__file__).with_name("smollm2-135m.nc")
"""A measurement of SmolLM2-135M at 512 tokens, of what extrapolating needs."""
FITTED = slice(0.1, 0.5)
"""Between these shares of the measured length, counted back from the query, a power law is fitted."""
_PREDICTORS = {one.key: one for one in PREDICTORS}
LEAST = 32
"""Tokens that a measurement must have: on fewer nothing can be fitted."""
TRIED = 32
"""The prompts of every measurement that trials went on from; with fewer there is no verdict."""
_BLOCK = 256
"""Queries at a time."""


@dataclass(frozen=True)
class Rule:
    """A way to continue a measurement: `label` for a table, `method` in a sentence, `needs` what it reads."""

    key: str
    label: str
    method: str
    needs: tuple[str, ...]
    weights: "Callable[[xr.Dataset, int, Architecture | None], Weights]"


def extrapolate(
    measurement: "xr.Dataset", tokens: int, rule: str = "both", architecture: Architecture | None = None
) -> Profile:
    """The influence expected on the last of `tokens` tokens of a model that was measured on fewer.

    `rule` is the key of one of `RULES`, or that of a predictor (`PREDICTORS`), which speaks for
    the measured length alone and has no verdict: hold it against what was measured. With `architecture`, masks are
    its own, for the rule "logits"; another name or shape than the measured model's makes this a stand-in.
    `attrs["calibration"]` is a `Calibration`. No verdict (`left_out`) for a stand-in, for another rotary base or
    scaling than was measured (taken to change nothing), beyond the factor and the tokens to which every trial of
    this model was surely won, and from fewer than 32 prompts.

    Raises `InvalidValueError` for a measurement of an encoder, an unknown rule, fewer tokens than were measured,
    fewer than 32 measured, more than memory holds, a measurement without what the rule needs, or a predictor at
    another length.
    """
    one_of("rule", rule, (*RULES, *_PREDICTORS))
    if measurement.attrs.get("encoder"):
        raise InvalidValueError(
            "measurement: of an encoder given, one of a causal model needed to extrapolate"
        )
    measured = measurement.sizes["position"]
    if measured < LEAST:
        raise InvalidValueError(f"measurement: of {measured} tokens, {LEAST} or more needed to extrapolate")
    if tokens < measured:
        raise InvalidValueError(f"tokens: {tokens} given, the {measured} of the measurement or more needed")
    memory.length("tokens", tokens, each=64)
    left_out = _left_out(measurement, tokens, rule, architecture)
    if rule in RULES:
        profile = _continued(measurement, tokens, RULES[rule], architecture)
    elif tokens == measured:
        profile = prediction(measurement, _PREDICTORS[rule])
        worth = f"how near the predictor {rule!r} comes"
        left_out = (*left_out, worth)
    else:
        raise InvalidValueError(
            f"tokens: {tokens} given, the {measured} measured needed by the rule {rule!r}"
        )
    model, text = (str(measurement.attrs.get(name, "")) for name in ("model", "text"))
    trial = nearest_trial(model, measured, tokens) if rule in RULES else None
    calibration = Calibration(model, text, measured, rule, trial)
    attrs = {"calibration": calibration, "assumptions": [], "exact": False, "method": {}}
    return replace(profile, measures="extrapolated", attrs=dict(profile.attrs) | attrs, left_out=left_out)


def _continued(
    measurement: "xr.Dataset", tokens: int, rule: Rule, architecture: Architecture | None
) -> Profile:
    missing = [name for name in rule.needs if name not in measurement]
    if missing:
        raise InvalidValueError(
            f"measurement: variable {missing[0]!r} is missing, needed by the rule {rule.key!r}"
        )
    return Profile.from_weights(rule.weights(measurement, tokens, architecture))


def _left_out(
    measurement: "xr.Dataset", tokens: int, rule: str, architecture: Architecture | None
) -> tuple[str, ...]:
    """Why an extrapolated profile has no verdict; nothing where trials were won."""
    model, measured = str(measurement.attrs.get("model", "")), measurement.sizes["position"]
    said = [*_beyond(architecture, tokens), *_other_rope(measurement, architecture)]
    if architecture is not None and rule != "logits":
        said += _other_masks(measurement, architecture, tokens)
    depth = measurement.attrs.get("depth")
    layers = (
        ""
        if architecture is None or depth in (None, architecture.depth)
        else f"{depth} layers for {architecture.depth}"
    )
    if architecture is not None and (layers or not is_of(measurement, architecture)):
        about = ", ".join(filter(None, (model or "unnamed", layers)))
        said.append(f"what calibrating on another model ({about}) is worth")
    elif tokens > measured:
        times, longest = won_up_to(model, rule)
        if tokens > min(times * measured, longest):
            reach = f"surely won in trials to {times:g} times and {longest:,} tokens"
            tried = reach if times else "no trial surely won"
            said.append(f"what calibrating at {measured:,} tokens is worth at {tokens:,} ({tried})")
        elif (prompts := measurement.sizes["prompt"]) < TRIED:
            said.append(f"what calibrating with {prompts} prompts is worth (trials went on from {TRIED})")
    return tuple(said)


def _other_masks(measurement: "xr.Dataset", architecture: Architecture, tokens: int) -> list[str]:
    """Why there is no verdict where masks hide tokens at this length that were not seen to hide any.

    Raises `InvalidValueError` where the measured model has no such masks: its curve knows nothing of them.
    """
    masks = [layer.mask for layer in architecture.layers if not _sees_all(layer.mask, tokens)]
    held = json.loads(measurement.attrs.get("windows", "null"))
    model = str(measurement.attrs.get("model", ""))
    same = is_of(measurement, architecture) and model != BUNDLED.stem
    if held is not None:
        # configurations count the query itself or leave it out
        widths = [getattr(mask, "width", -math.inf) for mask in masks]
        same = all(any(abs(width - one) <= 1 for one in held.values()) for width in widths)
    titles = ", ".join(sorted({str(getattr(mask, "title", mask.kind)) for mask in masks}))
    if masks and not same:
        raise InvalidValueError(
            f"calibrate: expected a measurement of a model with the masks of the architecture ({titles}), got "
            f"{model or 'one of an unnamed model'} without; measure the model itself, or leave --calibrate out"
        )
    measured = measurement.sizes["position"]
    unseen = held is None or any(_sees_all(mask, measured) for mask in masks)
    return [f"{titles} (not at work in the {measured:,} tokens measured, or not known to be)"] * bool(
        masks and unseen
    )


def _sees_all(mask: Mask, tokens: int) -> bool:
    return is_causal(mask, tokens) or (isinstance(mask, Split) and len(mask.pieces(tokens)) == 1)


def _beyond(architecture: Architecture | None, tokens: int) -> list[str]:
    """That a model has no positions for so many tokens; nothing where it has, or it is not known."""
    encodings = () if architecture is None else (layer.positional for layer in architecture.layers)
    needy = (one for one in encodings if isinstance(one, NeedsMeasurement))
    return sorted({one.unknown_at(tokens)[0] for one in needy if one.positions and tokens > one.positions})


def _other_rope(measurement: "xr.Dataset", architecture: Architecture | None) -> list[str]:
    """What other rotary positions than were measured do; nothing where they are the same, or none are named."""
    measured = rope_words(json.loads(measurement.attrs.get("rope", "{}")))
    encodings = () if architecture is None else (layer.positional for layer in architecture.layers)
    asked = {one.rope for one in encodings if isinstance(one, NeedsMeasurement)} - {"", measured}
    beside = measured or "others, or the same: the measurement does not say"
    return [f"rotary positions of {one} (measured with {beside})" for one in sorted(asked)]


def is_of(measurement: "xr.Dataset", architecture: Architecture) -> bool:
    """Whether a measurement is of this architecture, by name, or by depth and heads where it has none."""
    attrs = measurement.attrs
    if architecture.name:
        return architecture.name == attrs.get("model")
    shape = (architecture.depth, max(layer.heads for layer in architecture.layers))
    return shape == (attrs.get("depth"), attrs.get("heads"))


# --- the rules ---------------------------------------------------------------------------------------------


def stretched(influence: Weights, tokens: int) -> Weights:
    """The curve by share of the context: each share has the mass it had. Sums to one."""
    return at_shares(influence / influence.sum(), tokens, total=True)


def continued(influence: Weights, tokens: int) -> Weights:
    """The curve by distance to the query: half of it as measured, beyond by a power law of the distance.

    The power is that of the least squares line through ln influence over ln distance between a tenth and a half of
    the measured length. What early positions had beyond it is dropped. Sums to one.
    """
    backwards = influence[::-1]
    measured = backwards.size
    near, half = max(2, int(FITTED.start * measured)), int(FITTED.stop * measured)
    distance = np.arange(near, half)
    slope, height = np.polyfit(np.log(distance), np.log(backwards[near:half]), 1)
    beyond = np.exp(height + slope * np.log(np.arange(half, tokens)))
    weights = np.concatenate([backwards[:half], beyond])[:tokens][::-1]
    return weights / weights.sum()


def _influence(measurement: "xr.Dataset") -> Weights:
    return measured_influence(measurement).mass


def _both(measurement: "xr.Dataset", tokens: int, architecture: Architecture | None = None) -> Weights:
    influence = _influence(measurement)
    if tokens == influence.size:
        return influence
    place = np.linspace(0.0, 1.0, tokens)
    weights = (1.0 - place) * stretched(influence, tokens) + place * continued(influence, tokens)
    return weights / weights.sum()


def along_ln(
    curve: Float[np.ndarray, "*batch position"], tokens: int, kept: float
) -> Float[np.ndarray, "..."]:
    """Curves over 0, 1, 2 … of which the share `kept` stands, continued by the line over ln from a quarter on."""
    measured = curve.shape[-1]
    low, high = measured // 4, int(kept * measured)
    x = np.log(np.arange(low, high))
    y = curve[..., low:high]
    centre, mean = x.mean(), y.mean(axis=-1, keepdims=True)
    slope = ((y - mean) * (x - centre)).sum(axis=-1, keepdims=True) / ((x - centre) ** 2).sum()
    beyond = mean + slope * (np.log(np.arange(high, tokens)) - centre)
    return np.concatenate([curve[..., :high], beyond], axis=-1)


def _logits(measurement: "xr.Dataset", tokens: int, architecture: Architecture | None = None) -> Weights:
    """The rollout of kernels whose logits by distance and in the first column are continued over ln.

    Position 0 then has what position 1 has: a sink's attention carries next to nothing. Beside the masks, one
    block of queries is held at a time.
    """
    distances, columns = (measurement[name].values for name in ("logits_distance", "logits_first_column"))
    masks = _masks(measurement, architecture)
    memory.require(tokens**2 * len(set(masks)), "tokens", tokens)
    admitted = {mask: mask.allowed(tokens) for mask in set(masks)}
    row = np.zeros(tokens)
    row[-1] = 1.0
    layers = zip(distances, columns, masks, measured_mixing(measurement), strict=True)
    for by_distance, column, mask, lam in reversed(list(layers)):
        table, first = _continued_logits(by_distance, column, tokens)
        row = (1.0 - lam) * row + lam * _through(row, table, first, admitted[mask])
    row[0] = row[min(1, tokens - 1)]
    return row


def _continued_logits(
    by_distance: Float[np.ndarray, "head distance"], column: Float[np.ndarray, "head query"], tokens: int
) -> tuple[Float[np.ndarray, "head distance"], Float[np.ndarray, "head query"]]:
    """Logits of a layer for a longer text; beyond a window they are NaN, as measured."""
    seen = np.isfinite(by_distance[:, 1:-1]).all()
    if not seen:
        longer = [(0, 0), (0, tokens - column.shape[-1])]
        return tuple(np.pad(one, longer, constant_values=np.nan) for one in (by_distance, column))  # type: ignore[return-value]
    return along_ln(by_distance, tokens, 0.9), along_ln(column, tokens, 1.0)


def _masks(measurement: "xr.Dataset", architecture: Architecture | None) -> Sequence[Mask]:
    depth = measurement.sizes["layer"]
    if architecture is None:
        return [Causal()] * depth
    if architecture.depth != depth:
        raise InvalidValueError(
            f"architecture: {architecture.depth} layers, the {depth} of the measurement needed"
        )
    return [layer.mask for layer in architecture.stack]


def _through(
    row: Weights,
    table: Float[np.ndarray, "head distance"],
    first: Float[np.ndarray, "head query"],
    allowed: Bool[np.ndarray, "query key"],
) -> Weights:
    """row · A, A the mean over heads of the softmax of logits by distance, with a first column of its own."""
    out = np.zeros(row.size)
    position = np.arange(row.size)
    for start in range(0, row.size, _BLOCK):
        query = position[start : start + _BLOCK]
        keys = position[: query[-1] + 1]
        distance = query[:, None] - keys
        for head, own in zip(table, first, strict=True):
            logits = head[np.maximum(distance, 0)]
            logits[:, 0] = own[query]
            seen = allowed[query][:, keys] & np.isfinite(logits)
            out[keys] += through(row[query], masked_softmax(logits, seen)) / len(table)
    return out


_RULES = (
    Rule(
        "both",
        "from stretched to continued",
        "the next two, weighed by place: the first token has what its share had, the last what its distance had",
        ("influence",),
        _both,
    ),
    Rule(
        "stretched",
        "stretched",
        "the measured curve by share of the context",
        ("influence",),
        lambda measurement, tokens, _: stretched(_influence(measurement), tokens),
    ),
    Rule(
        "continued",
        "continued",
        "the measured curve by distance to the query, beyond half of its length by a power law",
        ("influence",),
        lambda measurement, tokens, _: continued(_influence(measurement), tokens),
    ),
    Rule(
        "logits",
        "fitted logits, continued",
        "mean logits by distance and in the first column, continued linearly in the logarithm of distance and "
        "query; softmax per head, mixed by the measured λ; position 0 has what position 1 has",
        ("logits_distance", "logits_first_column", "mixing"),
        _logits,
    ),
)
RULES: Mapping[str, Rule] = {rule.key: rule for rule in _RULES}
"""The rules by key, the default first."""
