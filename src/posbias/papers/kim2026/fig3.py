"""Figure 3: mean scores of the four models in layers 3 and 4."""

from collections.abc import Iterator

from posbias.claims import Below, Claim, Near
from posbias.papers.kim2026 import quantities as q
from posbias.papers.kim2026.heat_maps import data, draw_heat_maps, tables
from posbias.papers.kim2026.models import ANISOTROPIC, BARE, EFFORT, FOUR, ISOTROPIC, RESIDUAL, models, note
from posbias.papers.study import Study


def _claims() -> Iterator[Claim]:
    name, plain, residual = "kim2026/fig3", models(ANISOTROPIC), models(RESIDUAL)
    yield Claim(
        f"{name}/1",
        "Section 3",
        "Without LayerNorm the recency probability of layers 3 and 4 is close to one half (within .01)",
        q.probability(models(BARE), 3, 4),
        Near(0.5, q.CLOSE),
    )
    yield Claim(
        f"{name}/2",
        "Section 3",
        "Without LayerNorm layers 3 and 4 prefer earlier keys",
        q.probability(models(BARE), 3, 4),
        Below(0.5, q.DIGIT),
    )
    yield Claim(
        f"{name}/3",
        "Figure 3",
        "With LayerNorm and anisotropic embeddings mean scores of layers 3 and 4 rise along every row",
        q.rising((*plain, *residual), 3, 4),
    )
    yield Claim(
        f"{name}/4",
        "Figure 3",
        "With LayerNorm and isotropic embeddings layers 3 and 4 prefer recent keys, in 16 dimensions",
        q.probability(models(ISOTROPIC, [16]), 3, 4),
        q.RECENT,
    )
    yield Claim(
        f"{name}/5",
        "Figure 3",
        "With LayerNorm and isotropic embeddings layers 3 and 4 show no recency in 64 dimensions, to four digits",
        q.probability(models(ISOTROPIC, [64]), 3, 4),
        Near(0.5, q.DIGIT),
    )
    yield Claim(
        f"{name}/6",
        "Figure 3",
        "Recency grows with depth: its probability rises from layer 2 to 3 and from 3 to 4",
        q.growth((*models(ISOTROPIC, [16]), *plain, *residual), 2, 3),
        q.MORE,
    )
    yield Claim(
        f"{name}/7",
        "Figure 3",
        "A residual connection weakens recency in layers 3 and 4 too",
        q.excess(q.pairs(plain, residual), 3, 4),
        q.MORE,
    )


STUDY = Study(
    "kim2026/fig3",
    "Mean scores of the four models, layers 3 and 4",
    "Does the preference for recent keys persist in further layers?",
    models(FOUR),
    tuple(_claims()),
    EFFORT,
    "draws",
    {"quick": 0.19, "full": 1.9},
    tables=tables(3, 4),
    data=data,
    note=note,
    draw=lambda results: draw_heat_maps(results, FOUR, layers=(3, 4)),
)
