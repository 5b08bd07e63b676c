"""A measured curve by parts: what mask, residual connections, encoding, content, norms and the rest add to it.

Between an even spread and the measured profile stand predictions, each knowing more than the one before; the steps
sum to the measured profile less the even spread at every position. The order is a choice: what a part adds depends
on what was there before it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.comparison.predictors import averaged, by_distance, last_row, measured_mixing, predictions
from posbias.profiles.influence import measured_influence
from posbias.profiles.profile import Profile, uniform
from posbias.theory.rollout.kernel import push

if TYPE_CHECKING:
    import xarray as xr

LABELS = {
    "mask": "mask",
    "residual": "+ residual (λ measured)",
    "encoding": "+ encoding",
    "content": "+ content (fitted logits)",
    "norms": "+ norms (energy rollout)",
    "measured": "the rest",
}
"""What each step adds, in the order of the chain."""
USED = frozenset({"positional", "fitted", "energy"})
"""The predictors that stand in it."""
ENDS = 0.05
STRETCHES = ("first 5 %", "between", "last 5 %")


def chain(measurement: "xr.Dataset", predicted: Mapping[str, Profile] | None = None) -> dict[str, Profile]:
    """Seven profiles, from an even spread to the measured one, each knowing more than the one before.

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
        ends = max(1, round(ENDS * mass.size))
        for name, part in zip(STRETCHES, (mass[:ends], mass[ends:-ends], mass[-ends:]), strict=True):
            rows[name].append(float(part.sum()))
    return rows


def _even_attention(measurement: "xr.Dataset", mixing: Float[np.ndarray, "layer"]) -> Profile:
    """The rollout of attention spread evenly over what each layer's mask, that of all heads, lets a query see."""
    logits = measurement["positional_distance"].values[::-1]
    seen = (np.isfinite(one).any(axis=0, keepdims=True) for one in logits)
    kernels = (averaged(by_distance(np.where(one, 0.0, np.nan))) for one in seen)
    return Profile.from_weights(push(last_row(measurement), kernels, mixing[::-1]), measures="rollout")
