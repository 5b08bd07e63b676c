"""Figure 9: attention maps of two-layer causal networks."""

from posbias.papers.wu2025.sinks import causal_sinks

STUDY, draw = causal_sinks(
    "wu2025/fig9",
    "Attention maps of two-layer causal networks",
    "Does attention gather on the first token when nothing in the data prefers it?",
    maps=True,
    minutes=(0.7, 45),
)
