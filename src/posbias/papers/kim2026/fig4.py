"""Figure 4: mean scores of the four models in 256 and 1,024 dimensions."""

from collections.abc import Iterator

from posbias.claims import Claim, Near
from posbias.papers.kim2026 import quantities as q
from posbias.papers.kim2026.heat_maps import data, draw_heat_maps, tables
from posbias.papers.kim2026.models import ANISOTROPIC, BARE, EFFORT, FOUR, ISOTROPIC, RESIDUAL, models, note
from posbias.papers.study import Study

WIDE = (256, 1024)


def _claims() -> Iterator[Claim]:
    name, plain, residual = "kim2026/fig4", models(ANISOTROPIC, WIDE), models(RESIDUAL, WIDE)
    yield Claim(
        f"{name}/1",
        "Figure 4",
        "Without LayerNorm the recency probability of layer 2 is close to one half in 256 and 1,024 dimensions",
        q.probability(models(BARE, WIDE), 2),
        Near(0.5, q.CLOSE),
    )
    yield Claim(
        f"{name}/2",
        "Theorem 1",
        "With LayerNorm isotropic embeddings prefer recent keys in 256 and 1,024 dimensions (Theorem 1, d ≫ 1)",
        q.probability(models(ISOTROPIC, WIDE), 2),
        q.RECENT,
    )
    yield Claim(
        f"{name}/3",
        "Figure 4",
        "With anisotropic embeddings mean scores of layer 2 rise along every row, at d = 256 and 1,024",
        q.rising((*plain, *residual), 2),
    )
    for number, (place, words) in enumerate(((0, "256"), (1, "1,024")), start=4):
        yield Claim(
            f"{name}/{number}",
            "Figure 4",
            f"With anisotropic embeddings {words} dimensions show recency in layer 2, to four digits",
            q.probability((plain[place], residual[place]), 2),
            q.VISIBLE,
        )
    yield Claim(
        f"{name}/6",
        "Figure 4",
        "Recency weakens with the dimension: its probability in layer 2 is higher at d = 256 than at 1,024",
        q.narrow_excess(q.pairs(plain[:1] + residual[:1], plain[1:] + residual[1:])),
        q.MORE,
    )


STUDY = Study(
    "kim2026/fig4",
    "Mean scores of the four models, d = 256 and 1,024",
    "Does the preference for recent keys persist in wide models?",
    models(FOUR, WIDE),
    tuple(_claims()),
    EFFORT,
    "draws",
    {"quick": 0.19, "full": 1.9},
    tables=tables(1, 2),
    data=data,
    note=note,
    draw=lambda results: draw_heat_maps(results, FOUR, dimensions=WIDE),
)
