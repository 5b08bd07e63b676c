"""Figure 24: caption of Figures 21 to 23."""

from posbias.papers.wu2025 import fig21, fig22, fig23
from posbias.papers.wu2025.tables import caption_of

STUDY = caption_of(
    "wu2025/fig24",
    "Caption of Figures 21 to 23",
    "Are there sinks with a fixed vocabulary, under each of the three masks?",
    parts=[fig21.STUDY, fig22.STUDY, fig23.STUDY],
    minutes=(1.7, 283),
)
