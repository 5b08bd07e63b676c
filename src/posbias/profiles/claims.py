"""Evidence on a sentence, the test of each piece, and the one judge of them.

    claim = judged("The second layer favours later keys", Above(0.5), [Evidence("at d = 64", estimate)])
    print(claim.verdict, claim.estimate)

Evidence is estimates, each with where it was taken. An estimate surely passes its test where Student's t says so
at 5 %, and surely fails where it says so of the opposite; one without a known error decides nothing. The claim
holds when every estimate surely passes (the test of an "and"), fails when one surely does not (Bonferroni over the
evidence: the test of an "or"), and is undecided otherwise.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, get_args

from posbias.core.errors import wrong
from posbias.profiles.estimate import Estimate

ClaimVerdict = Literal["holds", "fails", "undecided"]
VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)
_OTHERS: dict[ClaimVerdict, str] = {"fails": "fail", "undecided": "undecided"}
Provenance = Literal["paper", "ours"]
Strength = Literal["theorem", "constant", "printed", "observation", "hedged"]
LEVEL = 0.05
LEAST = 0.02
"""An effect below this is taken for none."""
NEAR = 0.05
"""Up to this, a null control may be off."""
SHOWN = 24
"""Of more pieces of evidence, the least sure so many are listed."""


# --- tests -------------------------------------------------------------------------------------------------


class Test(Protocol):
    """What is asked of an estimate, such as `Above`."""

    def p(self, estimate: Estimate) -> float: ...
    def against(self, estimate: Estimate) -> float: ...
    def room(self, estimate: Estimate) -> float: ...


@dataclass(frozen=True)
class Above:
    """That a quantity is above `bound`; less than `least` above is taken for none."""

    bound: float = 0.0
    least: float = LEAST

    _side: ClassVar[float] = 1.0

    def p(self, estimate: Estimate) -> float:
        """The p-value of the claim: small where it surely holds."""
        return estimate.scaled(self._side).p_above(self._side * self.bound)

    def against(self, estimate: Estimate) -> float:
        """The p-value of the opposite: small where the claim surely fails."""
        return 1.0 - estimate.scaled(self._side).p_above(self._side * self.bound + self.least)

    def room(self, estimate: Estimate) -> float:
        """How far an estimate is on the claim's side."""
        return self._side * (estimate.value - self.bound)


class Below(Above):
    """That a quantity is below `bound`; less than `least` below is taken for none."""

    _side = -1.0


@dataclass(frozen=True)
class Near:
    """That a quantity is within ± `tolerance` of `target`: two one-sided tests."""

    target: float = 0.0
    tolerance: float = NEAR

    def p(self, estimate: Estimate) -> float:
        """As of `Above`."""
        low, high = self.target - self.tolerance, self.target + self.tolerance
        return max(estimate.p_above(low), 1.0 - estimate.p_above(high))

    def against(self, estimate: Estimate) -> float:
        """As of `Above`; outside on either side."""
        low, high = self.target - self.tolerance, self.target + self.tolerance
        return min(1.0, 2.0 * min(estimate.p_above(high), 1.0 - estimate.p_above(low)))

    def room(self, estimate: Estimate) -> float:
        """As of `Above`."""
        return self.tolerance - abs(estimate.value - self.target)


# --- evidence ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """One estimate of what a claim is about: where it was taken, and what is needed to judge it.

    `flaw` says why it decides nothing. `test` takes the place of the claim's. `picked` is the number of estimates
    among which this one was picked for being the surest: its p-value is multiplied by it, and `opposite` is the
    p-value against all of them.
    """

    where: str
    estimate: Estimate = field(default_factory=lambda: Estimate(math.nan, math.nan, 1))
    flaw: str = ""
    test: Test | None = None
    picked: int = 1
    opposite: float | None = None

    def __post_init__(self):
        if not self.flaw and not self.estimate.known:
            object.__setattr__(self, "flaw", "no finite number")

    @property
    def p(self) -> float:
        """The p-value of the claim; NaN where nothing is decided."""
        return math.nan if self.flaw else min(1.0, self.picked * self._test.p(self.estimate))

    @property
    def against(self) -> float:
        """The p-value of the opposite; NaN where nothing is decided."""
        if self.flaw:
            return math.nan
        return self._test.against(self.estimate) if self.opposite is None else self.opposite

    @property
    def room(self) -> float:
        """How far the estimate is on the claim's side; of a test `in_errors` in standard errors."""
        return self._test.room(self.estimate)

    @property
    def sureness(self) -> float:
        """The same in standard errors: p-values of the surest are all 0."""
        if getattr(self.test, "in_errors", False):
            return self.room
        return self.room / self.estimate.se if self.estimate.se > 0.0 else math.inf

    def verdict(self, pieces: int = 1) -> ClaimVerdict:
        """What this estimate says, as one of so many pieces of evidence."""
        if self.flaw:
            return "undecided"
        if self.p < LEVEL:
            return "holds"
        return "fails" if self.against < LEVEL / pieces else "undecided"

    def tested(self, test: Test) -> Self:
        """The same with this test, unless it has its own."""
        return self if self.test is not None else replace(self, test=test)

    @property
    def _test(self) -> Test:
        if self.test is None:
            raise wrong("test", f"one of a claim for {self.where!r}", got="none")
        return self.test


Piece = TypeVar("Piece", bound=Evidence)


# --- the judge ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A sentence with the evidence it was judged on, the verdict, and the number behind that (NaN: none).

    `why` says it in words; `quantity` is what it is about, `bound` is above, below or equals, and the number.
    """

    sentence: str
    evidence: tuple[Evidence, ...]
    verdict: ClaimVerdict
    estimate: Estimate
    why: str = ""
    quantity: str = ""
    bound: tuple[str, float] | None = None

    def __str__(self) -> str:
        """'fails: sentence (why)'."""
        return f"{self.verdict}: {self.sentence} ({self.why})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, where a number that is not there is null."""
        return {
            "claim": self.sentence,
            "number": self.estimate.value,
            "se": self.estimate.se,
            **{name: getattr(self, name) for name in ("verdict", "why", "quantity", "bound")},
            "effects": [effect(piece, len(self.evidence)) for piece in shown(self.evidence)],
        }


def judged(sentence: str, test: Test, evidence: Iterable[Evidence]) -> Judged:
    """Judge a sentence on evidence, by this test or each piece's own. Raises `InvalidValueError` for none."""
    pieces = tuple(piece.tested(test) for piece in evidence)
    if not pieces:
        raise wrong("evidence", f"at least one piece for {sentence!r}", got="none")
    verdicts = {piece.verdict(len(pieces)) for piece in pieces}
    verdict: ClaimVerdict = "holds" if verdicts == {"holds"} else "undecided"
    verdict = "fails" if "fails" in verdicts else verdict
    return Judged(sentence, pieces, verdict, deciding(pieces).estimate)


def deciding(pieces: Sequence[Piece]) -> Piece:
    """The evidence that a verdict hangs on: the piece that fails, else the least sure."""
    return min(pieces, key=_surety(len(pieces)))


def shares(pieces: Sequence[Evidence]) -> str:
    """How many pieces hold, and what becomes of the others: '1 of 6 hold, 5 undecided; '; '' of one."""
    if len(pieces) == 1:
        return ""
    counts = Counter(piece.verdict(len(pieces)) for piece in pieces)
    others = [f"{counts[name]} {word}" for name, word in _OTHERS.items() if counts[name]]
    return ", ".join([f"{counts['holds']} of {len(pieces)} hold", *others]) + "; "


def shown(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """The evidence; of more than `SHOWN` pieces the least sure."""
    return pieces if len(pieces) <= SHOWN else sorted(pieces, key=_surety(len(pieces)))[:SHOWN]


def _surety(pieces: int) -> Callable[[Evidence], tuple[float, ...]]:
    """How surely one of so many pieces holds, as a key to sort by: what fails comes first."""
    order = {"fails": 0, "undecided": 1, "holds": 2}

    def place(piece: Evidence) -> tuple[float, ...]:
        of_verdict = order[piece.verdict(pieces)]
        if piece.flaw:
            return of_verdict, -math.inf
        # where p-values are all 0, the least sure; of exact numbers the nearest to the bound
        return of_verdict, -piece.p, piece.sureness, piece.room

    return place


def effect(piece: Evidence, pieces: int) -> dict[str, Any]:
    """One of so many pieces of evidence, for JSON."""
    # agreement up to errors is a bound, and a number of all there is has no p-value
    exact = getattr(piece.test, "in_errors", False) or piece.estimate.se == 0.0
    row = {"where": piece.where, "value": piece.estimate.value, "se": piece.estimate.se}
    row |= {"p": math.nan if exact else piece.p, "verdict": piece.verdict(pieces), "flaw": piece.flaw}
    return row
