"""A finished measurement as labelled arrays: the dataset that `docs/measurement.md` fixes."""

import datetime
import json
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias.measurement.accumulate import EVEN, State
from posbias.profiles.labelled import Measurement
from posbias.profiles.stochastic_order import TOLERANCES, noise_floor, violations

_About = tuple[tuple[str, ...], str, str]
_BY_LAYER, _BY_HEAD = ("prompt", "layer"), ("layer", "head")
_BY_DISTANCE, _BY_POSITION = (*_BY_HEAD, "distance"), (*_BY_HEAD, "position")
_INFLUENCE = ("prompt", "position")

# name → (dimensions, what it is, unit); the order of the dataset
_ABOUT: dict[str, _About] = {
    "influence": (_INFLUENCE, "gradient influence on the last prediction, not normalised", "1"),
    "influence_logit": (_INFLUENCE, "norm of the gradient of the predicted token's logit", "1"),
    "influence_log_probability": (_INFLUENCE, "norm of the gradient of its log-probability", "1"),
    "influence_target": (_INFLUENCE, "norm of the gradient of the target token's probability", "1"),
    "influence_input": (_INFLUENCE, "gradient times input, absolute value", "1"),
    "influence_outputs": (_INFLUENCE, "gradient influence on the prediction at each position, mean", "1"),
    "rollout_kernel": (_INFLUENCE, "last row of the residual-aware rollout of this prompt", "1"),
    "rollout_value": (_INFLUENCE, "the same, attention weighted by the norms of what heads pass on", "1"),
    "rollout_energy": (_INFLUENCE, "square root of the last row of the energy rollout", "1"),
    "probability": (("prompt",), "probability of the token predicted last", "1"),
    "next_token": (("prompt",), "token predicted last: the next one, an encoder's the one there", "1"),
    "target_probability": (("prompt",), "probability of the target token", "1"),
    "target_token": (("prompt",), "target token", "1"),
    "loss": (("prompt",), "mean next-token cross-entropy", "nat"),
    "mixing": (_BY_LAYER, "weight of attention, Frobenius norms over the sequence", "1"),
    "mixing_token": (_BY_LAYER, "weight of attention, mean over tokens of the per-token ratio", "1"),
    "mixing_head": ((*_BY_LAYER, "head"), "each head's part of the weight of attention", "1"),
    "feed_forward_share": (_BY_LAYER, "part of a layer's updates that the feed-forward block adds", "1"),
    "massive_ratio": (_BY_LAYER, "largest norm of the residual stream over the median one", "1"),
    "massive_token": (_BY_LAYER, "position of the largest norm, -1 where a layer was not seen", "1"),
    "residual_norm": (("layer", "position"), "norm of the residual stream entering the layer", "1"),
    "update_norm": (("layer", "position"), "norm of the attention update as added", "1"),
    "logits_distance": (_BY_DISTANCE, "mean logit by distance, keys from 1", "1"),
    "logits_diagonal": (_BY_POSITION, "logit of a token to itself", "1"),
    "logits_first_column": (_BY_POSITION, "logit of a query to token 0", "1"),
    "positional_distance": (_BY_DISTANCE, "mean logit minus content logit by distance, keys from 1", "1"),
    "content_mean": (_BY_HEAD, "mean content logit of earlier keys, from 1", "1"),
    "content_variance": (_BY_HEAD, "its variance over pairs and prompts", "1"),
    "content_distance": (_BY_DISTANCE, "mean content logit by distance, keys from 1", "1"),
    "content_distance_variance": (_BY_DISTANCE, "its variance over pairs and prompts", "1"),
    "content_diagonal": (_BY_POSITION, "content logit of a token to itself", "1"),
    "content_first_column": (_BY_POSITION, "content logit of a query to token 0", "1"),
    "constant_diagonal_r2": (_BY_HEAD, "mean R² of a constant and a diagonal in a prompt's content", "1"),
    "sink_share": (_BY_HEAD, "attention received by token 0, mean over later queries", "1"),
    "attention_received": (_BY_POSITION, "attention received, mean over queries that see the key", "1"),
    "sink_metric": (_BY_POSITION, "share of the queries seeing a key that give it more than .2", "1"),
    "missing_mass": (_BY_HEAD, "one minus the row sums of attention: what learned sinks take", "1"),
    "energy_kernel": (("layer", "query", "key"), "expected squared Jacobian gain of attention", "1"),
    "kernel_head": ((*_BY_HEAD, "query", "key"), "attention, mean over prompts", "1"),
    "logits": ((*_BY_HEAD, "query", "key"), "mean logit, NaN where masked", "1"),
    "content": ((*_BY_HEAD, "query", "key"), "mean content logit, NaN where masked", "1"),
    "kernel": (("layer", "query", "key"), "attention, mean over prompts and heads", "1"),
    "monotonicity_rate": (("layer", "tolerance"), "share of triples whose prefix mass rises", "1"),
    "monotonicity_gap": (("layer",), "mean rise of the prefix mass where it rises", "1"),
    "monotonicity_floor": (("layer",), "rate of rises expected from sampling noise alone", "1"),
    "head_gain": (_BY_HEAD, "squared gain of value and output projections per model dimension", "1"),
}


def dataset(
    state: State,
    gains: Float[np.ndarray, "layer head"] | None,
    attributes: dict[str, Any],
) -> xr.Dataset:
    """Return the measurement of a finished `state`, with what its prompts do not lack.

    `gains` are the head gains of the energy kernel, None where there are none; `attributes` are strings, numbers,
    or nested values that become JSON, among them `tokens`, `depth` and `heads`. The dataset takes over the arrays
    of `state`.
    """
    coordinates = {"prompt": state.column("index")}  # prompts that were skipped are missing
    coordinates |= {"layer": np.arange(attributes["depth"]), "head": np.arange(attributes["heads"])}
    coordinates |= {
        name: np.arange(attributes["tokens"]) for name in ("position", "query", "key", "distance")
    }
    values = {name: state.column(name) for name in state.rows[0]} | state.means
    about = _ABOUT | {name + EVEN: _of_even(name) for name in state.even()}
    kernel = state.kernel()
    if kernel is not None:
        values["kernel"] = kernel
    if kernel is not None and not attributes.get("encoder"):
        values |= _monotonicity(kernel, state)
        coordinates["tolerance"] = np.array(TOLERANCES)
    if gains is not None:
        values["head_gain"] = gains
    variables = {
        name: xr.Variable(dimensions, values[name], {"long_name": what, "units": unit})
        for name, (dimensions, what, unit) in about.items()
        if name in values
    }
    fixed = {"posbias_kind": "measurement", "schema": 1}
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Measurement(
        variables,
        coords=coordinates,
        attrs={name: _plain(value) for name, value in (fixed | attributes | {"created": created}).items()},
    )


def _of_even(name: str) -> _About:
    """What the mean over even prompts is, of a variable that has one."""
    dimensions, what, unit = _ABOUT[name]
    return dimensions, f"{what}; of prompts with even numbers alone", unit


def _monotonicity(kernel: Float[np.ndarray, "layer query key"], state: State) -> dict[str, np.ndarray]:
    """Violations of Assumption 4.1 in each layer; NaN for layers without a kernel, and floors of one prompt."""
    halves, share = state.halves(), state.share_of_even()
    rate = np.full((len(kernel), len(TOLERANCES)), np.nan)
    gap, floor = np.full(len(kernel), np.nan), np.full(len(kernel), np.nan)
    for layer, seen in enumerate(kernel):
        if np.isfinite(seen).all() and (seen.sum(axis=1) > 0).all():
            found = violations(seen)
            rate[layer], gap[layer] = found.rate, found.gap
            if halves is not None:
                floor[layer] = noise_floor(halves[0][layer], halves[1][layer], share)
    return {"monotonicity_rate": rate, "monotonicity_gap": gap, "monotonicity_floor": floor}


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, (str, int, float)) else json.dumps(value)
