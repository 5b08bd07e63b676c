"""Kim et al. 2026, figure by figure: mean attention scores with their recency probability, and h(j).

    from posbias_papers.reproduction import reproduce

    made = reproduce("kim2026", ["fig1", "section3"], out="results/kim2026")
    print(*made.claims["fig1"], sep="\\n")

Every figure is one of `figures`, drawn from its tidy table (`table`), which `claims.csv` is put to; `section3`,
the recency probabilities that the text prints, has no picture.
"""

from posbias_papers.kim2026.figures import EFFORT, STUDIES, tables
from posbias_papers.study import OTHERS, Basis, Paper

__all__ = ["PAPER", "STUDIES", "tables"]

PAPER = Paper(
    "kim2026",
    STUDIES,
    tables,
    stated=(20, (1.2, 6)),
    effort=Basis(samples=EFFORT["full"]),
    kinds=("simulated at the paper's effort", OTHERS),
    uses=(("kim2026", "the recency bias that a norm induces, and the recency probability"),),
)
