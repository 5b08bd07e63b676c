"""One cell of the fair test of predictors: a measurement in, paired scores of held-out predictions out.

The protocol is `docs/predictors.md`; `extensions/run_predictors.py` goes through its cells,
`predictors` judges what they found. Beside the predictors stand the two ignorant profiles and,
of two predictors, what becomes of the sink's column: dropped, or weighed by norms.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.comparison.held_out import folds
from posbias.comparison.parts import chain
from posbias.comparison.predictors import (
    PREDICTORS,
    attention_kernels,
    fitted_kernels,
    last_row,
    prediction,
    predictions,
)
from posbias.comparison.scores import compare_all
from posbias.core.errors import InvalidValueError
from posbias.profiles.agreement import SCORES, Agreement
from posbias.profiles.estimate import Estimate
from posbias.profiles.influence import measured_influence
from posbias.profiles.profile import Profile, harmonic, uniform
from posbias.theory.rollout.kernel import through
from posbias_papers.extensions.cells import rounded

if TYPE_CHECKING:
    import xarray as xr

DIGITS = 5
"""Significant digits in the records."""
IGNORANT = {"recency": harmonic, "even": uniform}
COLUMN = {"fitted": fitted_kernels, "measured_kernels": attention_kernels}
"""The predictors of which the sink's column is dropped and weighed."""
PAIRS = (
    ("energy", "measured_kernels"),
    *((one.key, ignorant) for one in PREDICTORS for ignorant in IGNORANT),
    *((f"{key}_weighed", other) for key in COLUMN for other in (key, f"{key}_dropped")),
    *((f"{key}_dropped", key) for key in COLUMN),
)
"""What is compared: the first less the second."""


def trial(measurement: "xr.Dataset", seed: int = 0) -> dict[str, Any]:
    """Scores, paired differences and noise of one measurement, in JSON's terms.

    Scores and differences are lists [value, se, freedom], those of noise [value, low, high].
    `scores` and `differences` (of `PAIRS`, "a - b") are held out: made on half of the prompts, judged on the
    other, the mean of both ways. A score that is undefined is None. Raises `InvalidValueError` for a measurement
    without halves of two prompts each.
    """
    norms = {name: measurement[name].values for name in ("update_norm", "residual_norm")}

    def predict(half: "xr.Dataset") -> dict[str, Profile]:
        tokens = half.sizes["position"]
        column = {f"{key}_dropped": dropped(half, key) for key in COLUMN}
        column |= {f"{key}_weighed": weighed(half, key, **norms) for key in COLUMN}
        return predictions(half) | column | {name: one(tokens) for name, one in IGNORANT.items()}

    measured = measured_influence(measurement)
    found = compare_all({}, measured, held_out=folds(measurement, predict), seed=seed)
    if found.held_out is None or found.reliability is None:
        raise InvalidValueError(
            f"measurement: {measurement.sizes['prompt']} prompts given, two in each half needed"
        )
    wanted = {(one.more, one.less): one for one in found.held_out.differences}
    differences = {}
    for more, less in PAIRS:
        one, sign = (wanted[more, less], 1) if (more, less) in wanted else (wanted[less, more], -1)
        differences[f"{more} - {less}"] = _told(one.scores, sign)
    return {
        "scores": {name: _told(one) for name, one in found.held_out.agreements.items()},
        "differences": differences,
        "noise": {name: _told(getattr(found.reliability, name)) for name in vars(found.reliability)},
    }


def dropped(measurement: "xr.Dataset", key: str) -> Profile:
    """A predictor of `COLUMN` whose position 0 is given what position 1 has."""
    row = prediction(measurement, next(one for one in PREDICTORS if one.key == key)).mass.copy()
    row[0] = row[1]
    return Profile.from_weights(row, measures="rollout")


def weighed(
    measurement: "xr.Dataset",
    key: str,
    update_norm: Float[np.ndarray, "layer position"],
    residual_norm: Float[np.ndarray, "layer position"],
) -> Profile:
    """The rollout of δ_ij + A_ij·u_i/n_j, u the norms of what attention adds and n those of the stream."""
    row = last_row(measurement)
    layers = zip(COLUMN[key](measurement), update_norm[::-1], residual_norm[::-1], strict=True)
    for kernel, update, stream in layers:
        row = row + through(row * update, kernel) / stream
    return Profile.from_weights(row, measures="rollout")


def parts(measurement: "xr.Dataset") -> dict[str, list[float]]:
    """The masses of `posbias.comparison.parts.chain`, rounded for the records."""
    return {name: rounded(one.mass, DIGITS) for name, one in chain(measurement).items()}


def estimate(told: list[float] | None) -> Estimate | None:
    """[value, se, freedom] as an estimate; None where there is none or its error is not known."""
    if told is None or told[1] is None:
        return None
    return Estimate(told[0], told[1], max(2, round(told[2]) + 1), told[2])


def _told(scores: Agreement, sign: int = 1) -> dict[str, list[float | None] | None]:
    """[value, se, freedom] by score to five digits; None where the score is undefined, se None where not known."""
    told: dict[str, list[float | None] | None] = {}
    for name in SCORES:
        score = getattr(scores, name)
        if math.isnan(score.value):
            told[name] = None
            continue
        numbers = [sign * score.value, *((score.se, score.freedom) if score.known else (None, None))]
        if score.bounds and not score.known:
            numbers = [score.value, *score.bounds]
        told[name] = [None if one is None else rounded([one], DIGITS)[0] for one in numbers]
    return told
