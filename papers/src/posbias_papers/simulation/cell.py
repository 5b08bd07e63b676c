"""A simulation as a cell of the store: model and seed decide it, and more samples serve whoever wants fewer.

Its file holds what `RecencyResult` is made of (engine, samples and the moments of its tally), every float in full.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posbias.core.formats import Header
from posbias.core.progress import OnEvent
from posbias.core.store import Cell
from posbias.simulation.model import RecencyModel
from posbias.simulation.run import RecencyResult
from posbias.simulation.tally import Layout, Tally

MOMENTS = ("mean", "squares", "products")


@dataclass(frozen=True)
class RecencyCell(Cell):
    """The samples of a model that a seed draws; `amount` in the store is how many of them were counted."""

    model: RecencyModel
    seed: int = 0
    amount: int | None = field(default=None, compare=False)
    threads: int | None = field(default=None, compare=False)

    kind = "recency_cell"
    schema = 2
    unit = "sample"

    @property
    def size(self) -> float:
        """How many samples."""
        return float(self.amount or 0)

    @property
    def specification(self) -> Mapping[str, Any]:
        """Model and seed."""
        return {"model": self.model.as_dict(), "seed": self.seed}

    @property
    def name(self) -> str:
        """Such as layernorm-d16-alpha0.5-seed0."""
        residual = "-residual" if self.model.residual else ""
        words = f"{self.model.norm}{residual}-d{self.model.dimension}-alpha{self.model.anisotropy:g}"
        return f"{words}-seed{self.seed}"

    def compute(self, on_event: OnEvent) -> RecencyResult:
        """Draw the samples."""
        from posbias.simulation import simulate_recency

        samples = self.amount or 0
        return simulate_recency(self.model, samples, seed=self.seed, threads=self.threads, on_event=on_event)

    def to_content(self, result: RecencyResult) -> dict[str, Any]:
        """Engine, samples and moments."""
        moments = {name: getattr(result.tally, name).tolist() for name in MOMENTS}
        return {"engine": result.engine, "samples": result.samples, **moments}

    def from_content(self, header: Header, content: Mapping[str, Any]) -> RecencyResult:
        """The result, every float as it was. Raises `KeyError` or `ValueError` for content that is not whole."""
        tally = Tally(Layout(self.model.tokens, self.model.mask), self.model.depth, int(content["samples"]))
        for name in MOMENTS:
            moments = np.array(content[name], dtype=np.float64)
            if moments.shape != getattr(tally, name).shape or not np.isfinite(moments).all():
                raise ValueError(f"{name} are not as many numbers as the model has features")
            setattr(tally, name, moments)
        return RecencyResult(self.model, self.seed, str(content["engine"]), tally)
