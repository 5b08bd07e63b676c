"""Figure 10: sink metric under the causal mask."""

from posbias.papers.wu2025.sinks import causal_sinks

STUDY, draw = causal_sinks(
    "wu2025/fig10",
    "Sink metric under the causal mask",
    "Is the first token a sink, beyond what even attention and untrained networks give it?",
    minutes=(0.7, 45),
)
