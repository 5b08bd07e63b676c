"""Encodings under control: small models that differ in nothing else, measured, predicted and compared.

No paper has this comparison: its models differ in size, text and training too. Predictions are the levels of
Herasimchyk et al. 2026 (rollouts of each architecture with its measured λ_t) and, as (e), the energy rollout.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.comparison.predictors import PREDICTORS, prediction
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias_papers.extensions.extension import SMALL, Cell, Extension, Result, Results
from posbias_papers.herasimchyk2026.levels import curves_of
from posbias_papers.pages import Table

if TYPE_CHECKING:
    import xarray as xr

TOKENS, PROMPTS = 256, 128
SCORES = ("spearman", "wasserstein")


@dataclass(frozen=True)
class EncodingCell(Cell):
    """A model of the family, on the bundled text, which none was trained on."""

    model: str
    tokens: int = TOKENS
    prompts: int = PROMPTS

    kind = "encoding_cell"

    def compute(self, on_event: Any = None) -> Result:
        """Measure the model: λ and influence by prompt, and every prediction with its scores."""
        from posbias.measurement import measure

        measurement = measure(self.model, tokens=self.tokens, prompts=self.prompts)
        curves = curves_of(measurement, "", more=_energy)
        compared = curves.comparison
        agreements = {**compared.agreements, **compared.baselines, **vars(compared.reliability)}
        return {
            "mixing": measurement["mixing"].values.tolist(),
            "samples": curves.samples.tolist(),
            "levels": {letter: level.mass.tolist() for letter, level in curves.levels.items()},
            **{
                score: {name: getattr(one, score).value for name, one in agreements.items()}
                for score in SCORES
            },
        }


CELLS = tuple(EncodingCell(model) for model in SMALL)


def _energy(measurement: "xr.Dataset") -> dict[str, Profile]:
    """Level (e)."""
    energy = next(predictor for predictor in PREDICTORS if predictor.key == "energy")
    return {"e": prediction(measurement, energy)}


def _measured(result: Result) -> Profile:
    return Profile.from_samples(np.array(result["samples"]), measures="gradient")


def _tables(results: Results) -> Iterator[Table]:
    rows: list[dict[str, Any]] = []
    for cell, result in results.items():
        measured, mixing = _measured(result), np.array(result["mixing"])
        layers = {"λ bottom": mixing[:, 0], "λ mean": mixing.mean(axis=1), "λ top": mixing[:, -1]}
        row = {"model": cell.model} | {name: Estimate.of_mean(one) for name, one in layers.items()}
        summary, tokens = measured.summary, measured.tokens
        row |= {"first 5 %": measured.share(0, summary.ends)}
        row |= {"last 5 %": measured.share(tokens - summary.ends, tokens)}
        rows.append(row | {"trough": summary.trough, "shape": str(summary.verdict)})
    yield Table.of("λ and measured influence", rows)
    for score in SCORES:
        caption = f"{score.capitalize()} with the measured influence, by level, baseline and bound of noise"
        yield Table.of(caption, ({"model": cell.model, **one[score]} for cell, one in results.items()))


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import new_figure
    from posbias_papers.plots.levels import draw_levels, draw_mixing_series, levels_size

    rows = []
    for cell, result in results.items():
        levels = {letter: Profile.from_weights(np.array(mass)) for letter, mass in result["levels"].items()}
        rows.append((cell.model, levels, _measured(result)))
    width, height = levels_size(rows)
    figure = new_figure(width, height + 2.6)
    parts: Any = figure.subfigures(2, 1, height_ratios=(2.6, height))
    above, below = parts
    draw_mixing_series(
        above.subplots(), {cell.model: np.array(one["mixing"]) for cell, one in results.items()}
    )
    draw_levels(below, rows)
    return figure


EXTENSION = Extension(
    "encodings",
    "What does the encoding of positions alone change in λ and influence, and do predictions see it?",
    "docs/evidence.md",
    CELLS,
    _tables,
    _draw,
    minutes=5.0,
)
