"""Five predictions of a measured model's influence, from nothing assumed to everything measured.

Each takes some of what was measured (never the influence itself) and gives the profile that its theory
expects. They differ in what they keep: the residual stream, content, the measured attention, the norms.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.profiles.profile import Profile
from posbias.theory.rollout.kernel import masked_softmax, push, through

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Predictor:
    """A way to predict influence: `label` for a legend, `method` in a sentence or two, `source` to cite,
    `needs` the variables of a measurement that it uses, `chosen` how it was come by, where that flatters it."""

    key: str
    label: str
    method: str
    source: str
    needs: tuple[str, ...]
    predict: Callable[["xr.Dataset"], Float[np.ndarray, "position"]]
    chosen: str = ""

    @property
    def both_ways(self) -> bool:
        """Whether it also predicts an encoder: not from logits by distance, which are of earlier keys alone."""
        return not any(name.endswith("_distance") for name in self.needs)


def predictions(measurement: "xr.Dataset") -> dict[str, Profile]:
    """All predictors applied to a measurement: key → the profile expected of the last token.

    Raises `InvalidValueError` if the measurement lacks a variable that a predictor needs.
    """
    usable = [one for one in PREDICTORS if one.both_ways or not measurement.attrs.get("encoder")]
    return {predictor.key: prediction(measurement, predictor) for predictor in usable}


def prediction(measurement: "xr.Dataset", predictor: Predictor) -> Profile:
    """One predictor applied to a measurement. Raises as `predictions`."""
    missing = [name for name in predictor.needs if name not in measurement]
    if missing:
        raise InvalidValueError(
            f"measurement: variable {missing[0]!r} is missing, needed by the predictor {predictor.label!r}"
        )
    attrs = {"predictor": predictor.label, "source": predictor.source}
    return Profile.from_weights(predictor.predict(measurement), measures="rollout", attrs=attrs)


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
    """Kernels, top layer first, as measured: attention averaged over prompts and heads."""
    return iter(measurement["kernel"].values.astype(np.float64)[::-1])


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


PREDICTORS = (
    Predictor(
        "attention_only",
        "attention only (λ = 1)",
        "Positional logits alone (measured logits minus those without rotation, by distance), no residual "
        "connection: every layer replaces the stream.",
        "Wu et al. 2025; Herasimchyk et al. 2026, §6.2 (a)",
        ("positional_distance",),
        _rolled(positional_kernels, lambda measurement: np.ones(measurement.sizes["layer"])),
    ),
    Predictor(
        "positional",
        "residual-aware, positional logits",
        "The same positional logits, mixed with the identity by the measured λ_t.",
        "Herasimchyk et al. 2026, Eqs. (2) to (4), §6.2 (b)",
        ("positional_distance", "mixing"),
        _rolled(positional_kernels),
    ),
    Predictor(
        "fitted",
        "residual-aware, fitted logits",
        "Mean logits by distance with the diagonal, and the first column, as measured; softmax per head, "
        "mixed by the measured λ_t.",
        "after Herasimchyk et al. 2026, Proposition 4.5 and §6.2 (c)",
        ("logits_distance", "logits_first_column", "mixing"),
        _rolled(fitted_kernels),
    ),
    Predictor(
        "measured_kernels",
        "residual-aware, measured kernels",
        "The attention itself, averaged over prompts and heads, mixed by the measured λ_t.",
        "Herasimchyk et al. 2026, §3",
        ("kernel", "mixing"),
        _rolled(attention_kernels),
    ),
    Predictor(
        "energy",
        "energy rollout",
        "The expected squared norm of the Jacobian: B_ij = δ_ij + Σ_h g_h·E[A²_h,ij/r_j²], with g_h = "
        "‖W_O W_V diag(gain)‖²_F/d the strength of a head and r_j the RMS of the stream at key j; influence is "
        "the square root of the last row of B_T ⋯ B_1.",
        "posbias (no paper has it)",
        ("energy_kernel",),
        _energy,
        "The energy rollout was found by trying some 75 variants on SmolLM2-135M with the text ‘sotu’: its scores "
        "there are hopeful.",
    ),
)
"""The predictors in the order of what they keep; the keys are stable names."""
