"""Table 5: Wasserstein distance of each level from the measured influence, on every corpus."""

from posbias.papers.herasimchyk2026.scores import score_study

STUDY = score_study(
    "table5",
    "wasserstein",
    "Wasserstein distance for every model and text",
    "Is residual-aware nearer than attention-only on every text, and is constant content nearer still?",
)
