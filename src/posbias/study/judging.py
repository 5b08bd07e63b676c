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
from dataclasses import replace

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.core.sweeps import words_of
from posbias.profiles.claims import Claim, Judged, judged
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence
from posbias.study.claimed import StatedClaim
from posbias.study.quantities import estimate_at
from posbias.study.records import Record
from posbias.study.running import Outcome


def judge(outcome: Outcome) -> list[Judged]:
    """The study's claims on the cells that are finished; a claim about one that is not is undecided.

    What a claim is about and its bound are in `Judged.more`.
    """
    return [_judged(claim, outcome) for claim in outcome.study.claims]


def _judged(stated: StatedClaim, outcome: Outcome) -> Judged:
    evidence = [
        Evidence(_where(outcome, one, other), number, flaw)
        for one, other in stated.pairs(outcome.study.combinations)
        for number, flaw in _numbers(stated.quantity, outcome, one, other)
    ]
    claim = Claim("", outcome.study.name, stated.claim, test=stated.test, provenance="ours")
    verdict = judged(claim, evidence)
    more = {"quantity": stated.quantity, "bound": list(stated.bound)}
    return replace(verdict, why=_why(stated, verdict), more=more)


def _why(stated: StatedClaim, claim: Judged) -> str:
    """'0.6312 ± 0.0004 where model.dimension = 16, above 0.5 claimed'."""
    deciding, count = claim.deciding, len(claim.evidence)
    if deciding.flaw:
        return f"{deciding.where}: {deciding.flaw}"
    kind, bound = stated.bound
    tolerance = f" within {stated.tolerance:g}" if stated.tolerance else ""
    held = sum(piece.verdict(count) == "holds" for piece in claim.evidence)
    shares = f"{held} of {count} hold; " if count > 1 else ""
    return f"{shares}{claim.estimate} where {deciding.where}, {kind} {bound:g}{tolerance} claimed"


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
    estimate = Estimate.of_mean(numbers)
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
