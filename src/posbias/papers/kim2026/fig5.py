"""Figure 5: mean scores of layers 1 and 2 by anisotropy; and the claims that Figure 6 repeats."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from posbias.claims import Claim, Near
from posbias.papers.kim2026 import quantities as q
from posbias.papers.kim2026.heat_maps import data, draw_heat_maps, tables
from posbias.papers.kim2026.models import ALPHAS, EFFORT, models, note
from posbias.papers.study import Study
from posbias.simulation import RecencyModel

ROWS = tuple({"anisotropy": alpha, "residual": False} for alpha in ALPHAS)


def claims(name: str, place: str, cells: Sequence[RecencyModel]) -> Iterator[Claim]:
    """What is said of a figure by anisotropy."""
    by_dimension = [[model for model in cells if model.dimension == d] for d in (16, 64)]
    ordered = [model for row in by_dimension for model in row]
    yield Claim(
        f"{name}/1",
        "Proposition 3",
        "At every anisotropy above 0 mean scores of layer 2 rise along every row (Proposition 3)",
        q.rising([model for model in ordered if model.anisotropy], 2),
    )
    yield Claim(
        f"{name}/2",
        place,
        "At α = 0 too mean scores of layer 2 rise along every row",
        q.rising([model for model in ordered if not model.anisotropy], 2),
    )
    yield Claim(
        f"{name}/3",
        place,
        "The more anisotropic the embeddings, the higher the recency probability of layer 2",
        q.excess([(more, less) for row in by_dimension for less, more in pairwise(row)], 2),
        q.MORE,
    )
    yield Claim(
        f"{name}/4",
        place,
        "The first layer prefers neither end, at any anisotropy (recency probability one half, within .001)",
        q.probability(ordered, 1),
        Near(0.5, q.FIRST_LAYER),
    )


CELLS = models(ROWS)
STUDY = Study(
    "kim2026/fig5",
    "Mean scores by anisotropy",
    "How does recency depend on the angle between embeddings?",
    CELLS,
    tuple(claims("kim2026/fig5", "Figure 5", CELLS)),
    EFFORT,
    "draws",
    {"quick": 0.24, "full": 2.4},
    tables=tables(1, 2),
    data=data,
    note=note,
    draw=lambda results: draw_heat_maps(results, ROWS),
)
