"""A finished measurement as labelled arrays: the dataset that `docs/measurement.md` fixes."""

import datetime
import json
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from posbias.measure.accumulate import State

# name → (dimensions, what it is, unit); the order of the dataset
_ROWS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "influence": (("prompt", "position"), "gradient influence on the last prediction, not normalised", "1"),
    "probability": (("prompt",), "probability of the predicted next token", "1"),
    "next_token": (("prompt",), "predicted next token", "1"),
    "loss": (("prompt",), "mean next-token cross-entropy", "nat"),
    "mixing": (("prompt", "layer"), "weight of attention, Frobenius norms over the sequence", "1"),
    "mixing_token": (
        ("prompt", "layer"),
        "weight of attention, mean over tokens of the per-token ratio",
        "1",
    ),
}
_MEANS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "residual_norm": (("layer", "position"), "norm of the residual stream entering the layer", "1"),
    "update_norm": (("layer", "position"), "norm of the attention update as added", "1"),
    "logits_distance": (("layer", "head", "distance"), "mean logit by distance, keys from 1", "1"),
    "logits_diagonal": (("layer", "head", "position"), "logit of a token to itself", "1"),
    "logits_first_column": (("layer", "head", "position"), "logit of a query to token 0", "1"),
    "positional_distance": (
        ("layer", "head", "distance"),
        "mean logit minus rotation-free logit, keys from 1",
        "1",
    ),
    "kernel": (("layer", "query", "key"), "attention, mean over prompts and heads", "1"),
    "sink_share": (("layer", "head"), "attention received by token 0, mean over later queries", "1"),
    "energy_kernel": (("layer", "query", "key"), "expected squared Jacobian gain of attention", "1"),
    "logits": (("layer", "head", "query", "key"), "mean logit, NaN where masked", "1"),
}
_GAIN = (("layer", "head"), "squared gain of value and output projections per model dimension", "1")


def dataset(
    state: State, gains: Float[np.ndarray, "layer head"], sizes: dict[str, int], attributes: dict[str, Any]
) -> xr.Dataset:
    """Return the measurement of a finished `state`.

    `sizes` gives tokens, prompts, depth and heads; `attributes` are strings, numbers, or nested values that
    become JSON. The dataset takes over the arrays of `state`.
    """
    tokens = sizes["tokens"]
    lengths = {"prompt": sizes["prompts"], "layer": sizes["depth"], "head": sizes["heads"]}
    lengths |= dict.fromkeys(("position", "query", "key", "distance"), tokens)
    variables = {name: _variable(state.column(name), about) for name, about in _ROWS.items()}
    variables |= {
        name: _variable(state.means[name], about) for name, about in _MEANS.items() if name in state.means
    }
    variables["head_gain"] = _variable(gains, _GAIN)
    fixed = {"posbias_kind": "measurement", "schema": 1}
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return xr.Dataset(
        variables,
        coords={name: np.arange(length) for name, length in lengths.items()},
        attrs={name: _plain(value) for name, value in (fixed | attributes | {"created": created}).items()},
    )


def _variable(values: np.ndarray, about: tuple[tuple[str, ...], str, str]) -> xr.Variable:
    dimensions, what, unit = about
    return xr.Variable(dimensions, values, {"long_name": what, "units": unit})


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, (str, int, float)) else json.dumps(value)
