"""Figure 15: Figure 3, fixed vocabulary."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig15",
    "Figure 3, fixed vocabulary",
    "Is a preference for both ends learnt with a fixed vocabulary too?",
    answers=("first", "last"),
    inputs="fixed_vocabulary",
    minutes=(0.9, 158),
)
