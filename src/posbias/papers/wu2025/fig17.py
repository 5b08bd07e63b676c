"""Figure 17: Figure 7, fixed vocabulary."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig17",
    "Figure 7, fixed vocabulary",
    "Is a preference for the middle item learnt with a fixed vocabulary too?",
    answers=("middle",),
    inputs="fixed_vocabulary",
    minutes=(0.9, 158),
)
