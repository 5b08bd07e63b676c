"""Figure 14: Figure 5, fixed vocabulary."""

from posbias.papers.wu2025.depth import with_residuals

STUDY, draw = with_residuals(
    "wu2025/fig14",
    "Figure 5, fixed vocabulary",
    "With residual connections and a fixed vocabulary, does every pair of layers add to the bias?",
    inputs="fixed_vocabulary",
    minutes=(6.9, 1625),
)
