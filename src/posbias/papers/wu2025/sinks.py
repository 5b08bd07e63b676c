"""What is said of attention sinks (Figures 9 to 12, 20 to 23): claims on the metric of Gu et al."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from posbias.claims import Claim
from posbias.papers.wu2025 import quantities as q
from posbias.papers.wu2025.drawing import draw_maps, draw_sinks
from posbias.papers.wu2025.outcomes import Sinks
from posbias.papers.wu2025.settings import Inputs, Setting
from posbias.papers.wu2025.tables import Figure, place_of, trained_study
from posbias.theory.masks import Causal, Mask, Prefix, SlidingWindow

WINDOWS, PREFIXES = (5, 9, 13), (2, 4, 6)


def causal_sinks(*names: str, maps: bool = False, **more: Any) -> Figure:
    """Figure 9, 10, 20 or 21: the causal mask, as attention maps or by token."""
    study, draw = _sinks(*names, masks=[Causal()], claims=_causal, **more)
    return study, draw_maps if maps else draw


def window_sinks(*names: str, **more: Any) -> Figure:
    """Figure 11 or 22: sliding windows."""
    return _sinks(*names, masks=[SlidingWindow(width) for width in WINDOWS], claims=_windows, **more)


def prefix_sinks(*names: str, **more: Any) -> Figure:
    """Figure 12 or 23: prefix masks."""
    return _sinks(*names, masks=[Prefix(length) for length in PREFIXES], claims=_prefixes, **more)


def _sinks(
    *names: str,
    masks: Sequence[Mask],
    claims: Callable[[str, str, Sequence[Setting]], Iterator[Claim]],
    minutes: tuple[float, float],
    inputs: Inputs = "gaussian_mixture",
) -> Figure:
    rows = (False, True)
    cells = [Setting(residual=residual, mask=mask, inputs=inputs) for residual in rows for mask in masks]
    judged = claims(names[0], place_of(names[0]), cells)
    uses = (("xiao2024", "attention sinks"),)
    return trained_study(*names, cells=cells, claims=judged, minutes=minutes, uses=uses), draw_sinks


def _causal(name: str, place: str, cells: Sequence[Setting]) -> Iterator[Claim]:
    first = [(cell.row, cell, 1) for cell in cells]
    sentence = "Under the causal mask the first token draws more than any other"
    yield Claim(f"{name}/1", place, sentence, q.of_sinks(q.margin, first))
    sentence = "… and more than under even attention, and than before training"
    yield Claim(f"{name}/2", place, sentence, _above_nulls(first), provenance="ours")


def _windows(name: str, place: str, cells: Sequence[Setting]) -> Iterator[Claim]:
    ends = [(cells[k].row, cells[k + len(WINDOWS) - 1], cells[k]) for k in (0, len(WINDOWS))]

    def widening(part: Callable[[Sinks], np.ndarray]) -> q.Quantity:
        return q.of_sinks(q.wider, [(*end, part) for end in ends])

    draws = widening(lambda sinks: sinks.trained[:, 0])
    sentence = "The wider the window, the more the first token draws"
    yield Claim(f"{name}/1", place, sentence, draws, strength="hedged")
    # not the paper's words: put beside its claim after that had been judged, since even attention's own value
    # falls as the window widens
    share = widening(lambda sinks: sinks.trained[:, 0] / sinks.trained.sum(axis=1))
    sentence = "… as a part of the metric of all tokens (a reading chosen after the first had failed)"
    yield Claim(f"{name}/2", place, sentence, share, provenance="ours")
    beyond = widening(lambda sinks: sinks.trained[:, 0] - sinks.uniform[0])
    sentence = "… and the more the first token exceeds what even attention gives it"
    yield Claim(f"{name}/3", place, sentence, beyond, provenance="ours")


def _prefixes(name: str, place: str, cells: Sequence[Setting]) -> Iterator[Claim]:
    lengths = [(cell, cell.mask.length) for cell in cells if isinstance(cell.mask, Prefix)]
    first = [(f"{cell.row}, K = {length}", cell, length) for cell, length in lengths]
    sentence = "Each of the K prefix tokens draws more than any other token"
    yield Claim(f"{name}/1", place, sentence, q.of_sinks(q.margin, first))
    sentence = "… and on average more than under even attention, and than before training"
    yield Claim(f"{name}/2", place, sentence, _above_nulls(first), provenance="ours")


def _above_nulls(first: Iterable[tuple[str, Setting, int]]) -> q.Quantity:
    """Of so many first tokens of cells, against both nulls."""
    return q.of_sinks(q.above, [(*place, null) for place in first for null in ("even", "untrained")])
