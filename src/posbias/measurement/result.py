"""What a measurement consists of: its quantities, their sums over prompts, and the finished dataset.

A `Quantity` says its dimensions, and with them how prompts are put together. What has the dimension `prompt` first
is kept of every prompt; of all else the sum over prompts is kept (`State`), and their mean goes into the dataset.
Sums are in float64; variances over pairs and prompts are pooled by Chan's update.

Of what predictions rest on, the mean over prompts with even numbers is kept in addition to that over all: a
prediction from one half of the prompts can be judged on the other, and what the halves of a kernel disagree by is
the sampling noise of the whole (`stochastic_order.noise_floor`).
"""

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.core.progress import Deferred
from posbias.core.store import Tensors
from posbias.profiles.measurements import EVEN, HALVES, ODD, QUANTITIES, Quantities
from posbias.profiles.measurements import Quantity as Quantity

if TYPE_CHECKING:
    import xarray as xr

Arrays = dict[str, np.ndarray]

OF_STATES = ("layers", "attention", "feed_forward")
"""Influences by tensors of each layer (`SeenLayer.live`)."""
_KINDS = ("logit", "log_probability", "target", "input", "outputs", *OF_STATES, "softmax", "others")
INFLUENCES = {"probability": "influence", **{kind: f"influence_{kind}" for kind in _KINDS}}
"""What can be differentiated, and the name of the result among a measurement's variables."""
WHOLE_GRAPH = frozenset({"outputs", "softmax", "others"})
"""Those whose layers cannot be computed again in the backward pass."""
ROLLOUTS = {"kernel": "rollout_kernel", "value": "rollout_value", "energy": "rollout_energy"}
"""The rollouts, and their names among a measurement's variables."""


@dataclass
class State:
    """The finished prompts: `rows` by their numbers, in order, `sums` over them, and the `seconds` they took."""

    quantities: Quantities = field(default_factory=lambda: QUANTITIES)
    rows: dict[int, Arrays] = field(default_factory=dict)
    sums: Arrays = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, index: int, found: Arrays, seconds: float) -> None:
        """Add what was found in the prompt with this number; an interruption waits until all of it is added."""
        row = {name: values for name, values in found.items() if self.quantities[name].by_prompt}
        half = ODD if index % 2 else EVEN
        sums = {name: values for name, values in found.items() if name not in row}
        sums = {name + half * self.quantities[name].halved: values for name, values in sums.items()}
        self.merge(State(self.quantities, {index: row}, sums, seconds))

    def merge(self, other: "State") -> None:
        """Add the prompts of another state, which must be different ones; its arrays are used up."""
        ours, theirs = len(self.rows), len(other.rows)
        with Deferred():
            for name in self.sums.keys() & other.sums.keys() & self.quantities.keys():
                if about := self.quantities[name].about:
                    apart = self._total(about) / ours - other._total(about) / theirs
                    self.sums[name] += apart**2 * (ours * theirs / (ours + theirs))
            for name, values in other.sums.items():
                if name in self.sums:
                    self.sums[name] += values
                else:
                    self.sums[name] = values
            self.rows = dict(sorted((self.rows | other.rows).items()))
            self.seconds += other.seconds

    def _total(self, name: str) -> np.ndarray:
        return np.sum([self.sums[name + half] for half in ("", *HALVES) if name + half in self.sums], axis=0)

    def column(self, name: str) -> np.ndarray:
        """One quantity of all rows, stacked along a first axis: the prompts."""
        return np.stack([row[name] for row in self.rows.values()])

    def means(self) -> Arrays:
        """The means over all prompts, and those over even ones where there are odd ones too.

        Sums become means where they are: kernels are large.
        """
        found: Arrays = {}
        for name in self.quantities:
            whole, even, odd = (self.sums.pop(name + half, None) for half in ("", *HALVES))
            if even is not None and odd is not None:
                whole = odd
                whole += even
                even /= sum(index % 2 == 0 for index in self.rows)
                found[name + EVEN] = even
            kept = next((values for values in (whole, even, odd) if values is not None), None)
            if kept is not None:
                kept /= len(self.rows)
                found[name] = kept
        return found

    def tensors(self) -> Tensors:
        """All of it, for a checkpoint; without finished prompts nothing."""
        first = next(iter(self.rows.values()), {})
        arrays = {f"row.{name}": self.column(name) for name in first}
        arrays |= {f"sum.{name}": values for name, values in self.sums.items()}
        return Tensors(arrays, {"prompts": [*self.rows], "seconds": self.seconds} if first else {})

    @classmethod
    def of(cls, stored: Tensors, quantities: Quantities) -> "State":
        """The state that `tensors` gave."""
        columns, sums = (
            {
                name.removeprefix(kind): np.array(array)
                for name, array in stored.arrays.items()
                if name.startswith(kind)
            }
            for kind in ("row.", "sum.")
        )
        rows = {
            index: {name: column[place] for name, column in columns.items()}
            for place, index in enumerate(stored.note["prompts"])
        }
        return cls(quantities, rows, sums, stored.note["seconds"])


def variables(values: Arrays, quantities: Quantities = QUANTITIES) -> "dict[str, xr.Variable]":
    """Those of `values` that are quantities as labelled variables, in the order of `quantities`."""
    import xarray as xr

    halves = {
        name + EVEN: replace(quantity, what=f"{quantity.what}; of prompts with even numbers alone")
        for name, quantity in quantities.items()
        if quantity.halved
    }
    return {
        name: xr.Variable(one.dimensions, values[name], {"long_name": one.what, "units": one.unit})
        for name, one in {**quantities, **halves}.items()
        if name in values
    }


def attributes(kind: str, attrs: Mapping[str, Any]) -> dict[str, str | int | float]:
    """What a dataset says of itself: strings and numbers as they are, all else as JSON, and when it was made."""
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    fixed = {"posbias_kind": kind, "schema": 1}
    return {
        name: value if isinstance(value, (str, int, float)) else json.dumps(value)
        for name, value in (fixed | {**attrs} | {"created": created}).items()
    }


def dataset(
    state: State, gains: Float[np.ndarray, "layer head"] | None, attrs: Mapping[str, Any]
) -> "xr.Dataset":
    """The measurement of a finished `state`, whose sums are used up.

    `gains` are the head gains of the energy kernel, None where there are none; `attrs` are its attributes, among
    them `tokens`, `depth` and `heads`.
    """
    from posbias.profiles.labelled import Measurement
    from posbias.profiles.stochastic_order import TOLERANCES

    sizes = {"layer": attrs["depth"], "head": attrs["heads"]}
    sizes |= dict.fromkeys(("position", "query", "key", "distance"), attrs["tokens"])
    coordinates = {"prompt": np.array([*state.rows])}  # prompts that were skipped are missing
    coordinates |= {name: np.arange(size) for name, size in sizes.items()}
    values = {} if attrs.get("encoder") else _monotonicity(state)
    if values:
        coordinates["tolerance"] = np.array(TOLERANCES)
    values |= {name: state.column(name) for name in next(iter(state.rows.values()))} | state.means()
    if gains is not None:
        values["head_gain"] = gains
    return Measurement(variables(values), coords=coordinates, attrs=attributes("measurement", attrs))


def _monotonicity(state: State) -> Arrays:
    """Violations of Assumption 4.1 by layer, and the rate that noise alone makes, from the halves of the prompts.

    NaN for layers without a kernel, or a half of it; nothing where no kernels are kept.
    """
    from posbias.profiles.stochastic_order import TOLERANCES, noise_floor, violations

    sums = [state.sums[f"kernel{half}"] for half in HALVES if f"kernel{half}" in state.sums]
    if not sums:
        return {}
    prompts, even = len(state.rows), sum(index % 2 == 0 for index in state.rows)
    rate = np.full((len(sums[0]), len(TOLERANCES)), np.nan)
    gap, floor = np.full((2, len(rate)), np.nan)
    for layer, halves in enumerate(zip(*sums, strict=True)):
        if _whole(kernel := np.add.reduce(halves) / prompts):
            found = violations(kernel)
            rate[layer], gap[layer] = found.rate, found.gap
        if len(halves) == 2:
            kernels = halves[0] / even, halves[1] / (prompts - even)
            if all(map(_whole, kernels)):
                floor[layer] = noise_floor(*kernels, even / prompts)
    return {"monotonicity_rate": rate, "monotonicity_gap": gap, "monotonicity_floor": floor}


def _whole(kernel: Float[np.ndarray, "query key"]) -> bool:
    return bool(np.isfinite(kernel).all() and (kernel.sum(axis=1) > 0).all())
