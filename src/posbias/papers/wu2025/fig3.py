"""Figure 3: gap after training that asks for the first and the last item."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig3",
    "Gap after training that asks for the first and the last item",
    "Does the causal mask let a network learn a preference for either end, and does the middle get lost?",
    answers=("first", "last"),
    minutes=(2.4, 158),
)
