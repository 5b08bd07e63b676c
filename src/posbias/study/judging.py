"""Claims of a study, judged on its cells.

With two seeds or more, a number is the mean over seeds, and its error says how much it varies between them (but is
no less than what their own errors leave of it): seeds are independent, whatever cells with the same seed share. A
difference is taken seed by seed, for that reason.
With one seed it has the error that the cell itself gives it; an exact number holds or fails.

A claim holds where every number is surely beyond its bound (Student's t at 5 %), fails where one is surely on the
other side, and is undecided otherwise: what a study calls too little to count is in its bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.claims import Above, Below, Claim, Evidence, Near, Test, Verdict, judged
from posbias.claims import Judged as JudgedClaim
from posbias.errors import InvalidValueError
from posbias.estimate import Estimate
from posbias.study.claimed import StatedClaim
from posbias.study.quantities import estimate_at
from posbias.study.records import Record
from posbias.study.running import Outcome
from posbias.sweeps import words_of

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Judged:
    """A study's claim with its verdict."""

    stated: StatedClaim
    judged: JudgedClaim

    @property
    def verdict(self) -> Verdict:
        """Whether it holds."""
        return self.judged.verdict

    @property
    def number(self) -> Estimate:
        """The number that the verdict hangs on."""
        return self.judged.estimate

    @property
    def why(self) -> str:
        """'0.6312 ± 0.0004 where model.dimension = 16, above 0.5 claimed'."""
        deciding, evidence = self.judged.deciding, self.judged.evidence
        if deciding.flaw:
            return f"{deciding.where}: {deciding.flaw}"
        kind, bound = self.stated.bound
        tolerance = f" within {self.stated.tolerance:g}" if self.stated.tolerance else ""
        held = sum(piece.verdict(len(evidence)) == "holds" for piece in evidence)
        count = f"{held} of {len(evidence)} hold; " if len(evidence) > 1 else ""
        return f"{count}{self.number} where {deciding.where}, {kind} {bound:g}{tolerance} claimed"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: as `posbias.claims.Judged.as_dict`, with quantity and bound."""
        about = {"quantity": self.stated.quantity, "bound": list(self.stated.bound)}
        return self.judged.as_dict() | {"why": self.why} | about

    def __str__(self) -> str:
        return f"{self.verdict}: {self.stated.claim} ({self.why})"


def judge(outcome: Outcome) -> list[Judged]:
    """The study's claims on the cells that are finished; a claim about one that is not is undecided."""
    return [_judged(claim, outcome) for claim in outcome.study.claims]


def _judged(stated: StatedClaim, outcome: Outcome) -> Judged:
    claim = Claim("", outcome.study.name, stated.claim, test=_test(stated), provenance="ours")
    evidence = [
        Evidence(_where(outcome, one, other), number, flaw)
        for one, other in stated.pairs(outcome.study)
        for number, flaw in _numbers(stated.quantity, outcome, one, other)
    ]
    return Judged(stated, judged(claim, evidence))


def _test(stated: StatedClaim) -> Test:
    """A study's bound is its own: on its wrong side is wrong, whatever the unit."""
    kind, bound = stated.bound
    if kind == "equals":
        return Near(bound, (stated.tolerance or 0.0) + _ROUNDING * max(1.0, abs(bound)))
    return Above(bound, least=0.0) if kind == "above" else Below(bound, least=0.0)


def combined(values: Sequence[Estimate]) -> Estimate:
    """One number from those of all seeds: their mean with its error; of one seed, that seed's own.

    The error is that between seeds, but no less than their own errors make it: a few seeds may agree by chance.
    An exact number that is the same for all is exact.
    """
    if len(values) == 1:
        return values[0]
    numbers = np.array([one.value for one in values])
    if all(one.exact for one in values) and (numbers == numbers[0]).all():
        return values[0]
    estimate = Estimate.of(numbers)
    own = math.sqrt(sum(one.se**2 for one in values if math.isfinite(one.se))) / len(values)
    return Estimate(estimate.value, max(estimate.se, own), estimate.n)


def _numbers(quantity: str, outcome: Outcome, one: int, other: int | None) -> list[tuple[Estimate, str]]:
    """The number of a combination, or the difference of two, and why it decides nothing.

    Exact numbers that differ from seed to seed are one each: a single counterexample refutes.
    """
    undefined = Estimate(math.nan)
    try:
        mine = _over_seeds(quantity, outcome, one)
        theirs = None if other is None else _over_seeds(quantity, outcome, other)
    except InvalidValueError as error:
        return [(undefined, str(error))]
    if mine is None or (other is not None and theirs is None):
        return [(undefined, "not finished")]
    if theirs is not None:
        mine = [_difference(a, b) for a, b in zip(mine, theirs, strict=True)]
    apart = len({number.value for number in mine}) > 1 and all(number.exact for number in mine)
    return [(number, _flaw(number)) for number in (mine if apart else [combined(mine)])]


def _flaw(number: Estimate) -> str:
    if not math.isfinite(number.value):
        return "not defined there"
    return "" if number.known else "its error is not known with one seed, two needed"


def _difference(a: Estimate, b: Estimate) -> Estimate:
    """The difference of two numbers of one seed, on the fewer draws."""
    drawn = [number.n for number in (a, b) if number.n is not None]
    return Estimate(a.value - b.value, math.hypot(a.se, b.se), min(drawn) if drawn else None)


def _over_seeds(quantity: str, outcome: Outcome, combination: int) -> list[Estimate] | None:
    records = records_of(outcome, combination)
    if any(record is None for record in records):
        return None
    return [estimate_at(record.quantities, quantity) for record in records if record is not None]


def records_of(outcome: Outcome, combination: int) -> tuple[Record | None, ...]:
    """The records of a combination, seed by seed."""
    seeds = len(outcome.study.seeds)
    return outcome.records[combination * seeds : (combination + 1) * seeds]


def _where(outcome: Outcome, one: int, other: int | None) -> str:
    combinations = outcome.study.combinations
    mine = words_of(combinations[one][0]) or outcome.study.name
    if other is None:
        return mine
    a, b = (combinations[number][0] for number in (one, other))
    differs = {path: given for path, given in b.items() if a.get(path) != given}
    return f"{mine} minus {words_of(differs)}"
