"""Figure 16: Figure 6, fixed vocabulary."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig16",
    "Figure 6, fixed vocabulary",
    "Is a preference for the first item learnt with a fixed vocabulary too?",
    answers=("first",),
    inputs="fixed_vocabulary",
    minutes=(0.9, 158),
)
