"""Figure 7: the key factor h(j) by anisotropy, with a residual connection, in both readings of its closed form."""

from posbias.papers.kim2026.closed_forms import key_factor_study

STUDY = key_factor_study(
    "kim2026/fig7",
    "Key factor h(j) by anisotropy, with a residual connection",
    "Does the closed form rise with the key under a residual connection?",
    residual=True,
)
