"""Figure 22: Figure 11, fixed vocabulary."""

from posbias.papers.wu2025.sinks import window_sinks

STUDY, draw = window_sinks(
    "wu2025/fig22",
    "Figure 11, fixed vocabulary",
    "Is the first token more of a sink under wider windows with a fixed vocabulary too?",
    inputs="fixed_vocabulary",
    minutes=(0.7, 123),
)
