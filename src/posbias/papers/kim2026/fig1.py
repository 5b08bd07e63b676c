"""Figure 1: mean scores of four models in layers 1 and 2, at 16 and 64 dimensions."""

from collections.abc import Iterator
from typing import Any

from posbias.claims import Claim, Near
from posbias.papers.kim2026 import quantities as q
from posbias.papers.kim2026.closed_forms import GOOD, READINGS, score_row, scores, table_of
from posbias.papers.kim2026.heat_maps import draw_heat_maps, printed_table, with_printed
from posbias.papers.kim2026.models import (
    ANISOTROPIC,
    BARE,
    EFFORT,
    EXPECTED,
    FOUR,
    ISOTROPIC,
    RESIDUAL,
    models,
    note,
    probabilities,
)
from posbias.papers.study import Results, Study

CELLS = models(FOUR)


def _claims() -> Iterator[Claim]:
    name, plain, residual = "kim2026/fig1", models(ANISOTROPIC), models(RESIDUAL)
    yield Claim(
        f"{name}/1",
        "Figure 1",
        "The first layer prefers neither end, in any model (recency probability one half, within .001)",
        q.probability(CELLS, 1),
        Near(0.5, q.FIRST_LAYER),
    )
    yield Claim(
        f"{name}/2",
        "Section 3",
        "Without LayerNorm the scores of layer 2 are uniform along a row but for the diagonal (within 5 %)",
        q.even_rows(models(BARE), 2),
    )
    yield Claim(
        f"{name}/3",
        "Section 3",
        "LayerNorm makes mean scores of layer 2 rise along every row at α = 0, in 16 dimensions",
        q.rising(models(ISOTROPIC, [16]), 2),
    )
    yield Claim(
        f"{name}/4",
        "Theorem 1",
        "LayerNorm makes mean scores of layer 2 rise along every row at α = 0, in 64 dimensions (Theorem 1)",
        q.rising(models(ISOTROPIC, [64]), 2),
    )
    yield Claim(
        f"{name}/5",
        "Section 3",
        "With anisotropic embeddings mean scores of layer 2 rise along every row",
        q.rising(plain, 2),
    )
    yield Claim(
        f"{name}/6",
        "Proposition 2",
        "With a residual connection mean scores of layer 2 still rise along every row (Proposition 2)",
        q.rising(residual, 2),
    )
    yield Claim(
        f"{name}/7",
        "Section 3",
        "A residual connection lowers every score of layer 2 below the diagonal",
        q.higher_scores(q.pairs(plain, residual), 2),
    )
    yield Claim(
        f"{name}/8",
        "Section 3",
        "Scores do not depend on distance alone: at every distance the last query gives more than the first",
        q.beyond_distance((*plain, *residual), 2),
    )
    for number, (reading, words) in enumerate(READINGS.items(), start=9):
        yield Claim(
            f"{name}/{number}",
            "Eqs. 5, 19, 41",
            f"(closed form, {words}) It gives the last query's score for the key before it in layer 2 within 10 %",
            scores(CELLS, reading),
            Near(0.0, GOOD),
            provenance="paper" if reading == "published" else "ours",
        )


def _compared(results: Results) -> list[Any]:
    return [score_row(results[model]) for model in CELLS]


STUDY = Study(
    "kim2026/fig1",
    "Mean scores of four models, layers 1 and 2, d = 16 and 64",
    "Does LayerNorm turn random embeddings towards recent keys, and a residual connection less so?",
    CELLS,
    tuple(_claims()),
    EFFORT,
    "draws",
    {"quick": 0.19, "full": 1.9},
    tables=lambda results: [
        probabilities(results, (1, 2)),
        printed_table(results),
        table_of(_compared(results)),
    ],
    data=lambda results: (
        with_printed(results) | {"closed_forms": [one.as_dict() for one in _compared(results)]}
    ),
    note=note,
    expected=EXPECTED,
    draw=lambda results: draw_heat_maps(results, FOUR),
)
