"""Figure 11: sink metric under sliding windows of 5, 9 and 13 tokens."""

from posbias.papers.wu2025.sinks import window_sinks

STUDY, draw = window_sinks(
    "wu2025/fig11",
    "Sink metric under sliding windows of 5, 9 and 13 tokens",
    "Is the first token more of a sink the wider the window?",
    minutes=(1.8, 123),
)
