"""Figures 1 to 7 and Section 3 of Kim et al. 2026: the models each shows, and how it is drawn from its table.

Figures 1, 3 and 4 show four models (without LayerNorm; with it; with anisotropic embeddings; with a residual
connection too), Figures 5 and 6 one model under five anisotropies, Figures 2 and 7 the closed form of its key
factor h(j). The paper's text does not give the anisotropies of Figures 2, 5, 6 and 7: `ALPHAS` are ours. It speaks
of a diagonal masked but for the first row of heat maps; that is read as the row without LayerNorm.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.core.errors import InvalidValueError
from posbias.profiles.claims import Evidence, Printed
from posbias.profiles.estimate import Estimate
from posbias.reports.plots.recency import LEAST_SPAN, draw_scores, probability_text
from posbias.reports.plots.style import INK, SMALL, TEXT
from posbias.simulation import Averages, RecencyModel
from posbias_papers.closed_forms.layernorm import ReadingName
from posbias_papers.contrasts import read_claims
from posbias_papers.kim2026.table import LEVELS, SURE, model_of, recorded, setting, table
from posbias_papers.pages import Table
from posbias_papers.plots.captions import captioned_figure, settle
from posbias_papers.plots.closed_forms import draw_key_factors
from posbias_papers.study import Basis, Expected, Recorded, Studies, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CLAIMS = read_claims(Path(__file__).with_name("claims.csv"))
ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9)
"""Anisotropies of Figures 2, 5, 6 and 7 unless others are asked for: ours."""
Fields = Mapping[str, Any]
FOUR: tuple[Fields, ...] = (
    {"norm": "none", "anisotropy": 0.0},
    {"anisotropy": 0.0},
    {"anisotropy": 0.5},
    {"anisotropy": 0.5, "residual": True},
)
"""The rows of Figures 1, 3 and 4."""
EFFORT = {"quick": 1_000_000, "full": 10_000_000}
"""Draws of every model: under a minute for all figures, and the paper's."""
FOUR_ERRORS = 0.0002
"""Four standard errors of the difference between a printed probability and ours, at ten million samples each."""
WHEN = "2026-11-27"
"""When what is on record was simulated."""
READINGS: tuple[ReadingName, ReadingName] = ("corrected", "published")
SCALES = (
    f"; grey: masked diagonal; every panel has its own colours, over at least {LEAST_SPAN:g} standard errors"
)
"""What the notes of heat maps say of their colours."""
NOTES = {"section3": ""} | dict.fromkeys(
    ("fig2", "fig7"),
    f"; dots: S(9, j)/S(9, 0) of layer 2, where S(9, 0) is at least {SURE:g} standard errors",
)
"""What other notes say instead."""


def models(rows: Fields | Sequence[Fields], dimensions: Sequence[int] = (16, 64)) -> tuple[RecencyModel, ...]:
    """The models of some rows at some dimensions, row by row."""
    rows = [rows] if isinstance(rows, Mapping) else rows
    return tuple(RecencyModel(dimension=d, **row) for row in rows for d in dimensions)


def check_alphas(alphas: Sequence[float]) -> tuple[float, ...]:
    """Anisotropies as Figures 2, 5, 6 and 7 can show them: 0, which all are held against, then rising, below 1.

    Raises `InvalidValueError` for others.
    """
    rising = all(less < more for less, more in pairwise(alphas))
    if len(alphas) < 2 or alphas[0] != 0.0 or not rising or not alphas[-1] < 1.0:
        given = ", ".join(f"{alpha:g}" for alpha in alphas) or "none"
        raise InvalidValueError(f"alphas: expected 0 and then rising numbers below 1, got {given}")
    return tuple(alphas)


def describe(model: RecencyModel) -> str:
    """'LayerNorm, α = 0.5, residual'."""
    norm = {"none": "no LayerNorm", "layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[model.norm]
    return f"{norm}, α = {model.anisotropy:g}" + (", residual" if model.residual else "")


def effort_of(samples: int) -> str:
    """'full' or 'quick' if so much is drawn of every model, else the number in words."""
    return next((name for name in ("full", "quick") if samples >= EFFORT[name]), f"{samples:,} samples")


# --- drawing -----------------------------------------------------------------------------------------------


def _rows(frame: "pd.DataFrame", model: RecencyModel, layer: int) -> "pd.DataFrame":
    """The rows of a layer of a model, by query and key."""
    place = (*setting(model).values(), layer)
    return frame.xs(place, level=["norm", "anisotropy", "residual", "dimension", "layer"])


def draw_heat_maps(
    frame: "pd.DataFrame",
    caption: str,
    rows: Sequence[Fields],
    *,
    dimensions: Sequence[int] = (16, 64),
    layers: Sequence[int] = (1, 2),
) -> "Figure":
    """Draw the mean scores of a row's model in two layers at two dimensions, row by row."""
    figure, part = captioned_figure(8.0, 0.6 + 1.55 * len(rows), caption)
    grid = part.add_gridspec(len(rows), 5, width_ratios=(1, 1, 0.06, 1, 1))
    columns = [(d, layer) for d in dimensions for layer in layers]
    words = {"ha": "center", "va": "center", "fontsize": TEXT, "color": INK, "textcoords": "offset points"}
    for row, fields in enumerate(rows):
        for place, (dimension, layer) in zip((0, 1, 3, 4), columns, strict=True):
            model = RecencyModel(dimension=dimension, **fields)
            ax, of_layer = part.add_subplot(grid[row, place]), _rows(frame, model, layer)
            scores, se = (of_layer[name].dropna().unstack("key").to_numpy() for name in ("score", "score_se"))
            draw_scores(ax, scores, se, diagonal=model.norm == "none")
            ax.set_title(f"RP = {probability_text(_recency(of_layer))}", fontsize=SMALL, color=INK, pad=3)
            ax.tick_params(labelbottom=row == len(rows) - 1, labelleft=place == 0)
            if row == 0:
                ax.annotate(f"d = {dimension}, layer {layer}", (0.5, 1), (0, 20), "axes fraction", **words)
            if row == len(rows) - 1:
                ax.set_xlabel("key", fontsize=SMALL, color=INK, labelpad=1)
            if place == 0:
                ax.set_ylabel("query", fontsize=SMALL, color=INK, labelpad=2)
                name = describe(model).replace(", residual", "\nresidual")
                ax.annotate(name, (0, 0.5), (-38, 0), "axes fraction", rotation=90, **words)
    return settle(figure)


def _recency(of_layer: "pd.DataFrame") -> Estimate:
    row = of_layer.dropna(subset=["recency"]).iloc[0]
    return Estimate(float(row["recency"]), float(row["recency_se"]), int(row["n"]))


def draw_key_factor_figure(
    frame: "pd.DataFrame",
    caption: str,
    *,
    residual: bool,
    alphas: Sequence[float],
    reading: ReadingName = "corrected",
) -> "Figure":
    """Draw h(j) against j for several anisotropies, and below h(j)/h(0) with what a simulation gives.

    One panel per dimension; `reading` is the closed form drawn as a line, the other is dashed.
    """
    figure, part = captioned_figure(8.0, 6.2, caption)
    readings = (reading, *(one for one in READINGS if one != reading))
    names = (f"closed form, {readings[0]}", f"closed form, {readings[1]}")
    for (top, bottom), d in zip(part.subplots(2, 2).T, (16, 64), strict=True):
        of = {}
        for alpha in alphas:
            model = RecencyModel(dimension=d, anisotropy=alpha, residual=residual)
            of[alpha] = _rows(frame, model, 2).xs(float(model.tokens - 1), level="query")
        simulated = {
            alpha: Averages(rows["ratio"].to_numpy(), rows["ratio_se"].to_numpy())
            for alpha, rows in of.items()
        }
        for ax, column, label in ((top, "factor", "h(j)"), (bottom, "ratio", "h(j) / h(0)")):
            curves, others = (
                {alpha: rows[f"{one}_{column}"].to_numpy() for alpha, rows in of.items()} for one in readings
            )
            points = simulated if ax is bottom else None
            draw_key_factors(ax, curves, others=others, simulated=points, names=names, label=label)
        top.set_title(f"d = {d}", fontsize=TEXT, color=INK)
    return settle(figure)


# --- what a page says --------------------------------------------------------------------------------------


def samples_text(frame: "pd.DataFrame") -> str:
    """'1,000,000 samples', with 'at least' where some models have more."""
    draws = frame["n"].to_numpy()
    least, most = int(draws.min()), int(draws.max())
    return f"{'' if least == most else 'at least '}{least:,} samples"


def recency(frame: "pd.DataFrame") -> "Iterator[tuple[RecencyModel, pd.DataFrame]]":
    """The recency probability of every model: `recency`, `recency_se` and `n` by layer."""
    rows = frame.dropna(subset=["recency"]).droplevel(["query", "key"])
    for place, layers in rows.groupby(level=list(LEVELS[:4]), sort=False):
        yield model_of(place), layers.droplevel(list(LEVELS[:4]))


def _tables(frame: "pd.DataFrame", shown: Sequence[int], printed: bool) -> Iterator[Table]:
    rows = [
        [describe(model), str(model.dimension), *(_text(layers, layer) for layer in shown)]
        for model, layers in recency(frame)
    ]
    yield Table("Recency probability", ["model", "d", *(f"layer {layer}" for layer in shown)], rows)
    rows = []
    for one in printed_numbers(frame) if printed else ():
        deviation = f"{one['deviation']:+.2f}".replace("-", "−")
        ours, holds = (
            probability_text(Estimate(one["value"], one["se"])),
            "holds" if one["holds"] else "fails",
        )
        rows.append([one["where"], f"{one['printed']:.4f}", ours, deviation, holds])
    if rows:
        head = ["printed in Section 3", "printed", "here", "standard errors of the difference", ""]
        yield Table("Printed numbers and ours", head, rows)


def _text(layers: "pd.DataFrame", layer: int) -> str:
    value, se = layers.loc[layer, ["recency", "recency_se"]].to_numpy()
    return probability_text(Estimate(float(value), float(se)))


def printed_numbers(frame: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    """The probabilities that Section 3 prints, and ours; `deviation` in standard errors of the difference."""
    for claim in CLAIMS["section3"]:
        for piece in claim.quantity(frame) if isinstance(claim.test, Printed) and claim.quantity else ():
            yield _compared(claim.sentence, piece)


def _compared(sentence: str, piece: Evidence) -> dict[str, Any]:
    test, ours = piece.test, piece.estimate
    assert isinstance(test, Printed)
    where = sentence.removeprefix("The recency probability of ").rpartition(", is ")[0]
    numbers = {
        "where": f"Section 3: {where}",
        "printed": test.number.value,
        "value": ours.value,
        "se": ours.se,
    }
    return numbers | {"deviation": test.deviation(ours), "holds": test.agrees(ours)}


def data(frame: "pd.DataFrame", *, printed: bool = True) -> dict[str, Any]:
    """The recency probability of every model by layer, for JSON, with the printed numbers and ours."""
    cells = [
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
    samples = int(frame["n"].to_numpy().min())
    basis = {"samples": samples, "cells": len(cells)}
    return {
        "samples": samples,
        "cells": cells,
        "published": [*printed_numbers(frame)] if printed else [],
        "rests_on": basis | {"recorded": len(cells) * bool(frame.attrs.get("recorded"))},
    }


# --- the figures -------------------------------------------------------------------------------------------


def _study(
    name: str,
    title: str,
    question: str,
    cells: Sequence[RecencyModel],
    draw: "Callable[..., Figure] | None",
    layers: Sequence[int],
) -> Study:
    printed = name in ("fig1", "section3")
    return Study(
        f"kim2026/{name}",
        title,
        question,
        tuple(dict.fromkeys(cells)),
        tuple(CLAIMS[name]),
        EFFORT,
        "draws",
        {"quick": round(0.024 * len(cells), 2), "full": round(0.24 * len(cells), 1)},
        partial(_tables, shown=layers, printed=printed),
        partial(data, printed=printed),
        lambda frame: f"Ten tokens, {samples_text(frame)} of every model{NOTES.get(name, SCALES)}.",
        draw,
        expected=_expected() if printed else (),
        table=table,
        recorded=_recorded,
    )


def _recorded(study: Study) -> Recorded:
    from posbias_papers.reproduction import content_of

    basis = Basis(samples=EFFORT["full"], cells=len(study.cells), recorded=len(study.cells))
    return Recorded(EFFORT["full"], basis, WHEN, lambda: content_of(study, recorded(study.cells), "full"))


def _expected() -> tuple[Expected, ...]:
    return tuple(
        Expected(
            claim.sentence.removeprefix("The ").rpartition(", is ")[0],
            claim.test.number.value,
            FOUR_ERRORS,
            "Section 3",
        )
        for claim in CLAIMS["section3"]
        if isinstance(claim.test, Printed)
    )


TITLES = {
    "fig1": (
        "Mean scores of four models, layers 1 and 2, d = 16 and 64",
        "Does LayerNorm turn random embeddings towards recent keys, and a residual connection less so?",
    ),
    "fig2": (
        "Key factor h(j) by anisotropy",
        "Does the closed form rise with the key, and faster for anisotropic embeddings?",
    ),
    "fig3": (
        "Mean scores of the four models, layers 3 and 4",
        "Does the preference for recent keys persist in further layers?",
    ),
    "fig4": (
        "Mean scores of the four models, d = 256 and 1,024",
        "Does the preference for recent keys persist in wide models?",
    ),
    "fig5": (
        "Mean scores by anisotropy",
        "How does recency depend on the angle between embeddings?",
    ),
    "fig6": (
        "Mean scores by anisotropy, with a residual connection",
        "How does recency depend on the angle between embeddings under a residual connection?",
    ),
    "fig7": (
        "Key factor h(j) by anisotropy, with a residual connection",
        "Does the closed form rise with the key under a residual connection?",
    ),
    "section3": (
        "The recency probabilities printed in Section 3",
        "Are the printed recency probabilities those of the model they are said to be of?",
    ),
}
"""What each shows, and the question it answers."""


def with_alphas(alphas: Sequence[float] | None = None) -> Studies:
    """Figures 1 to 7 and Section 3, those by anisotropy with these. Raises as `check_alphas`."""
    alphas = check_alphas(ALPHAS if alphas is None else alphas)
    plain, residual = (
        [{"anisotropy": alpha, "residual": kind} for alpha in alphas] for kind in (False, True)
    )
    four, wide, factors = models(FOUR), (256, 1024), partial(draw_key_factor_figure, alphas=alphas)
    shown: dict[str, tuple[Sequence[RecencyModel], Any, Sequence[int]]] = {
        "fig1": (four, partial(draw_heat_maps, rows=FOUR), (1, 2)),
        "fig2": (models(plain), partial(factors, residual=False), (2,)),
        "fig3": (four, partial(draw_heat_maps, rows=FOUR, layers=(3, 4)), (3, 4)),
        "fig4": (models(FOUR, wide), partial(draw_heat_maps, rows=FOUR, dimensions=wide), (1, 2)),
        "fig5": (models(plain), partial(draw_heat_maps, rows=plain), (1, 2)),
        "fig6": (models(residual), partial(draw_heat_maps, rows=residual), (1, 2)),
        "fig7": (models(residual), partial(factors, residual=True), (2,)),
        "section3": (four, None, (1, 2)),
    }
    return Studies(_study(name, *TITLES[name], *what) for name, what in shown.items())


STUDIES = with_alphas()
"""Figures 1 to 7, and the probabilities that the text prints."""
