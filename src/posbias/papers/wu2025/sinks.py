"""What the paper says of attention sinks (Figures 9 to 12, 20 to 23; Appendix K.4), as claims on their metric."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from posbias.claims import Evidence, Judged, difference, judged_sentence, mean
from posbias.papers.wu2025.figures import Setting, SinkFigure, settings_of
from posbias.theory.masks import Prefix, SlidingWindow


@dataclass(frozen=True)
class Sinks:
    """The sink metric of a cell's networks, its two nulls, and which networks have learnt."""

    trained: Float[np.ndarray, "network token"]
    untrained: Float[np.ndarray, "network token"]
    uniform: Float[np.ndarray, "token"]
    learnt: Bool[np.ndarray, "network"]

    @property
    def kept(self) -> "Sinks":
        """The same of those that have learnt."""
        some = self.learnt
        return Sinks(self.trained[some], self.untrained[some], self.uniform, self.learnt[some])


def sink_claims(figure: SinkFigure, sinks: Mapping[Setting, Sinks]) -> list[Judged]:
    """The claims of Figures 9 to 12 and 20 to 23."""
    rows = {
        title: [(cell, sinks[cell].kept) for cell in panels.values()] for title, panels in figure.rows.items()
    }
    mask = next(settings_of(figure)).mask
    if isinstance(mask, Prefix):
        return _prefix_claims(rows)
    if isinstance(mask, SlidingWindow):
        return _window_claims(rows)
    return [
        judged_sentence(
            "Under the causal mask the first token draws more than any other",
            tuple(mean(row, _margin(one, 1)) for row, [(_, one)] in rows.items()),
        ),
        judged_sentence(
            "… and more than under even attention, and than before training",
            tuple(effect for row, [(_, one)] in rows.items() for effect in _above_nulls(row, one, 1)),
        ),
    ]


def _window_claims(rows: Mapping[str, list[tuple[Setting, Sinks]]]) -> list[Judged]:
    ends = {row: (cells[0][1], cells[-1][1]) for row, cells in rows.items()}
    return [
        judged_sentence(
            "The wider the window, the more the first token draws",
            tuple(
                difference(row, wide.trained[:, 0], narrow.trained[:, 0])
                for row, (narrow, wide) in ends.items()
            ),
        ),
        # not the paper's words: put beside its claim after that had been judged, since even attention's own
        # value falls as the window widens
        judged_sentence(
            "… as a part of the metric of all tokens (a reading chosen after the first had failed)",
            tuple(
                difference(row, *(one.trained[:, 0] / one.trained.sum(axis=1) for one in (wide, narrow)))
                for row, (narrow, wide) in ends.items()
            ),
        ),
        judged_sentence(
            "… and the more the first token exceeds what even attention gives it",
            tuple(
                difference(row, *(one.trained[:, 0] - one.uniform[0] for one in (wide, narrow)))
                for row, (narrow, wide) in ends.items()
            ),
        ),
    ]


def _prefix_claims(rows: Mapping[str, list[tuple[Setting, Sinks]]]) -> list[Judged]:
    each = [
        (f"{row}, K = {cell.mask.length}", cell.mask.length, one)
        for row, cells in rows.items()
        for cell, one in cells
        if isinstance(cell.mask, Prefix)
    ]
    return [
        judged_sentence(
            "Each of the K prefix tokens draws more than any other token",
            tuple(mean(where, _margin(one, length)) for where, length, one in each),
        ),
        judged_sentence(
            "… and on average more than under even attention, and than before training",
            tuple(effect for where, length, one in each for effect in _above_nulls(where, one, length)),
        ),
    ]


def _margin(sinks: Sinks, first: int) -> Float[np.ndarray, "network"]:
    """By how much the least of the first tokens is ahead of the greatest of the others, per network."""
    return sinks.trained[:, :first].min(axis=1) - sinks.trained[:, first:].max(axis=1)


def _above_nulls(where: str, sinks: Sinks, first: int) -> tuple[Evidence, Evidence]:
    trained = sinks.trained[:, :first].mean(axis=1)
    return (
        mean(f"{where}, less even", trained - sinks.uniform[:first].mean()),
        mean(f"{where}, less untrained", trained - sinks.untrained[:, :first].mean(axis=1)),
    )
