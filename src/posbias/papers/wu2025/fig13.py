"""Figure 13: Figure 4, fixed vocabulary."""

from posbias.papers.wu2025.depth import pure_attention

STUDY, draw = pure_attention(
    "wu2025/fig13",
    "Figure 4, fixed vocabulary",
    "Does depth favour earlier items when inputs are a fixed set of correlated vectors?",
    inputs="fixed_vocabulary",
    minutes=(2.8, 461),
)
