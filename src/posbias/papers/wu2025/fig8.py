"""Figure 8: gap after training that asks for the last item."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig8",
    "Gap after training that asks for the last item",
    "Which masks and encodings learn a preference for the last item?",
    answers=("last",),
    minutes=(2.4, 158),
)
