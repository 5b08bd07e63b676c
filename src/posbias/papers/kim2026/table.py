"""Kim et al. 2026 in numbers: recency probabilities as a table, and those that the paper prints beside ours."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.estimate import Estimate
from posbias.files import write_text
from posbias.papers.cells import VERSION
from posbias.simulate import RecencyModel, RecencyResult
from posbias.sources import cite
from posbias.spec import encode
from posbias.store import save_json

Results = Mapping[RecencyModel, RecencyResult]
SAMPLES = 10_000_000
"""Samples of every panel, as in the paper."""
PUBLISHED: tuple[tuple[str, RecencyModel], ...] = (
    ("0.5015", RecencyModel(dimension=16, anisotropy=0.0)),
    ("0.5000", RecencyModel(dimension=64, anisotropy=0.0)),
    ("0.6382", RecencyModel(dimension=16, anisotropy=0.5)),
    ("0.5544", RecencyModel(dimension=64, anisotropy=0.5)),
    ("0.5931", RecencyModel(dimension=16, anisotropy=0.5, residual=True)),
    ("0.5457", RecencyModel(dimension=64, anisotropy=0.5, residual=True)),
)
"""Recency probabilities of layer 2 printed in Section 3, each from 10,000,000 samples, and their models."""


@dataclass(frozen=True)
class Check:
    """A printed recency probability beside ours.

    `se` is the standard error of their difference: the paper's own samples (ours, plain, scaled to its
    number), our estimate, and the rounding of the printed digits (uniform, ± half of the last).
    """

    where: str
    printed: str
    value: Estimate
    se: float

    @property
    def deviation(self) -> float:
        """Ours less the printed number, in standard errors."""
        return (self.value.value - float(self.printed)) / self.se

    @property
    def holds(self) -> bool:
        """Whether that is at most 4."""
        return abs(self.deviation) <= 4.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `se` is that of the difference, `value_se` that of `value`."""
        ours = {"value": self.value.value, "value_se": self.value.se}
        verdict = {"se": self.se, "deviation": self.deviation, "holds": self.holds}
        return {"where": self.where, "printed": float(self.printed)} | ours | verdict


def check_published(results: Results) -> tuple[Check, ...]:
    """The numbers of `PUBLISHED` whose models were simulated, each beside ours."""
    checks = []
    for printed, model in PUBLISHED:
        if model not in results:
            continue
        result = results[model]
        ours, plain = result.recency_probability[1], result.plain_recency_probability[1]
        theirs = plain.se * math.sqrt(plain.n / SAMPLES)
        rounding = 10.0 ** -len(printed.partition(".")[2]) / math.sqrt(12.0)
        where = f"Section 3: {describe(model)}, d = {model.dimension}, layer 2"
        checks.append(Check(where, printed, ours, math.hypot(ours.se, theirs, rounding)))
    return tuple(checks)


def cell_as_dict(result: RecencyResult) -> dict[str, Any]:
    """Model, size and recency probabilities of a simulation, for JSON."""
    probabilities = zip(result.recency_probability, result.plain_recency_probability, strict=True)
    return {
        "model": encode(result.model),
        "samples": result.samples,
        "seed": result.seed,
        "recency_probability": [
            {"layer": layer + 1, "value": p.value, "se": p.se, "plain": {"value": q.value, "se": q.se}}
            for layer, (p, q) in enumerate(probabilities)
        ],
    }


def write_tables(results: Sequence[RecencyResult], folder: Path) -> Path:
    """Write the recency probability of every layer to table.csv (a line each) and table.json."""
    cells = [cell_as_dict(result) for result in results]
    checks = check_published({result.model: result for result in results})
    about = {
        "source": cite("kim2026").short,
        "version": VERSION,
        "note": "anisotropies other than 0 and 0.5 are ours",
    }
    published = [check.as_dict() for check in checks]
    save_json(about | {"cells": cells, "published": published}, folder / "table.json")
    text = io.StringIO()
    fields = ("norm", "anisotropy", "dimension", "residual")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*fields, "layer", "recency_probability", "se", "plain", "plain_se", "samples", "seed"])
    for cell in cells:
        for p in cell["recency_probability"]:
            numbers = [p["layer"], p["value"], p["se"], p["plain"]["value"], p["plain"]["se"]]
            lines.writerow([*(cell["model"][f] for f in fields), *numbers, cell["samples"], cell["seed"]])
    return write_text(folder / "table.csv", text.getvalue())


def describe(model: RecencyModel) -> str:
    """'LayerNorm, α = 0.5, residual'."""
    norm = {"none": "no LayerNorm", "layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[model.norm]
    return f"{norm}, α = {model.anisotropy:g}" + (", residual" if model.residual else "")
