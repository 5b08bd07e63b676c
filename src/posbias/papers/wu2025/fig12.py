"""Figure 12: sink metric under prefix masks of 2, 4 and 6 tokens."""

from posbias.papers.wu2025.sinks import prefix_sinks

STUDY, draw = prefix_sinks(
    "wu2025/fig12",
    "Sink metric under prefix masks of 2, 4 and 6 tokens",
    "Are all tokens of the prefix sinks, and not the first alone?",
    minutes=(1.7, 115),
)
