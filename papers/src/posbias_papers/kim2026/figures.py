"""Figures 1 to 7 and Section 3 of Kim et al. 2026: the models each shows, and how it is drawn from its table.

Figures 1, 3 and 4 show four models (without LayerNorm; with it; with anisotropic embeddings; with a residual
connection too), Figures 5 and 6 one model under five anisotropies, Figures 2 and 7 the closed form of its key
factor h(j). The paper's text does not give the anisotropies of Figures 2, 5, 6 and 7: `ALPHAS` are those of the
authors' notebook. It speaks of a diagonal masked but for the first row of heat maps; that is read as the row
without LayerNorm.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.errors import whole
from posbias.core.machine import cores, sequence
from posbias.core.progress import Event, OnEvent
from posbias.core.store import Store, compute
from posbias.profiles.estimate import Estimate
from posbias.reports.plots.recency import probability_text
from posbias.simulation import RecencyModel
from posbias_papers.claims import Printed
from posbias_papers.contrasts import read_claims
from posbias_papers.kim2026.drawing import Fields, describe, draw_heat_maps, draw_key_factors
from posbias_papers.kim2026.table import LEVELS, SURE, model_of, recorded, setting, table
from posbias_papers.pages import Page, Table
from posbias_papers.study import EFFORTS, Basis, Recorded, Studies, Study, Tables, titled

if TYPE_CHECKING:
    import pandas as pd

CLAIMS = read_claims(Path(__file__).with_name("claims.csv"))
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Anisotropies of Figures 2, 5, 6 and 7: those of the authors' notebook."""
ALONE, RESIDUAL = (
    [{"anisotropy": alpha, "residual": residual} for alpha in ALPHAS] for residual in (False, True)
)
"""The rows of Figures 2 and 5, and of 6 and 7."""
CLOSED_FORMS = ("fig2", "fig7")
FOUR: tuple[Fields, ...] = (
    {"norm": "none", "anisotropy": 0.0},
    {"anisotropy": 0.0},
    {"anisotropy": 0.5},
    {"anisotropy": 0.5, "residual": True},
)
"""The rows of Figures 1, 3 and 4."""
EFFORT = {"quick": 1_000_000, "full": 10_000_000}
"""Draws of every model: under a minute for all figures, and the paper's."""
LEAST_SAMPLES = 3
"""Fewer have no standard error once a slope is fitted."""
WHEN = "2026-11-28"
"""When what is on record was simulated."""


def models(rows: Sequence[Fields], dimensions: Sequence[int] = (16, 64)) -> tuple[RecencyModel, ...]:
    """The models of some rows at some dimensions, row by row."""
    return tuple(RecencyModel(dimension=d, **row) for row in rows for d in dimensions)


# --- what is computed --------------------------------------------------------------------------------------


def tables(
    names: Sequence[str],
    folder: Path,
    *,
    effort: str | int = "quick",
    again: bool = False,
    on_event: OnEvent | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Tables:
    """The tables of some studies, whose simulations are kept in FOLDER/cells.

    `effort`, or that many samples, is drawn of every model. Raises `InvalidValueError` for fewer than 3 samples,
    a seed that is no integer ≥ 0 and threads < 1; KeyboardInterrupt on Ctrl-C, saying what is kept; and as
    `simulate_recency`.
    """
    from posbias_papers.simulation import RecencyCell

    samples = whole("effort", effort, LEAST_SAMPLES) if isinstance(effort, int) else EFFORT[effort]
    # whatever can be wrong is so before any sample is drawn
    sequence(seed, "check")
    cores(threads)
    cells = {m: RecencyCell(m, seed, samples, threads) for name in names for m in STUDIES[name].cells}
    done = compute(cells.values(), Store(folder / "cells"), again=again, on_event=on_event)
    if on_event and not done.new:
        on_event(Event(0, 0, "sample"))
    results = done.results()
    frames = {name: table({m: results[cells[m]] for m in STUDIES[name].cells}) for name in names}
    return Tables(frames, effort_of(min(map(samples_of, frames.values()))))


def samples_of(frame: "pd.DataFrame") -> int:
    """How many samples every model has at least."""
    return int(frame["n"].to_numpy().min())


def effort_of(samples: int) -> str:
    """'full' or 'quick' if so much is drawn of every model, else the number in words."""
    return next((name for name in ("full", "quick") if samples >= EFFORT[name]), f"{samples:,} samples")


# --- what a page says --------------------------------------------------------------------------------------


def page(frame: "pd.DataFrame", *, name: str, layers: Sequence[int]) -> Page:
    """Recency probabilities of some layers, and the printed ones of Section 3 where a study is about these."""
    printed = [*printed_numbers(frame)] if name in ("fig1", "section3") else []
    rows = []
    for model, own in recency(frame):
        numbers = {f"layer {n}": _text(*own.loc[n, ["recency", "recency_se"]]) for n in layers}
        rows.append({"model": describe(model), "d": model.dimension, **numbers})
    compared = [
        {"printed in Section 3": one["where"], "printed": f"{one['printed']:.4f}"}
        | {"here": _text(one["value"], one["se"]), "standard errors of the difference": one["deviation"]}
        | {"holds": bool(one["holds"])}
        for one in printed
    ]
    shown = [Table.of("Recency probability", rows)]
    shown += [Table.of("Printed numbers and ours", compared)] if compared else []
    cells = recency_by_layer(frame)
    basis = {"samples": samples_of(frame), "cells": len(cells)}
    basis["recorded"] = len(cells) * bool(frame.attrs.get("recorded"))
    data = {"samples": basis["samples"], "cells": cells, "published": printed, "rests_on": basis}
    samples = f"{'' if len({*frame['n']}) == 1 else 'at least '}{samples_of(frame):,} samples"
    note = f"Ten tokens, {samples} of every model"
    if name in CLOSED_FORMS:
        note += f"; dots: S(9, j)/S(9, 0) of layer 2, where S(9, 0) is at least {SURE:g} standard errors"
    elif name != "section3":
        note += "; grey: masked diagonal; every panel has its own colours"
    return Page(note=f"{note}.", tables=tuple(shown), data=data)


def recency(frame: "pd.DataFrame") -> "Iterator[tuple[RecencyModel, pd.DataFrame]]":
    """The recency probability of every model: `recency`, `recency_se` and `n` by layer."""
    rows = frame.dropna(subset=["recency"]).droplevel(["query", "key"])
    for place, layers in rows.groupby(level=list(LEVELS[:4]), sort=False):
        yield model_of(place), layers.droplevel(list(LEVELS[:4]))


def recency_by_layer(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The same for JSON."""
    return [
        {
            "model": setting(model),
            "samples": int(layers["n"].iloc[0]),
            "recency_probability": [
                {"layer": layer, "value": row["recency"], "se": row["recency_se"]}
                for layer, row in layers.iterrows()
            ],
        }
        for model, layers in recency(frame)
    ]


def _text(value: Any, error: Any) -> str:
    return probability_text(Estimate(float(value), float(error)))


def printed_numbers(frame: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    """The probabilities that Section 3 prints, and ours; `deviation` in standard errors of the difference."""
    for claim in CLAIMS["section3"]:
        for piece in claim.quantity(frame) if isinstance(claim.test, Printed) and claim.quantity else ():
            test, ours = piece.test, piece.estimate
            assert isinstance(test, Printed)
            where = claim.sentence.removeprefix("The recency probability of ").rpartition(", is ")[0]
            about = {"where": f"Section 3: {where}", "printed": test.number.value}
            about |= {"value": ours.value, "se": ours.se}
            yield about | {"deviation": test.deviation(ours), "holds": test.agrees(ours)}


# --- the figures -------------------------------------------------------------------------------------------


def _recorded(study: Study) -> Recorded:
    basis = Basis(samples=EFFORT["full"], cells=len(study.cells), recorded=len(study.cells))
    serves = (*EFFORTS, EFFORT["full"])
    return Recorded("full", basis, serves, lambda: recorded(study.cells), WHEN)


def _study(
    name: str,
    rows: Sequence[Fields] = FOUR,
    dimensions: Sequence[int] = (16, 64),
    layers: Sequence[int] = (1, 2),
) -> Study:
    """A study of some rows of models: closed forms, heat maps of two layers, or numbers alone."""
    cells = models(rows, dimensions)
    draw: Callable[..., Any] | None = partial(draw_heat_maps, rows=rows, dimensions=dimensions, layers=layers)
    if name in CLOSED_FORMS:
        draw = draw_key_factors
    minutes = round(0.024 * len(cells), 2), round(0.24 * len(cells), 1)
    return Study(
        *titled(f"kim2026/{name}"),
        tuple(CLAIMS[name]),
        cells,
        minutes,
        "draws",
        table,
        partial(page, name=name, layers=layers),
        None if name == "section3" else draw,
        recorded=_recorded,
    )


STUDIES = Studies(
    (
        _study("fig1"),
        _study("fig2", ALONE, layers=(2,)),
        _study("fig3", layers=(3, 4)),
        _study("fig4", dimensions=(256, 1024)),
        _study("fig5", ALONE),
        _study("fig6", RESIDUAL),
        _study("fig7", RESIDUAL, layers=(2,)),
        _study("section3"),
    )
)
"""Figures 1 to 7, and the probabilities that the text prints."""
