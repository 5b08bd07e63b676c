"""Table 4: Spearman correlation of each level with the measured influence, on every corpus."""

from posbias.papers.herasimchyk2026.scores import score_study

STUDY = score_study(
    "table4",
    "spearman",
    "Spearman correlation for every model and text",
    "Is residual-aware better than attention-only on every text, and is constant content better still?",
)
