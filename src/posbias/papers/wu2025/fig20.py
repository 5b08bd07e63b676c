"""Figure 20: Figure 9, fixed vocabulary."""

from posbias.papers.wu2025.sinks import causal_sinks

STUDY, draw = causal_sinks(
    "wu2025/fig20",
    "Figure 9, fixed vocabulary",
    "Does attention gather on the first token with a fixed vocabulary too?",
    maps=True,
    inputs="fixed_vocabulary",
    minutes=(0.3, 45),
)
