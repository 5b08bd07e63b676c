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

from posbias.claims import Claim, Effect, Verdict
from posbias.errors import InvalidValueError
from posbias.estimate import Estimate
from posbias.study.claimed import StatedClaim
from posbias.study.quantities import Number, number_at
from posbias.study.records import Record
from posbias.study.running import Outcome
from posbias.sweeps import words_of

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Judged:
    """A claim with its verdict: `numbers` are what it is about, `claim` holds their margins to the bound."""

    stated: StatedClaim
    numbers: tuple[Number, ...]
    claim: Claim

    @property
    def verdict(self) -> Verdict:
        """Whether it holds."""
        return self.claim.verdict

    @property
    def number(self) -> Number:
        """The number that the verdict hangs on."""
        deciding = self.claim.deciding
        sides = len(self.claim.effects) // len(self.numbers)
        return self.numbers[self.claim.effects.index(deciding) // sides]

    @property
    def why(self) -> str:
        """'0.6312 ± 0.0004 where model.dimension = 16, above 0.5 claimed'."""
        deciding = self.claim.deciding
        if deciding.flaw:
            return f"{deciding.where}: {deciding.flaw}"
        kind, bound = self.stated.bound
        tolerance = f" within {self.stated.tolerance:g}" if self.stated.tolerance else ""
        held = [self._held(one) for one in range(len(self.numbers))]
        count = f"{sum(held)} of {len(held)} hold; " if len(held) > 1 else ""
        return f"{count}{self.number} where {deciding.where}, {kind} {bound:g}{tolerance} claimed"

    def _held(self, number: int) -> bool:
        sides = len(self.claim.effects) // len(self.numbers)
        mine = self.claim.effects[number * sides : (number + 1) * sides]
        return all(one.verdict(len(self.claim.effects)) == "holds" for one in mine)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: as `Claim.as_dict`, `number` and `se` being those of the quantity, not of its margin."""
        number = self.number
        return self.claim.as_dict() | {
            "number": number.value,
            "se": 0.0 if number.exact and math.isfinite(number.value) else number.se,
            "why": self.why,
            "quantity": self.stated.quantity,
            "bound": list(self.stated.bound),
        }

    def __str__(self) -> str:
        return f"{self.verdict}: {self.stated.claim} ({self.why})"


def judge(outcome: Outcome) -> list[Judged]:
    """The study's claims on the cells that are finished; a claim about one that is not is undecided."""
    return [_judged(claim, outcome) for claim in outcome.study.claims]


def _judged(stated: StatedClaim, outcome: Outcome) -> Judged:
    numbers, effects = [], []
    for one, other in stated.pairs(outcome.study):
        for number, flaw in _numbers(stated.quantity, outcome, one, other):
            numbers.append(number)
            effects += _effects(stated, number, flaw, _where(outcome, one, other))
    return Judged(stated, tuple(numbers), Claim(stated.claim, tuple(effects)))


def combined(values: Sequence[Number]) -> Number:
    """One number from those of all seeds: their mean with its error; of one seed, that seed's own.

    The error is that between seeds, but no less than their own errors make it: a few seeds may agree by chance.
    An exact number that is the same for all is exact.
    """
    if len(values) == 1:
        return values[0]
    given = np.array([one.value for one in values])
    if all(one.exact for one in values) and (given == given[0]).all():
        return values[0]
    estimate = Estimate.of(given)
    own = math.sqrt(sum(one.se**2 for one in values if math.isfinite(one.se))) / len(values)
    return Number(estimate.value, max(estimate.se, own), estimate.n)


def _numbers(quantity: str, outcome: Outcome, one: int, other: int | None) -> list[tuple[Number, str]]:
    """The number of a combination, or the difference of two, and why it is none.

    Exact numbers that differ from seed to seed are one each: a single counterexample refutes.
    """
    try:
        mine = _over_seeds(quantity, outcome, one)
        theirs = None if other is None else _over_seeds(quantity, outcome, other)
    except InvalidValueError as error:
        return [(Number(math.nan), str(error))]
    if mine is None or (other is not None and theirs is None):
        return [(Number(math.nan), "not finished")]
    if theirs is not None:
        mine = [_difference(a, b) for a, b in zip(mine, theirs, strict=True)]
    apart = len({one.value for one in mine}) > 1 and all(one.exact for one in mine)
    return [(number, _flaw(number)) for number in (mine if apart else [combined(mine)])]


def _flaw(number: Number) -> str:
    if not math.isfinite(number.value):
        return "not defined there"
    if not number.exact and not math.isfinite(number.se):
        return "its error is not known with one seed, two needed"
    return ""


def _difference(a: Number, b: Number) -> Number:
    drawn = [one for one in (a, b) if not one.exact]
    se = math.sqrt(sum(one.se**2 for one in drawn)) if drawn else math.nan
    return Number(a.value - b.value, se, min((one.n for one in drawn), default=0))


def _over_seeds(quantity: str, outcome: Outcome, combination: int) -> list[Number] | None:
    records = records_of(outcome, combination)
    if any(record is None for record in records):
        return None
    return [number_at(record.quantities, quantity) for record in records if record is not None]


def records_of(outcome: Outcome, combination: int) -> tuple[Record | None, ...]:
    """The records of a combination, seed by seed."""
    seeds = len(outcome.study.seeds)
    return outcome.records[combination * seeds : (combination + 1) * seeds]


def _effects(stated: StatedClaim, number: Number, flaw: str, where: str) -> list[Effect]:
    """The margins to the bound: one, or for equality one to either side."""
    kind, bound = stated.bound
    if kind != "equals":
        sign = 1 if kind == "above" else -1
        return [_effect(where, sign * (number.value - bound), number, flaw, sign)]
    tolerance = (stated.tolerance or 0.0) + _ROUNDING * max(1.0, abs(bound))
    margins = (number.value - (bound - tolerance), bound + tolerance - number.value)
    return [_effect(where, margin, number, flaw, 1) for margin in margins]


def _effect(where: str, margin: float, number: Number, flaw: str, sign: int) -> Effect:
    if flaw:
        return Effect(where, flaw=flaw)
    if number.exact:
        return Effect(where, margin, 0.0, math.inf, sign=sign)
    effect = Effect(where, margin, number.se, float(max(1, number.n - 1)), sign=sign)
    # a study's bound is its own: on its wrong side is wrong, whatever the unit
    return Effect(where, margin, number.se, effect.freedom, sign=sign, opposite=1.0 - effect.probability())


def _where(outcome: Outcome, one: int, other: int | None) -> str:
    combinations = outcome.study.combinations
    mine = words_of(combinations[one][0]) or outcome.study.name
    if other is None:
        return mine
    a, b = (combinations[number][0] for number in (one, other))
    differs = {path: given for path, given in b.items() if a.get(path) != given}
    return f"{mine} minus {words_of(differs)}"
