"""Figure 2: the key factor h(j) by anisotropy, in both readings of its closed form."""

from posbias.papers.kim2026.closed_forms import key_factor_study

STUDY = key_factor_study(
    "kim2026/fig2",
    "Key factor h(j) by anisotropy",
    "Does the closed form rise with the key, and faster for anisotropic embeddings?",
    residual=False,
)
