"""Section 3: the recency probabilities that the text prints, and what it says of them."""

from collections.abc import Iterator

from posbias.claims import Claim, Near
from posbias.papers.kim2026 import quantities as q
from posbias.papers.kim2026.heat_maps import printed_table, with_printed
from posbias.papers.kim2026.models import (
    ANISOTROPIC,
    BARE,
    EFFORT,
    EXPECTED,
    ISOTROPIC,
    PRINTED,
    RESIDUAL,
    models,
    note,
    probabilities,
    where_of,
)
from posbias.papers.study import Study

CELLS = (*models(BARE), *(model for _, model in PRINTED))


def _claims() -> Iterator[Claim]:
    name, place = "kim2026/section3", "Section 3"
    isotropic, plain, residual = models(ISOTROPIC), models(ANISOTROPIC), models(RESIDUAL)
    for number, (printed, model) in enumerate(PRINTED, start=1):
        sentence = f"The recency probability of {where_of(model, 2)}, is {printed}"
        yield Claim(f"{name}/{number}", place, sentence, q.printed(printed, model), strength="printed")
    yield Claim(
        f"{name}/7",
        place,
        "Without LayerNorm the recency probability of layers 1 and 2 is close to one half (within .01)",
        q.probability(models(BARE), 1, 2),
        Near(0.5, q.CLOSE),
    )
    yield Claim(
        f"{name}/8",
        place,
        "With LayerNorm and isotropic embeddings, 16 dimensions show a mild recency in layer 2",
        q.probability(isotropic[:1], 2),
        q.RECENT,
    )
    yield Claim(
        f"{name}/9",
        place,
        "With LayerNorm and isotropic embeddings, 64 dimensions show no recency in layer 2, to four digits",
        q.probability(isotropic[1:], 2),
        Near(0.5, q.DIGIT),
    )
    yield Claim(
        f"{name}/10",
        place,
        "Anisotropic embeddings prefer recent keys in layer 2, with a residual connection or without",
        q.probability((*plain, *residual), 2),
        q.RECENT,
    )
    yield Claim(
        f"{name}/11",
        place,
        "Anisotropy strengthens recency: the probability of layer 2 is higher at α = 0.5 than at α = 0",
        q.excess(q.pairs(plain, isotropic), 2),
        q.MORE,
    )
    yield Claim(
        f"{name}/12",
        place,
        "A residual connection weakens it: the probability of layer 2 is lower with than without",
        q.excess(q.pairs(plain, residual), 2),
        q.MORE,
    )
    yield Claim(
        f"{name}/13",
        place,
        "Fewer dimensions show more: the probability of layer 2 is higher at d = 16 than at d = 64",
        q.narrow_excess(q.pairs(*zip(isotropic, plain, residual, strict=True))),
        q.MORE,
    )


STUDY = Study(
    "kim2026/section3",
    "The recency probabilities printed in Section 3",
    "Are the printed recency probabilities those of the model they are said to be of?",
    CELLS,
    tuple(_claims()),
    EFFORT,
    "draws",
    {"quick": 0.19, "full": 1.9},
    tables=lambda results: [probabilities(results, (1, 2)), printed_table(results)],
    data=with_printed,
    note=note,
    expected=EXPECTED,
)
