"""Figure 6: mean scores of layers 1 and 2 by anisotropy, with a residual connection; judged beside Figure 5."""

from posbias.claims import Claim
from posbias.papers.kim2026 import fig5
from posbias.papers.kim2026 import quantities as q
from posbias.papers.kim2026.heat_maps import data, draw_heat_maps, tables
from posbias.papers.kim2026.models import ALPHAS, EFFORT, models, note
from posbias.papers.study import Study

ROWS = tuple({"anisotropy": alpha, "residual": True} for alpha in ALPHAS)
CELLS = models(ROWS)
STUDY = Study(
    "kim2026/fig6",
    "Mean scores by anisotropy, with a residual connection",
    "How does recency depend on the angle between embeddings under a residual connection?",
    (*CELLS, *fig5.CELLS),
    (
        *fig5.claims("kim2026/fig6", "Figure 6", CELLS),
        Claim(
            "kim2026/fig6/5",
            "Section 3",
            "A residual connection weakens recency in layer 2, at every anisotropy above 0",
            q.excess([pair for pair in q.pairs(fig5.CELLS, CELLS) if pair[0].anisotropy], 2),
            q.MORE,
        ),
    ),
    EFFORT,
    "draws",
    {"quick": 0.48, "full": 4.8},
    tables=tables(1, 2),
    data=data,
    note=note,
    draw=lambda results: draw_heat_maps(results, ROWS),
)
