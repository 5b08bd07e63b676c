"""Figure 7: gap after training that asks for the middle item."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig7",
    "Gap after training that asks for the middle item",
    "Which masks and encodings learn a preference for the middle item?",
    answers=("middle",),
    minutes=(2.4, 158),
)
