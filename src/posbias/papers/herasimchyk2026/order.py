"""Section 4's check of Assumption 4.1: how often averaged attention is not stochastically monotone.

`corrected` is the measurement's own count, on attention averaged over prompts and heads, beside the rate that
sampling noise alone would give. `published` repeats the paper's notebook: ALiBi's biases are added to averaged
attention, and a second softmax follows. What it counts is nearly ALiBi alone, which is monotone by construction.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posbias.papers.herasimchyk2026.levels import need, published_slopes
from posbias.papers.herasimchyk2026.printed import Reading
from posbias.stochastic_order import monotonicity
from posbias.theory.rollout.kernel import masked_softmax

if TYPE_CHECKING:
    import xarray as xr

PUBLISHED_TOLERANCE = 1e-10
"""Gaps up to this are none in the paper's notebook."""


@dataclass(frozen=True)
class Order:
    """Violating triples of a model on a corpus, over all layers: their share, mean gap, and the noise floor.

    `floor` is the share expected from sampling noise alone, NaN where it was not measured or means nothing.
    """

    model: str
    corpus: str
    rate: float
    gap: float
    floor: float
    worst: int
    """The layer with the highest rate."""


def order_of(measurement: "xr.Dataset", corpus: str, reading: Reading = "corrected") -> Order:
    """The violations of one measurement. Raises `InvalidValueError` where a variable is missing.

    `published` needs the variable `kernel`, which measurements of long prompts do not have. All triples of all
    layers count alike. Source: Herasimchyk et al. 2026, Assumption 4.1 and after.
    """
    name = str(measurement.attrs.get("model", ""))
    if reading == "published":
        rates, gaps = _again(measurement)
        floors = np.full(len(rates), np.nan)
    else:
        need(measurement, ("monotonicity_rate", "monotonicity_gap", "monotonicity_floor"))
        rates = measurement["monotonicity_rate"].values[:, 0]
        gaps, floors = measurement["monotonicity_gap"].values, measurement["monotonicity_floor"].values
    total = rates.sum()
    gap = float((rates * gaps).sum() / total) if total else 0.0
    return Order(name, corpus, float(rates.mean()), gap, float(floors.mean()), int(rates.argmax()))


def _again(measurement: "xr.Dataset") -> tuple[np.ndarray, np.ndarray]:
    """Rate and mean gap per layer after ALiBi's biases and a second softmax."""
    need(measurement, ("kernel",))
    kernels = measurement["kernel"].values.astype(np.float64)
    tokens = kernels.shape[-1]
    position = np.arange(tokens)
    seen = np.tri(tokens, dtype=bool)
    distance = np.where(seen, position[:, None] - position, 0)
    slopes = np.array(published_slopes(measurement.sizes["head"]))
    found = []
    for kernel in kernels:
        average = np.zeros_like(kernel)
        for slope in slopes:
            average += masked_softmax(kernel - slope * distance, seen) / len(slopes)
        found.append(monotonicity(average, PUBLISHED_TOLERANCE))
    return np.array([one.rate for one in found]), np.array([one.mean_gap for one in found])
