"""Table 3: Wasserstein distance of each level from the measured influence, on each model's first corpus."""

from posbias.papers.herasimchyk2026.scores import score_study

STUDY = score_study(
    "table3",
    "wasserstein",
    "Wasserstein distance of levels (a) to (c) from the measured influence, two models",
    "Does the residual connection bring the rollout near the measured influence?",
)
