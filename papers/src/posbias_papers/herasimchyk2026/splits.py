"""Section 7, positional encodings: how far a split into position and content lies from the attention itself.

The text says that for RoPE such splits are generally too loose for rollouts as sharp as with additive biases. Here
the rollout of a level's logits, split into position (b) and a constant with a diagonal (c), is held against the
rollout of the measured attention with the same λ. What is between them is the split's alone: both leave out
content by token, values and norms. Of a model whose first token is a sink much of it is that token, whose column
is no matter of distance. Distances have an error from the two halves of the prompts. Without a number in the
text, the claim is ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.held_out import half
from posbias.measurement.result import EVEN
from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Evidence
from posbias.profiles.profile import wasserstein
from posbias.theory.architecture import Architecture
from posbias.theory.rollout.kernel import layer_kernel, push
from posbias_papers.claims import claims_of
from posbias_papers.herasimchyk2026.levels import architectures, slopes_of
from posbias_papers.herasimchyk2026.measurements import Measurements, once
from posbias_papers.herasimchyk2026.printed import Reading
from posbias_papers.herasimchyk2026.standing import OURS
from posbias_papers.pages import Table

if TYPE_CHECKING:
    import xarray as xr

LEVELS = "bc"
"""The levels that split logits."""
HEAD = ("model", "level", "rollouts apart", "error", "attention apart")


@dataclass(frozen=True)
class Looseness:
    """How far the split of a level lies from the measured attention of a model.

    `rollouts` is the 1-Wasserstein distance of the two rollouts (share of the text) with its error from the halves
    of the prompts, None without these; `whole` the same of all prompts; `kernels` the total variation of a row of
    attention, mean over queries after the first and layers. `additive`: the model adds a line by distance.
    """

    model: str
    level: str
    additive: bool
    rollouts: Estimate | None
    whole: float
    kernels: float


def apart(measurement: "xr.Dataset", architecture: Architecture) -> tuple[float, float]:
    """1-Wasserstein distance of the rollouts, and mean total variation of rows of attention.

    `architecture` is a level of this measurement. Raises `KeyError` where it has no averaged attention.
    """
    tokens, depth = measurement.sizes["position"], architecture.depth
    attention = measurement["kernel"].values.astype(np.float64)
    pattern, mixing = architecture.layers, np.asarray(architecture.mixing.values(depth))
    split = np.stack([layer_kernel(pattern[t % len(pattern)], tokens) for t in range(depth)])
    start = np.eye(tokens)[-1]
    rows = [push(start, kernels[::-1], mixing[::-1]) for kernels in (split, attention)]
    variation = 0.5 * np.abs(split - attention)[:, 1:].sum(axis=-1)
    return float(wasserstein(*(row / row.sum() for row in rows))), float(variation.mean())


def looseness(measurement: "xr.Dataset", reading: Reading = "corrected") -> list[Looseness]:
    """That of levels (b) and (c) of a measurement with averaged attention; errors as `levels.curves_of`."""
    additive = slopes_of(measurement) is not None
    even = measurement["prompt"].values % 2 == 0
    halved = f"kernel{EVEN}" in measurement and min(even.sum(), (~even).sum()) >= 2
    parts = [half(measurement, which) for which in (True, False)] if halved else []
    found = []
    for level in LEVELS:
        whole, kernels = apart(measurement, architectures(measurement, reading)[level])
        by_half = [apart(part, architectures(part, reading)[level])[0] for part in parts]
        rollouts = Estimate.of_mean(np.array(by_half)) if by_half else None
        name = str(measurement.attrs.get("model", ""))
        found.append(Looseness(name, level, additive, rollouts, whole, kernels))
    return found


@once
def all_splits(results: Measurements) -> list[Looseness]:
    """Those of every model that has averaged attention, on its first corpus."""
    cells = [results.cells[key] for key in results.leading]
    return [one for cell in cells if "kernel" in cell for one in looseness(cell, results.reading)]


def _looser(results: Measurements) -> Iterator[Evidence]:
    """By how much the rollouts of other encodings are further apart than those of the loosest linear bias."""
    known = [(one, one.rollouts) for one in all_splits(results) if one.level == "b" and one.rollouts]
    biases = [(one, rollouts) for one, rollouts in known if one.additive]
    if not biases:
        return
    bias, least = max(biases, key=lambda pair: pair[0].whole)
    for one, rollouts in known:
        if not one.additive:
            where = f"{one.model} ({one.whole:.4f}) against {bias.model} ({bias.whole:.4f})"
            yield Evidence(where, rollouts - least, test=Above(least=0.001))


CLAIMS: tuple[Claim, ...] = (
    claims_of("herasimchyk2026/fig3", "Section 7", **OURS)(
        8,
        "Split into position and content, logits without a linear bias leave the rollout further from that of the "
        "attention itself than logits with one (1-Wasserstein, share of the text)",
        _looser,
    ),
)


def data(results: Measurements) -> dict[str, Any]:
    """Every number, for JSON."""
    return {
        "splits": [
            vars(one) | {"rollouts": None if one.rollouts is None else vars(one.rollouts)}
            for one in all_splits(results)
        ]
    }


def table(results: Measurements) -> Iterator[Table]:
    """The same in words, if there is any."""
    rows = []
    for one in all_splits(results):
        error = "–" if one.rollouts is None else f"{one.rollouts.se:.4f}"
        rows.append([one.model, f"({one.level})", f"{one.whole:.4f}", error, f"{one.kernels:.3f}"])
    if rows:
        about = "1-Wasserstein between rollouts, total variation between rows of attention"
        yield Table(f"How far split logits lie from the measured attention ({about})", HEAD, rows)
