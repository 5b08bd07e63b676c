"""Five predictions of a measured model's influence, from nothing assumed to everything measured.

Each takes some of what was measured (never the influence itself) and gives the profile that its theory
expects. They differ in what they keep: the residual stream, content, the measured attention, the norms.

A measured curve can be taken apart by them (`chain`): between a uniform profile and the measured profile stand
predictions, each knowing more than the one before; the steps sum to the measured profile less uniform at
every position. The order is a choice: what a part adds depends on what was there before it.

A predictor takes statistics (λ, logits, attention, norms) of prompts, and the influence that it is held against is
of prompts too. Where they are the same prompts, what is peculiar to them is in both and flatters it. A measurement
therefore keeps the mean over prompts with even numbers in addition to the mean over all: `folds` predicts from one
half what is judged on the other.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from posbias.core.errors import wrong
from posbias.core.files import data_table
from posbias.profiles.measurements import EVEN, load_measurement
from posbias.profiles.profile import Profile, measured_influence, uniform
from posbias.profiles.summary import at_ends
from posbias.theory.rollout.kernel import masked_softmax, push, through

if TYPE_CHECKING:
    import xarray as xr

    from posbias.profiles.measurements import AnyMeasurement


@dataclass(frozen=True)
class Predictor:
    """A way to predict influence: `label` for a legend, `method` in a sentence or two, `source` to cite,
    `needs` the variables of a measurement that it uses, `chosen` how it was come by, where that flatters it."""

    key: str
    label: str
    method: str
    source: str
    needs: list[str]
    predict: Callable[["xr.Dataset"], Float[np.ndarray, "position"]]
    chosen: str = ""

    @property
    def both_ways(self) -> bool:
        """Whether it also predicts an encoder: not from logits by distance, which are of earlier keys alone."""
        return not any(name.endswith("_distance") for name in self.needs)


def predictions(measurement: "AnyMeasurement") -> dict[str, Profile]:
    """All predictors applied to a measurement, or its file: key → the profile expected of the last token.

    Of a model with layers that are no softmax attention `measured_kernels` alone: they have no logits. Raises
    `InvalidValueError` if the measurement lacks a variable that a predictor needs.
    """
    measurement = load_measurement(measurement)
    usable = [one for one in PREDICTORS if one.both_ways or not measurement.attrs.get("encoder")]
    if "layer_kinds" in measurement.attrs:
        usable = [one for one in PREDICTORS if one.key == "measured_kernels"]
    predicted = {}
    for one in usable:
        if missing := [name for name in one.needs if name not in measurement]:
            what = f"the variable {missing[0]!r} for the predictor {one.label!r}"
            raise wrong("measurement", what, got="none")
        weights = one.predict(measurement)
        predicted[one.key] = Profile.from_weights(weights, measures="rollout", predictor=one.label)
    return predicted


def measured_mixing(measurement: "xr.Dataset") -> Float[np.ndarray, "layer"]:
    """λ_t as the mean over prompts of Eq. (1), Herasimchyk et al. 2026."""
    return measurement["mixing"].values.mean(axis=0)


def last_row(measurement: "xr.Dataset") -> Float[np.ndarray, "position"]:
    """What a rollout starts from: all of the last token."""
    row = np.zeros(measurement.sizes["position"])
    row[-1] = 1.0
    return row


def _rolled(
    kernels: Callable[["xr.Dataset"], Iterator[Float[np.ndarray, "query key"]]],
    mixing: Callable[["xr.Dataset"], Float[np.ndarray, "layer"]] = measured_mixing,
) -> Callable[["xr.Dataset"], Float[np.ndarray, "position"]]:
    """The last row of the rollout of kernels, top layer first, with the mixing that goes with them."""
    return lambda measurement: push(last_row(measurement), kernels(measurement), mixing(measurement)[::-1])


def attention_kernels(measurement: "xr.Dataset") -> Iterator[Float[np.ndarray, "query key"]]:
    """Kernels, top layer first, as measured: attention averaged over prompts and heads.

    Rows of layers without a softmax, which have any sum, are divided by it.
    """
    kernels = measurement["kernel"].values.astype(np.float64)
    for kernel, kind in zip(kernels, json.loads(measurement.attrs.get("layer_kinds", "[]")), strict=False):
        if kind != "softmax":
            kernel /= kernel.sum(axis=1, keepdims=True)
    return iter(kernels[::-1])


def positional_kernels(measurement: "xr.Dataset") -> Iterator[Float[np.ndarray, "query key"]]:
    """Kernels, top layer first, from the logits by distance that the encoding alone adds."""
    for logits in measurement["positional_distance"].values[::-1]:
        yield averaged(by_distance(logits))


def fitted_kernels(measurement: "xr.Dataset") -> Iterator[Float[np.ndarray, "query key"]]:
    """Kernels, top layer first, from mean logits by distance (diagonal included) and the first column."""
    distances = measurement["logits_distance"].values
    columns = measurement["logits_first_column"].values
    for logits, column in zip(distances[::-1], columns[::-1], strict=True):
        full = by_distance(logits)
        full[..., 0] = column
        yield averaged(full)


def by_distance(logits: Float[np.ndarray, "head distance"]) -> Float[np.ndarray, "head query key"]:
    """Logits for every pair from logits by distance.

    The longest distance occurs only in the first column, which the averages leave out: it takes the value
    of its neighbour.
    """
    logits = logits.copy()
    if logits.shape[-1] > 1 and np.isnan(logits[..., -1]).all():
        logits[..., -1] = logits[..., -2]
    position = np.arange(logits.shape[-1])
    return logits[..., np.maximum(position[:, None] - position[None, :], 0)]


def averaged(logits: Float[np.ndarray, "head query key"]) -> Float[np.ndarray, "query key"]:
    """The mean over heads of the softmax over earlier keys; those beyond a layer's window have no logit."""
    seen = np.tri(logits.shape[-1], dtype=bool) & np.isfinite(logits).any(axis=0)
    return masked_softmax(logits, seen).mean(axis=0)


def _energy(measurement: "xr.Dataset") -> np.ndarray:
    row = last_row(measurement)
    for kernel in measurement["energy_kernel"].values[::-1].astype(np.float64):
        row = row + through(row, kernel)
    return np.sqrt(row)


_PREDICT = {
    "attention_only": _rolled(positional_kernels, lambda measurement: np.ones(measurement.sizes["layer"])),
    "positional": _rolled(positional_kernels),
    "fitted": _rolled(fitted_kernels),
    "measured_kernels": _rolled(attention_kernels),
    "energy": _energy,
}
_HELD = data_table(__file__)
PREDICTORS = tuple(Predictor(key, predict=_PREDICT[key], **row) for key, row in _HELD["predictors"].items())
"""The predictors in the order of what they keep; the keys are stable names."""


# --- a measured curve by parts ---------------------------------------------------------------------------------

LABELS: dict[str, str] = _HELD["labels"]
"""What each step adds, in the order of the chain."""
USED = frozenset({"positional", "fitted", "energy"})
"""The predictors that stand in it."""
STRETCHES = ("first 5 %", "between", "last 5 %")


def chain(measurement: "xr.Dataset", predicted: Mapping[str, Profile] | None = None) -> dict[str, Profile]:
    """Seven profiles, from a uniform profile to the measured one, each knowing more than the one before.

    `predicted` are the measurement's `predictions`, if they are at hand. Raises as `predictions`.
    """
    found = predictions(measurement) if predicted is None else predicted
    mixing = measured_mixing(measurement)
    return {
        "even": uniform(measurement.sizes["position"]),
        "mask": _even_attention(measurement, np.ones_like(mixing)),
        "residual": _even_attention(measurement, mixing),
        "encoding": found["positional"],
        "content": found["fitted"],
        "norms": found["energy"],
        "measured": measured_influence(measurement),
    }


def shares(chain: Mapping[str, Float[np.ndarray, "position"]]) -> dict[str, list[float]]:
    """What each profile of a chain has on the first 5 % of positions, on those between, and on the last 5 %."""
    rows: dict[str, list[float]] = {name: [] for name in STRETCHES}
    for mass in chain.values():
        ends = at_ends(mass.size)
        for name, part in zip(STRETCHES, (mass[:ends], mass[ends:-ends], mass[-ends:]), strict=True):
            rows[name].append(float(part.sum()))
    return rows


def _even_attention(measurement: "xr.Dataset", mixing: Float[np.ndarray, "layer"]) -> Profile:
    """The rollout of attention spread evenly over what each layer's mask, that of all heads, lets a query see."""
    logits = measurement["positional_distance"].values[::-1]
    seen = (np.isfinite(one).any(axis=0, keepdims=True) for one in logits)
    kernels = (averaged(by_distance(np.where(one, 0.0, np.nan))) for one in seen)
    return Profile.from_weights(push(last_row(measurement), kernels, mixing[::-1]), measures="rollout")


# --- predictions from one half of the prompts, to be judged on the other ----------------------------------------


@dataclass(frozen=True, eq=False)
class Fold:
    """Predictions by name, and the prompts to judge them on: rows of the measured profile's `samples`."""

    predictions: Mapping[str, Profile]
    judged: Int[np.ndarray, "prompt"]


def folds(
    measurement: "xr.Dataset",
    predict: Callable[["xr.Dataset"], Mapping[str, Profile]] = predictions,
    needs: str = "energy_kernel",
) -> tuple[Fold, ...]:
    """What `predict` makes of either half of the prompts, to be judged on the other half.

    Empty where the measurement does not keep `needs` by halves, or where a half has
    fewer than two prompts.
    """
    even = measurement["prompt"].values % 2 == 0
    if needs + EVEN not in measurement or min(even.sum(), (~even).sum()) < 2:
        return ()
    return tuple(Fold(predict(half(measurement, own)), np.flatnonzero(even != own)) for own in (True, False))


def half(measurement: "xr.Dataset", even: bool) -> "xr.Dataset":
    """The measurement of the prompts with even numbers, or with odd ones.

    It has what is kept of single prompts and of halves, and what is of the model alone; nothing else, so that no
    statistic of the other half can be used by mistake.
    """
    number = measurement["prompt"].values
    share = float((number % 2 == 0).mean())
    names = [str(name).removesuffix(EVEN) for name in measurement.data_vars if str(name).endswith(EVEN)]
    kept = {name: measurement[name + EVEN] for name in names}
    if not even:
        kept = {name: (measurement[name] - share * one) / (1 - share) for name, one in kept.items()}
    single = [name for name, one in measurement.data_vars.items() if "prompt" in one.dims]
    single += ["head_gain"] * ("head_gain" in measurement)  # of the model alone
    rows = np.flatnonzero((number % 2 == 0) == even)
    return measurement[single].isel(prompt=rows).assign(kept)
