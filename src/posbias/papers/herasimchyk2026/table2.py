"""Table 2: Spearman correlation of each level with the measured influence, on each model's first corpus."""

from posbias.papers.herasimchyk2026.scores import score_study

STUDY = score_study(
    "table2",
    "spearman",
    "Spearman correlation of levels (a) to (c) with the measured influence, two models",
    "Does the residual connection make the rollout rank positions as the model does?",
)
