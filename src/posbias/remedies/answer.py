"""What remedies change: the same trials plain and treated, differences within trials, what it took.

All differences hold together: each interval (Student's t over trials) is as wide as the number of remedies times
that of gaps needs it to be (Bonferroni).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import MEAN, gaps_of, resampled
from posbias.profiles.place_differences import CurveDifference
from posbias.profiles.places import DIFFERENCE, NATS, Places

PLAIN = "plain"


class Took(NamedTuple):
    """What an answer takes: requests, words and marks in them (without a last prompt of `divide`), seconds."""

    requests: float
    words: float
    seconds: float = math.nan


@dataclass(frozen=True)
class RemedyAnswer:
    """Results by remedy, plain first, and what each answer took; `equivalence`: what counts as no difference."""

    results: Mapping[str, Places]
    took: Mapping[str, Took]
    equivalence: float

    @cached_property
    def changes(self) -> dict[str, CurveDifference]:
        """By remedy what it changes, less plain: the mean over places, and each gap."""
        others = {name: one for name, one in self.results.items() if name != PLAIN}
        return {name: self._change(name, one, len(others)) for name, one in others.items()}

    def effect(self, name: str) -> str:
        """What a remedy does: less or more bias, bias moved, no difference, inconclusive; of plain the verdict.

        A gap has changed where its interval leaves out 0, and is less where it is nearer to 0 than plain's.
        """
        if name == PLAIN:
            return self.results[PLAIN].verdict
        change, after, before = self.changes[name], self.results[name].deciding, self.results[PLAIN].deciding
        less = [abs(after[gap].value) < abs(before[gap].value) for gap in change.changed]
        how = "less bias" if all(less) else "bias moved" if any(less) else "more bias"
        return how if less else change.verdict

    def at_most(self, name: str) -> float:
        """What a remedy changes no gap by more than, by 90 % intervals that all hold together; NaN of plain."""
        numbers = self.changes[name].numbers if name in self.changes else {}
        return max((one.at_most for gap, one in numbers.items() if gap != MEAN), default=math.nan)

    def _change(self, name: str, treated: Places, remedies: int) -> CurveDifference:
        plain = self.results[PLAIN]
        before, after = (one.results[one.measures] for one in (plain, treated))
        rows = gaps_of(after - before)
        mean, together = {MEAN: (after - before).mean(axis=1)}, remedies * (1 + len(rows))
        numbers = {gap: Estimate.of_mean(held).jointly(together) for gap, held in (mean | rows).items()}
        if plain.measures not in NATS:
            numbers = resampled({DIFFERENCE: mean, (-2.0, 2.0): rows}, together=together, resamples=0)
        dull = tuple(way for way, one in ((PLAIN, plain), (name, treated)) if not one.able)
        sizes = len(before), len(after)
        return CurveDifference(name, PLAIN, numbers, dull, sizes, True, plain.measures, self.equivalence)
