"""Figure 5: gap by depth up to ten layers, with residual connections."""

from posbias.papers.wu2025.depth import with_residuals

STUDY, draw = with_residuals(
    "wu2025/fig5",
    "Gap by depth up to ten layers, with residual connections",
    "With residual connections, does the bias still grow with depth, or rise and fall?",
    minutes=(12, 1625),
)
