"""Figure 21: Figure 10, fixed vocabulary."""

from posbias.papers.wu2025.sinks import causal_sinks

STUDY, draw = causal_sinks(
    "wu2025/fig21",
    "Figure 10, fixed vocabulary",
    "Is the first token a sink with a fixed vocabulary too?",
    inputs="fixed_vocabulary",
    minutes=(0.3, 45),
)
