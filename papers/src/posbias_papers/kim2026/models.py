"""The simulated models of Kim et al. 2026, and what is printed of them.

Figures 1, 3 and 4 show four models (without LayerNorm; with it; with anisotropic embeddings; with a residual
connection too), Figures 5 and 6 one model under five anisotropies. The paper's text does not give the anisotropies
of Figures 2, 5, 6 and 7: `ALPHAS` are ours.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from posbias.core.errors import InvalidValueError
from posbias.reports.pages import Table
from posbias.reports.plots.recency import probability_text
from posbias.simulation import RecencyModel
from posbias_papers.study import Expected, Results

ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9)
"""Anisotropies of Figures 2, 5, 6 and 7 unless others are asked for: ours."""
FOUR: tuple[Mapping[str, Any], ...] = (
    {"norm": "none", "anisotropy": 0.0},
    {"anisotropy": 0.0},
    {"anisotropy": 0.5},
    {"anisotropy": 0.5, "residual": True},
)
"""The rows of Figures 1, 3 and 4."""
QUICK, FULL = 1_000_000, 10_000_000
"""Draws of every model: under a minute for all figures, and the paper's."""
EFFORT = {"quick": QUICK, "full": FULL}
PRINTED: tuple[tuple[str, RecencyModel], ...] = (
    ("0.5015", RecencyModel(dimension=16, anisotropy=0.0)),
    ("0.5000", RecencyModel(dimension=64, anisotropy=0.0)),
    ("0.6382", RecencyModel(dimension=16, anisotropy=0.5)),
    ("0.5544", RecencyModel(dimension=64, anisotropy=0.5)),
    ("0.5931", RecencyModel(dimension=16, anisotropy=0.5, residual=True)),
    ("0.5457", RecencyModel(dimension=64, anisotropy=0.5, residual=True)),
)
"""Recency probabilities of layer 2 printed in Section 3, each from 10,000,000 samples, and their models."""
FOUR_ERRORS = 0.0002
"""Four standard errors of the difference between a printed probability and ours, at ten million samples each."""


def models(
    rows: Mapping[str, Any] | Sequence[Mapping[str, Any]], dimensions: Sequence[int] = (16, 64)
) -> tuple[RecencyModel, ...]:
    """The models of some rows at some dimensions, row by row."""
    rows = [rows] if isinstance(rows, Mapping) else rows
    return tuple(RecencyModel(dimension=d, **row) for row in rows for d in dimensions)


def check_alphas(alphas: Sequence[float]) -> tuple[float, ...]:
    """Anisotropies as Figures 2, 5, 6 and 7 can show them: 0, which all are held against, then rising, below 1.

    Raises `InvalidValueError` for others.
    """
    rising = all(less < more for less, more in pairwise(alphas))
    if len(alphas) < 2 or alphas[0] != 0.0 or not rising or not alphas[-1] < 1.0:
        told = ", ".join(f"{alpha:g}" for alpha in alphas) or "none"
        raise InvalidValueError(f"alphas: {told} given, 0 and then rising numbers below 1 needed")
    return tuple(alphas)


def by_anisotropy(
    dimensions: Sequence[int] = (16, 64), *, residual: bool, alphas: Sequence[float] = ALPHAS
) -> tuple[RecencyModel, ...]:
    """The models of Figures 2, 5, 6 and 7, dimension by dimension."""
    return tuple(
        RecencyModel(dimension=d, anisotropy=alpha, residual=residual) for d in dimensions for alpha in alphas
    )


def describe(model: RecencyModel) -> str:
    """'LayerNorm, α = 0.5, residual'."""
    norm = {"none": "no LayerNorm", "layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[model.norm]
    return f"{norm}, α = {model.anisotropy:g}" + (", residual" if model.residual else "")


def where_of(model: RecencyModel, layer: int | None = None) -> str:
    """'LayerNorm, α = 0.5, d = 16, layer 2'."""
    return f"{describe(model)}, d = {model.dimension}" + (f", layer {layer}" if layer else "")


def samples_text(results: Results) -> str:
    """'1,000,000 samples', with 'at least' where some models have more."""
    counts = [result.samples for result in results.values()]
    return f"{'' if min(counts) == max(counts) else 'at least '}{min(counts):,} samples"


def note(results: Results) -> str:
    """What a page's numbers rest on."""
    return f"Ten tokens, {samples_text(results)} of every model."


def probabilities(results: Results, layers: Sequence[int]) -> Table:
    """The recency probability of every model in some layers."""
    rows = [
        [
            describe(model),
            str(model.dimension),
            *(probability_text(result.recency_probability[layer - 1]) for layer in layers),
        ]
        for model, result in results.items()
    ]
    return Table("Recency probability", ["model", "d", *(f"layer {layer}" for layer in layers)], rows)


EXPECTED = tuple(
    Expected(
        f"recency probability of {describe(model)}, d = {model.dimension}, layer 2",
        float(number),
        FOUR_ERRORS,
        "Section 3",
    )
    for number, model in PRINTED
)
"""The six probabilities; the panels of Figure 1 carry four digits of the same six."""


def effort_of(samples: int) -> str:
    """'full' or 'quick' if so much is drawn of every model, else the number in words."""
    return next((name for name in ("full", "quick") if samples >= EFFORT[name]), f"{samples:,} samples")
