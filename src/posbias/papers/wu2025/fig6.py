"""Figure 6: gap after training that asks for the first item."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig6",
    "Gap after training that asks for the first item",
    "Which masks and encodings learn a preference for the first item?",
    answers=("first",),
    minutes=(2.4, 158),
)
