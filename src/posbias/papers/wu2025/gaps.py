"""The gaps of trained networks, and what is claimed of them as effects (`posbias.claims` judges).

Networks that have not learnt to retrieve from their context say nothing about position; they are left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from posbias.claims import LEAST, Above, Below, Evidence, Judged, Near, difference, judged_sentence, mean
from posbias.estimate import Estimate

PAIRS = ("first-middle", "first-last", "middle-last")
"""The pairs of items whose accuracies are compared."""
LEARNT = 0.3
"""In-context accuracy from which a network counts as having learnt to copy a label of its context (about ½;
guessing among all 32 labels: 0.03)."""
NETWORKS = "networks that learnt to retrieve"


@dataclass(frozen=True)
class Gaps:
    """A cell's accuracy gaps by pair, [member], with loss and in-context accuracy, [member].

    `informative` are the gaps on the sequences where the compared labels differ. NaN for a stopped member.
    """

    gaps: Mapping[str, Float[np.ndarray, "member"]]
    accuracy: Float[np.ndarray, "member"]
    loss: Float[np.ndarray, "member"]
    informative: Mapping[str, Float[np.ndarray, "member"]]

    @property
    def means(self) -> tuple[float, float]:
        """In-context accuracy and loss, over all networks that were not stopped; NaN if all were."""
        kept = np.isfinite(self.loss)
        if not kept.any():
            return math.nan, math.nan
        return float(self.accuracy[kept].mean()), float(self.loss[kept].mean())

    @property
    def learnt(self) -> np.ndarray:
        """Which members have learnt: finite, and at least `LEARNT` accurate in context."""
        finite = np.isfinite(self.loss) & np.isfinite(np.stack([self.gaps[pair] for pair in PAIRS])).all(
            axis=0
        )
        return finite & (self.accuracy >= LEARNT)

    def of(self, pair: str) -> Float[np.ndarray, "network"]:
        """The gap of those that have learnt."""
        return np.asarray(self.gaps[pair], dtype=np.float64)[self.learnt]


def signed(where: str, cell: Gaps, pair: str, sign: int = 1) -> Evidence:
    """That a cell's gap is above zero (sign 1) or below it (−1)."""
    return mean(f"{where} {pair}", cell.of(pair), draws=NETWORKS, test=Above() if sign > 0 else Below())


def null(where: str, cell: Gaps) -> tuple[Evidence, ...]:
    """That all gaps of a cell are near zero."""
    return tuple(mean(f"{where} {pair}", cell.of(pair), draws=NETWORKS, test=Near()) for pair in PAIRS)


def rises(where: str, deep: Gaps, shallow: Gaps, pair: str = "first-last") -> Evidence:
    """That a gap is larger in one cell than in another."""
    return difference(f"{where} {pair}", deep.of(pair), shallow.of(pair), draws=NETWORKS, test=Above())


def present(where: str, cell: Gaps, pair: str = "first-last") -> Evidence:
    """That a gap is there, whichever its sign: the p-value is that of the sign found, twice."""
    gap = mean(f"{where} |{pair}|", cell.of(pair), draws=NETWORKS, test=Above())
    return gap if gap.flaw else replace(gap, estimate=_size(gap.estimate), picked=2)


def _size(estimate: Estimate) -> Estimate:
    """Its absolute value."""
    return estimate if estimate.value >= 0 else -estimate


def spared(where: str, cell: Gaps) -> Evidence:
    """That a cell is not lost in the middle: that the first or the last item is not ahead of the middle one.

    It holds if one of the two is surely ahead by less than `LEAST` (Bonferroni over both), and fails if both are
    surely ahead. The effect is what the surer one lacks of `LEAST`.
    """
    ends = [signed(where, cell, "first-middle"), signed(where, cell, "middle-last", -1)]
    if any(end.flaw for end in ends):
        return Evidence(f"{where}, not lost in the middle", flaw=ends[0].flaw or ends[1].flaw)
    surer = min(ends, key=lambda end: end.against)
    opposite = max(end.p for end in ends)
    lead = surer.estimate if surer is ends[0] else -surer.estimate
    lacks = f"{where}, {LEAST} − ({'first − middle' if surer is ends[0] else 'last − middle'})"
    return Evidence(lacks, Estimate(LEAST) - lead, test=Above(), picked=2, opposite=opposite)


def interaction(where: str, one: tuple[Gaps, Gaps], other: tuple[Gaps, Gaps], pair: str) -> Evidence:
    """That a gap changes from the first to the second cell of `one` otherwise than in `other`, either way.

    All four cells have networks of their own (Welch's test of the difference of differences, two-sided).
    """
    cells = [cell.of(pair) for cell in (*one, *other)]
    fewest = min(values.size for values in cells)
    if fewest < 2:
        return Evidence(f"{where} |{pair}|", flaw=f"{NETWORKS}: {fewest}, two needed", test=Above())
    before, after, other_before, other_after = map(Estimate.of, cells)
    change = (after - before) - (other_after - other_before)
    return Evidence(f"{where} |{pair}|", _size(change), test=Above(), picked=2)


def surest(effects: Sequence[Evidence]) -> Evidence:
    """The surest of effects of which one at least is claimed, its p-value times their number.

    It fails where each of them does; one that decides nothing might be the one. Raises nothing: of flawed
    effects alone the first stands for all.
    """
    sound = [one for one in effects if not one.flaw]
    if not sound:
        return effects[0]
    return _surest(sound, len(sound), whole=len(sound) == len(effects))


def turns(sentence: str, series: Mapping[str, Mapping[str, Gaps]], pair: str = "first-last") -> Judged:
    """That a gap both rises and falls along at least one series of named cells, from neighbour to neighbour.

    Its two effects are the surest rise and the surest fall of the series where both are surest, their p-values
    times the number of steps looked at. It fails only if every series surely lacks a rise, or a fall, at each of
    its steps; a step from or to a cell that has not learnt might be one.
    """
    steps = [
        [rises(f"{name}, {a} to {b},", cells[b], cells[a], pair) for a, b in pairwise(cells)]
        for name, cells in series.items()
    ]
    whole = not any(step.flaw for one in steps for step in one)
    steps = [[step for step in one if not step.flaw] for one in steps]
    tests = sum(map(len, steps))
    found = [
        tuple(
            _surest([replace(step, test=test) for step in sound], tests, whole) for test in (Above(), Below())
        )
        for sound in steps
        if len(sound) > 1
    ]
    if not found:
        return judged_sentence(
            sentence, [Evidence(pair, flaw="fewer than two steps between cells that learnt")]
        )
    series_judged = [judged_sentence(sentence, both) for both in found]
    left = [one for one in series_judged if one.verdict != "fails"] or series_judged
    return min(left, key=lambda one: max(piece.p for piece in one.evidence))


def _surest(steps: list[Evidence], tests: int, whole: bool) -> Evidence:
    """The surest of effects of which one at least is claimed; it fails, if these are all, where each does."""
    opposite = max(step.against for step in steps) if whole else 1.0
    one = min(steps, key=lambda step: step.p)
    return replace(one, picked=one.picked * tests, opposite=opposite)
