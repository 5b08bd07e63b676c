"""Predictions from one half of a measurement's prompts, to be judged on the other half.

A predictor takes statistics (λ, logits, attention, norms) of prompts, and the influence that it is held against is
of prompts too. Where they are the same prompts, what is peculiar to them is in both and flatters it. A measurement
therefore keeps the mean over prompts with even numbers beside the mean over all: what the others have is the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from posbias.comparison.predictors import predictions
from posbias.measurement.result import EVEN
from posbias.profiles.profile import Profile

if TYPE_CHECKING:
    import xarray as xr

_OF_THE_MODEL = ("head_gain",)


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
    return tuple(
        Fold(predict(half(measurement, part)), np.flatnonzero(even != part)) for part in (True, False)
    )


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
    single = [
        name for name, one in measurement.data_vars.items() if "prompt" in one.dims or name in _OF_THE_MODEL
    ]
    rows = np.flatnonzero((number % 2 == 0) == even)
    return measurement[single].isel(prompt=rows).assign(kept)
