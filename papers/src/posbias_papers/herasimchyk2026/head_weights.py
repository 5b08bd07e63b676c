"""Section 5.1, after Eq. (4): heads weighted by what their output projections write, in place of evenly.

A head's weight in a layer is its share of what heads add to the stream, the mean over prompts of ‖A_h V_h W_O^h‖
(Frobenius, `mixing_head` of a measurement) over the sum of these. Everything else of levels (b) and (c) stays. The
text says that such weights could be justified, and takes even ones: that they agree better or worse is not said
there, so claims about it are ours.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture
from posbias_papers.claims import claims_of
from posbias_papers.herasimchyk2026.cells import Key
from posbias_papers.herasimchyk2026.curves import SCORES
from posbias_papers.herasimchyk2026.levels import architectures, profile_of
from posbias_papers.herasimchyk2026.measurements import Measurements, once
from posbias_papers.herasimchyk2026.printed import Reading
from posbias_papers.herasimchyk2026.standing import OURS
from posbias_papers.pages import Table

if TYPE_CHECKING:
    import xarray as xr

WRITTEN = "mixing_head"
"""The variable of a measurement that has each head's part of the update, by prompt and layer."""
LEVELS = "bc"
"""The levels whose heads are weighted: of attention alone the residual stream is left out too."""
HEAD = ("model", "corpus", "level", "even", "weighted", "better by", "largest weight")


def output_shares(measurement: "xr.Dataset") -> Float[np.ndarray, "layer head"]:
    """Each head's share of what the heads of its layer write, summing to 1 over heads; mean over prompts first."""
    written = measurement[WRITTEN].values.mean(axis=0)
    return written / written.sum(axis=-1, keepdims=True)


def weighted_levels(
    measurement: "xr.Dataset", reading: Reading = "corrected", first: "xr.Dataset | None" = None
) -> dict[str, Profile]:
    """Levels (b) and (c) with heads weighted by `output_shares`; arguments and errors as `levels.curves_of`."""
    shares, even = output_shares(measurement), architectures(measurement, reading, first)
    tokens = measurement.sizes["position"]
    return {level: profile_of(level, weighted(even[level], shares), tokens) for level in LEVELS}


def weighted(architecture: Architecture, shares: Float[np.ndarray, "layer head"]) -> Architecture:
    """The same architecture with these weights of its heads, layer by layer."""
    pattern = architecture.layers
    layers = tuple(
        replace(pattern[t % len(pattern)], head_weights=tuple(row.tolist())) for t, row in enumerate(shares)
    )
    return replace(architecture, layers=layers)


@once
def found(results: Measurements) -> dict[Key, dict[str, Profile]]:
    """The weighted levels of every cell of the tables that has what heads write."""
    levels = {}
    for key in results.keys:
        cell = results.cells[key]
        if WRITTEN in cell and np.isfinite(cell[WRITTEN].values).all():
            first = results.cells.get(Key(key.model, results.first(key.model), key.tokens))
            levels[key] = weighted_levels(cell, results.reading, first)
    return levels


def gain(results: Measurements, key: Key, level: str, score: str) -> Evidence:
    """By how much weighted heads agree better than even ones, with the bootstrap's error over prompts."""
    curves, of = results.curves(key), SCORES[score]
    by_output, even = found(results)[key][level].mass, curves.levels[level].mass
    sign = 1.0 if score == "spearman" else -1.0
    return curves.evidence(
        curves.name, lambda measured: sign * (of(by_output, measured) - of(even, measured))
    )


def claims(name: str, score: str, number: int) -> Iterator[Claim]:
    """That weighted heads agree better, of each level, from `number` on."""
    claim = claims_of(f"herasimchyk2026/{name}", "Section 5.1", **OURS)
    better = "a higher Spearman correlation" if score == "spearman" else "a lower Wasserstein distance"

    def each(level: str, results: Measurements) -> list[Evidence]:
        return [gain(results, key, level, score) for key in found(results)]

    for place, level in enumerate(LEVELS):
        words = f"({level}) has {better} with heads weighted by what they write than with even weights"
        yield claim(number + place, words, partial(each, level))


def rows(results: Measurements, score: str) -> list[dict[str, Any]]:
    """Scores of levels with even and with weighted heads, for JSON; `gain` is None for a single prompt."""
    listed = []
    for key, levels in found(results).items():
        curves, of = results.curves(key), SCORES[score]
        largest = float(output_shares(results.cells[key]).max())
        for level, profile in levels.items():
            even, ours = (
                float(of(one.mass, curves.influence.mass)) for one in (curves.levels[level], profile)
            )
            better = gain(results, key, level, score).estimate
            row = {"model": key.model, "corpus": key.corpus, "level": level, "even": even, "weighted": ours}
            listed.append(row | {"gain": better and vars(better), "largest_weight": largest})
    return listed


def tables(results: Measurements, score: str) -> Iterator[Table]:
    """The same in words, where there are any."""
    lines = []
    for row in rows(results, score):
        numbers = [f"{row[name]:.3f}" for name in ("even", "weighted")]
        better = "–" if row["gain"] is None else str(Estimate(**row["gain"]))
        cells = [
            row["model"],
            row["corpus"],
            f"({row['level']})",
            *numbers,
            better,
            f"{row['largest_weight']:.2f}",
        ]
        lines.append([cell.replace("-", "−") if place > 2 else cell for place, cell in enumerate(cells)])
    if lines:
        yield Table("Heads weighted by what they write, in place of evenly (ours)", HEAD, lines)
