"""Figure 19: caption of Figures 15 to 18."""

from posbias.papers.wu2025 import fig15, fig16, fig17, fig18
from posbias.papers.wu2025.tables import caption_of

STUDY = caption_of(
    "wu2025/fig19",
    "Caption of Figures 15 to 18",
    "Do networks with a fixed vocabulary learn the preferences of their training data?",
    parts=[fig15.STUDY, fig16.STUDY, fig17.STUDY, fig18.STUDY],
    minutes=(3.8, 631),
)
