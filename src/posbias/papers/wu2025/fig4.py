"""Figure 4: gap by depth, attention layers alone."""

from posbias.papers.wu2025.depth import pure_attention

STUDY, draw = pure_attention(
    "wu2025/fig4",
    "Gap by depth, attention layers alone",
    "Does each further layer without residual connections favour earlier items more?",
    minutes=(5.1, 461),
)
