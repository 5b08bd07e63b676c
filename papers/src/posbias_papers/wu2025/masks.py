"""Figure 1: three masks as graphs, their centre nodes, and the walks that information takes through layers.

Nothing is trained for it. How many tokens, which window, which prefix and how many layers are ours: five tokens,
w = 3, K = 2 and two layers, after which the first token has reached the last under each of the masks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence, Near
from posbias.theory.masks import Causal, Mask, Prefix, SlidingWindow
from posbias_papers.claims import AtHand, claims_of
from posbias_papers.study import Results, Study
from posbias_papers.wu2025.settings import EFFORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOKENS, LAYERS = 5, 2
"""What is drawn."""
SHOWN: tuple[Mask, ...] = (Causal(), SlidingWindow(3), Prefix(2))
"""The masks that are drawn."""
LONGEST = 32
"""The tokens up to which centre nodes are looked for, under every window and prefix."""


def draw_masks(results: Results) -> "Figure":
    """The figure; it has no results."""
    from posbias.reports.plots.masks import mask_figure

    return mask_figure(SHOWN, TOKENS, LAYERS)


def _centres() -> Iterator[Evidence]:
    """How many masks have other centre nodes than the first token, or than the prefix."""
    from posbias.theory.graph import centre_nodes

    lengths = range(2, LONGEST + 1)
    cases: dict[str, list[tuple[Mask, int]]] = {
        "causal": [(Causal(), n) for n in lengths],
        "sliding window": [(SlidingWindow(w), n) for n in lengths for w in range(2, n + 1)],
        "prefix": [(Prefix(k), n) for n in lengths for k in range(1, n + 1)],
    }
    for name, masks in cases.items():
        wrong = sum(
            centre_nodes(mask, n).tolist() != [*range(mask.length if isinstance(mask, Prefix) else 1)]
            for mask, n in masks
        )
        yield Evidence(f"{name}, masks that have others of {len(masks)}", Estimate(float(wrong)), test=Near())


_claim = claims_of(
    "wu2025/fig1",
    "Section 4.1, Figure 1",
    scope=f"up to {LONGEST} tokens, every window of two tokens or more, every prefix",
    effort="exact",
)
FIGURE = Study(
    "wu2025/fig1",
    "Three masks as graphs, and walks through layers",
    "Which tokens are centre nodes, and how do they reach the last one through layers?",
    (),
    (
        _claim(
            1,
            "The centre node of causal and sliding-window masks is the first token, those of a prefix mask are "
            "its K prefix tokens",
            AtHand(_centres, "every mask of a kind"),
        ),
    ),
    EFFORT,
    "iterations",
    {"quick": 0.05, "full": 0.05},
    draw=draw_masks,
)
"""Figure 1 as a study without cells."""
