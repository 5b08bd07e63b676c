"""Figure 18: Figure 8, fixed vocabulary."""

from posbias.papers.wu2025.biased_training import biased_training

STUDY, draw = biased_training(
    "wu2025/fig18",
    "Figure 8, fixed vocabulary",
    "Is a preference for the last item learnt with a fixed vocabulary too?",
    answers=("last",),
    inputs="fixed_vocabulary",
    minutes=(0.9, 158),
)
