"""A model's influence at a length at which it was not measured, from a measurement at a shorter one.

    measurement = posbias.load_measurement("results/smollm2-135m-512x32/measurement.nc")
    posbias.extrapolate(measurement, tokens=2048).summary

Queries and keys decide what a rotary model favours, so that no theory gives its profile from the configuration
alone. Two things may stay when a context grows: what a share of the context has, or what stands at a distance from
the query. The default goes from the one at the beginning to the other at the end. `extrapolation.toml` holds how
each rule fared on models that were measured at both lengths. Only where a rule was surely better there than a
uniform profile and than the stretched curve, and its verdict right, does a profile have a verdict.
"""

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from pydantic import TypeAdapter

from posbias.core import machine
from posbias.core.errors import one_of, wrong
from posbias.core.files import data_table
from posbias.profiles.calibration import Calibration, ExtrapolationTrial
from posbias.profiles.curves import at_shares
from posbias.profiles.measurements import BUNDLED, load_measurement
from posbias.profiles.profile import Profile, measured_influence
from posbias.theory.architecture import Architecture
from posbias.theory.configs import AnyArchitecture, load_architecture
from posbias.theory.huggingface_families import rope_words
from posbias.theory.masks import Mask, Split, is_causal
from posbias.theory.positional import NeedsMeasurement

if TYPE_CHECKING:
    import xarray as xr

    from posbias.profiles.measurements import AnyMeasurement

Weights = Float[np.ndarray, "position"]
Continued = Float[np.ndarray, "longer"]
"""Weights of a text of another length."""
FITTED = slice(0.1, 0.5)
"""Between these shares of the measured length, counted back from the query, a power law is fitted."""
LEAST = 32
"""Tokens that a measurement must have: on fewer nothing can be fitted."""
TRIED = 32
"""The prompts of every measurement that trials went on from; with fewer there is no verdict."""


def extrapolate(
    measurement: "AnyMeasurement",
    tokens: int,
    rule: str = "both",
    architecture: AnyArchitecture | None = None,
) -> Profile:
    """The influence expected on the last of `tokens` tokens of a model that was measured on fewer.

    `measurement`: one, or what `load_measurement` reads.
    `rule` is the key of one of `RULES`. With `architecture`, another name or shape than the measured model's makes
    this a stand-in, and masks that the measured model has not are refused.
    The profile says by what (`calibration`). No verdict (`left_out`) for a stand-in, for another rotary base or
    scaling than was measured (taken to change nothing), beyond the factor and the tokens to which every trial of
    this model was surely won, and from fewer than 32 prompts.

    Raises `InvalidValueError` for a measurement of an encoder, an unknown rule, fewer tokens than were measured,
    fewer than 32 measured, or more than memory holds.
    """
    one_of("rule", rule, RULES)
    measurement = load_measurement(measurement)
    if measurement.attrs.get("encoder"):
        raise wrong("measurement", "one of a causal model to extrapolate", got="one of an encoder")
    measured = measurement.sizes["position"]
    if measured < LEAST:
        raise wrong("measurement", f"{LEAST} tokens or more to extrapolate", measured)
    if tokens < measured:
        raise wrong("tokens", f"the {measured} of the measurement or more", tokens)
    machine.length("tokens", tokens, each=64)
    other = None if architecture is None else load_architecture(architecture)
    left_out = _left_out(measurement, tokens, rule, other)
    profile = Profile.from_weights(RULES[rule](measured_influence(measurement).mass, tokens))
    model, text = (str(measurement.attrs.get(name, "")) for name in ("model", "text"))
    trial = nearest_trial(model, measured, tokens)
    calibration = Calibration(model, text, measured, rule, trial)
    return replace(profile, measures="extrapolated", calibration=calibration, exact=False, left_out=left_out)


def _left_out(
    measurement: "xr.Dataset", tokens: int, rule: str, architecture: Architecture | None
) -> tuple[str, ...]:
    """Why an extrapolated profile has no verdict; nothing where trials were won."""
    model, measured = str(measurement.attrs.get("model", "")), measurement.sizes["position"]
    if architecture is None:
        said = []
    else:
        said = [*_beyond(architecture, tokens), *_other_rope(measurement, architecture)]
        said += _other_masks(measurement, architecture, tokens)
        depth = measurement.attrs.get("depth")
        layers = "" if depth in (None, architecture.depth) else f"{depth} layers for {architecture.depth}"
        if layers or not is_of(measurement, architecture):
            about = ", ".join(filter(None, (model or "unnamed", layers)))
            return (*said, f"what calibrating on another model ({about}) is worth")
    if tokens > measured:
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
        got = f"{model or 'one of an unnamed model'} without; measure the model itself, or leave --calibrate out"
        what = f"a measurement of a model with the masks of the architecture ({titles})"
        raise wrong("calibrate", what, got=got)
    measured = measurement.sizes["position"]
    unseen = held is None or any(_sees_all(mask, measured) for mask in masks)
    what = f"{titles} (not at work in the {measured:,} tokens measured, or not known to be)"
    return [what] if masks and unseen else []


def _sees_all(mask: Mask, tokens: int) -> bool:
    return is_causal(mask, tokens) or (isinstance(mask, Split) and len(mask.pieces(tokens)) == 1)


def _beyond(architecture: Architecture, tokens: int) -> list[str]:
    """That a model has no positions for so many tokens; nothing where it has, or it is not known."""
    shorter = [one for one in _unknown(architecture) if 0 < (one.positions or 0) < tokens]
    return sorted({one.unknown_at(tokens)[0] for one in shorter})


def _other_rope(measurement: "xr.Dataset", architecture: Architecture) -> list[str]:
    """What other rotary positions than were measured do; nothing where they are the same, or none are named."""
    measured = rope_words(json.loads(measurement.attrs.get("rope", "{}")))
    asked = {one.rope for one in _unknown(architecture)} - {"", measured}
    held = measured or "others, or the same: the measurement does not say"
    return [f"rotary positions of {one} (measured with {held})" for one in sorted(asked)]


def _unknown(architecture: Architecture) -> Iterator[NeedsMeasurement]:
    """The encodings that a configuration does not determine."""
    encodings = (layer.positional for layer in architecture.layers)
    return (one for one in encodings if isinstance(one, NeedsMeasurement))


def is_of(measurement: "xr.Dataset", architecture: Architecture) -> bool:
    """Whether a measurement is of this architecture, by name, or by depth and heads where it has none."""
    attrs = measurement.attrs
    if architecture.name:
        return architecture.name == attrs.get("model")
    shape = (architecture.depth, max(layer.heads for layer in architecture.layers))
    return shape == (attrs.get("depth"), attrs.get("heads"))


# --- the rules ---------------------------------------------------------------------------------------------


def stretched(influence: Weights, tokens: int) -> Continued:
    """The curve by share of the context: each share has the mass it had. Sums to one."""
    return at_shares(influence / influence.sum(), tokens, total=True)


def continued(influence: Weights, tokens: int) -> Continued:
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


def both(influence: Weights, tokens: int) -> Continued:
    """Weighed by place: the first token has what its share of the context had, the last what its distance had."""
    if tokens == influence.size:
        return influence
    place = np.linspace(0.0, 1.0, tokens)
    weights = (1.0 - place) * stretched(influence, tokens) + place * continued(influence, tokens)
    return weights / weights.sum()


RULES: Mapping[str, Callable[[Weights, int], Continued]] = {
    "both": both,
    "stretched": stretched,
    "continued": continued,
}
"""The rules by key, the default first: what each makes of the measured influence at another length."""


# --- trials of the rules -----------------------------------------------------------------------------------------


def nearest_trial(model: str, measured: int, tokens: int) -> ExtrapolationTrial | None:
    """The trial of a model that is nearest by both lengths, in their ratios; None without any."""

    def apart(trial: ExtrapolationTrial) -> float:
        return abs(np.log(trial.measured / measured)) + abs(np.log(trial.tokens / tokens))

    return min((trial for trial in trials() if trial.model == model), key=apart, default=None)


def won_up_to(model: str, rule: str) -> tuple[float, int]:
    """Up to how many times the measured length, and up to how many tokens, a rule surely won every trial.

    Zeros where the first was lost, or there is none.
    """
    tried = [trial for trial in trials() if trial.model == model]
    lost = min((trial.factor for trial in tried if not trial.surely(rule)), default=np.inf)
    won = [(trial.factor, trial.tokens) for trial in tried if trial.factor < lost]
    return max((factor for factor, _ in won), default=0.0), max((tokens for _, tokens in won), default=0)


@functools.cache
def trials() -> tuple[ExtrapolationTrial, ...]:
    """All trials, from `extrapolation.toml`."""
    return TypeAdapter(tuple[ExtrapolationTrial, ...]).validate_python(data_table(__file__)["trial"])
