"""What is said of attention sinks (Figures 9 to 12, 20 to 23): claims on the metric of Gu et al."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from posbias.profiles.claims import Claim
from posbias.profiles.evidence import LEAST
from posbias.theory.masks import Prefix, SlidingWindow
from posbias_papers.claims import Maker, Quantity
from posbias_papers.wu2025 import quantities as q
from posbias_papers.wu2025.outcomes import Sinks
from posbias_papers.wu2025.settings import Setting

BEYOND_NULLS = "than under even attention, and than before training"
"""How claims end that hold trained networks against what masks alone give."""


def causal(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figures 9, 10, 20 and 21."""
    first = [(cell.row, cell, 1) for cell in cells]
    margin = q.of_sinks(q.margin, first)
    sentence = "Attention sinks emerge on the first token under the causal mask: it draws more than any other"
    yield claim(1, sentence, margin, provenance="paper")
    sentence = f"Under the causal mask the first token draws more {BEYOND_NULLS}"
    yield claim(2, sentence, _above_nulls(first), provenance="ours")


def windows(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figures 11 and 22."""
    half = len(cells) // 2
    ends = [(row[0].row, row[-1], row[0]) for row in (cells[:half], cells[half:])]

    def widening(part: Callable[[Sinks], np.ndarray]) -> Quantity:
        return q.of_sinks(q.wider, [(*end, part) for end in ends])

    draws = widening(lambda sinks: sinks.trained[:, 0])
    sentence = "Sinks tend to emerge on the first token when the window is wider: it then draws more"
    yield claim(1, sentence, q.mostly(draws), provenance="paper", strength="hedged")
    # not the paper's words: put beside its claim after that had been judged, since even attention's own value
    # falls as the window widens
    share = widening(lambda sinks: sinks.trained[:, 0] / sinks.trained.sum(axis=1))
    sentence = "The wider the window, the greater the first token's part of the metric of all tokens"
    yield claim(2, sentence, share, provenance="ours")
    beyond = widening(lambda sinks: sinks.trained[:, 0] - sinks.uniform[0])
    sentence = "The wider the window, the more the first token exceeds what even attention gives it"
    yield claim(3, sentence, beyond, provenance="ours")

    steps = [
        (f"{narrow.row}, window {narrow.mask.width} to {wide.mask.width}", wide, narrow)
        for row in (cells[:half], cells[half:])
        for narrow, wide in pairwise(row)
        if isinstance(narrow.mask, SlidingWindow) and isinstance(wide.mask, SlidingWindow)
    ]
    each = q.of_sinks(q.wider, [(*step, lambda sinks: sinks.trained[:, 0]) for step in steps])
    sentence = (
        "Sinks tend to emerge when w is larger: the first token draws more under each wider of the windows"
    )
    yield claim(4, sentence, q.mostly(each), provenance="paper", strength="hedged")
    about = {"place": "Section 4.1, attention sink and center node", "provenance": "ours"}
    named = [(cell.row, cell.mask.width, cell) for cell in cells if isinstance(cell.mask, SlidingWindow)]
    places = [(f"{row}, window {width}", cell, width) for row, width, cell in named]
    sentence = f"No sink stands on the first token within each window: it draws less than {LEAST} above even"
    yield claim(5, sentence, q.of_attention(q.none_within, places), **about)
    sentence = (
        "The absolute first token is further above even attention than the first token within each window"
    )
    yield claim(6, sentence, q.of_attention(q.absolute_first, places), **about)


def prefixes(claim: Maker, cells: Sequence[Setting]) -> Iterator[Claim]:
    """Claims of Figures 12 and 23."""
    lengths = [(cell, cell.mask.length) for cell in cells if isinstance(cell.mask, Prefix)]
    first = [(f"{cell.row}, K = {length}", cell, length) for cell, length in lengths]
    margin = q.of_sinks(q.margin, first)
    sentence = "Each of the K prefix tokens draws more than any other token"
    yield claim(1, sentence, margin, provenance="ours")
    sentence = f"The K prefix tokens draw on average more {BEYOND_NULLS}"
    yield claim(2, sentence, _above_nulls(first), provenance="ours")
    sentence = (
        "Sinks emerge on the K prefix tokens, not on the first alone: each draws more than later ones do"
    )
    yield claim(3, sentence, q.of_sinks(q.beyond_average, first), provenance="paper")


def _above_nulls(first: Iterable[tuple[str, Setting, int]]) -> Quantity:
    """Of so many first tokens of cells, against both nulls."""
    return q.of_sinks(q.above, [(*place, null) for place in first for null in ("even", "untrained")])
