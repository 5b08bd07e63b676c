"""Figure 23: Figure 12, fixed vocabulary."""

from posbias.papers.wu2025.sinks import prefix_sinks

STUDY, draw = prefix_sinks(
    "wu2025/fig23",
    "Figure 12, fixed vocabulary",
    "Are all tokens of a prefix sinks with a fixed vocabulary too?",
    inputs="fixed_vocabulary",
    minutes=(0.7, 115),
)
