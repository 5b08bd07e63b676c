"""Evidence: an estimate of what a claim is about, the test it is put to, and the p-values that follow.

    evidence = mean("d = 16, layer 2", probabilities - 0.5, test=Above())
    print(evidence.p, evidence.verdict())

An estimate surely passes its test where Student's t says so at 5 %, and surely fails where it says so of the
opposite. One without a known error decides nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate

Verdict = Literal["holds", "fails", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
LEVEL = 0.05
LEAST = 0.02
"""An effect below this is taken for none."""
NEAR = 0.05
"""Up to this, a null control may be off."""
FAR = 10.0
"""Beyond this a negative margin is said as a factor."""
_EXACT = 1e-12


# --- tests -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Above:
    """That a quantity is above `bound`; less than `least` above is taken for none."""

    bound: float = 0.0
    least: float = LEAST

    def p(self, estimate: Estimate) -> float:
        """The p-value of the claim: small where it surely holds."""
        return estimate.p_above(self.bound)

    def against(self, estimate: Estimate) -> float:
        """The p-value of the opposite: small where the claim surely fails."""
        return 1.0 - estimate.p_above(self.bound + self.least)


@dataclass(frozen=True)
class Below:
    """That a quantity is below `bound`; less than `least` below is taken for none."""

    bound: float = 0.0
    least: float = LEAST

    def p(self, estimate: Estimate) -> float:
        """As of `Above`."""
        return (-estimate).p_above(-self.bound)

    def against(self, estimate: Estimate) -> float:
        """As of `Above`."""
        return 1.0 - (-estimate).p_above(self.least - self.bound)


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


@dataclass(frozen=True)
class Printed:
    """That a quantity is a printed number, up to half of the last of its `digits` and `errors` standard errors.

    `number` has its standard error, where its number of draws is known. A quantity whose own error is above
    `known` confirms nothing.
    """

    number: Estimate
    digits: int
    errors: float = 4.0
    known: float = math.inf

    @property
    def rounding(self) -> float:
        """Half of the last digit."""
        return 0.5 * 10.0**-self.digits

    def deviation(self, estimate: Estimate) -> float:
        """By how many standard errors of the difference the two differ, signed; rounding apart."""
        off = estimate.value - self.number.value
        beyond = math.copysign(max(0.0, abs(off) - self.rounding), off)
        error = math.hypot(estimate.se, self.number.se)
        return beyond / error if error > _EXACT else math.copysign(math.inf, off) if beyond else 0.0

    def agrees(self, estimate: Estimate) -> bool:
        """Whether the two differ by no more than rounding and errors allow."""
        return abs(self.deviation(estimate)) <= self.errors

    def p(self, estimate: Estimate) -> float:
        """0 where the numbers agree and ours is well known, else 1."""
        return 0.0 if self.agrees(estimate) and estimate.se <= self.known else 1.0

    def against(self, estimate: Estimate) -> float:
        """0 where the numbers do not agree, else 1."""
        return 1.0 if self.agrees(estimate) else 0.0


Test = Above | Below | Near | Printed
MOST = Above(0.5, least=0.0)
"""That a share is more than half."""


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
        """How far the estimate is on the claim's side; of a printed number in standard errors."""
        value = self.estimate.value
        match self._test:
            case Above(bound):
                return value - bound
            case Below(bound):
                return bound - value
            case Near(target, tolerance):
                return tolerance - abs(value - target)
            case Printed() as printed:
                return printed.errors - abs(printed.deviation(self.estimate))

    @property
    def sureness(self) -> float:
        """The same in standard errors: p-values of the surest are all 0."""
        if isinstance(self._test, Printed):
            return self.room
        return self.room / self.estimate.se if self.estimate.se > 0.0 else math.inf

    def verdict(self, pieces: int = 1) -> Verdict:
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
            raise InvalidValueError(f"test: none given for {self.where!r}, one of a claim needed")
        return self.test

    def __str__(self) -> str:
        if self.flaw:
            return f"{self.where}: {self.flaw}".removeprefix(": ")
        size = (_coarse if self.test in _COARSE else _fine)(self).replace(" ", "\xa0")
        if isinstance(self.test, Printed):
            printed = f"{self.test.number.value:.{self.test.digits}f}".replace("-", "−")
            text = f"{self.where} {size}, printed {printed}".lstrip()
            vague = self.estimate.se > self.test.known
            return f"{text}; ± {self.test.known:g} needed" if vague else text
        text = f"{self.where} {size}, {p_text(self.p)}".lstrip()
        least = getattr(self.test, "least", 0.0)
        if least and self.verdict() == "fails" and self.sureness > -math.inf:
            return f"{text}; surely less than the {least:g} that counts"
        return text


def mean(
    where: str,
    values: Float[np.ndarray, "draw"],
    *,
    draws: str = "independent values",
    test: Test | None = None,
) -> Evidence:
    """The mean of `values`, one per draw; `draws` names them."""
    values = np.asarray(values, dtype=np.float64)
    if values.size < 2:
        return Evidence(where, flaw=_too_few(values.size, draws), test=test)
    return Evidence(where, Estimate.of_mean(values), test=test)


def difference(
    where: str,
    more: Float[np.ndarray, "draw"],
    less: Float[np.ndarray, "other"],
    *,
    draws: str = "independent values",
    test: Test | None = None,
) -> Evidence:
    """The mean of `more` minus that of `less`, the draws being different ones (Welch's test)."""
    fewest = min(np.size(more), np.size(less))
    if fewest < 2:
        return Evidence(where, flaw=_too_few(fewest, draws), test=test)
    return Evidence(where, Estimate.of_mean(np.asarray(more)) - Estimate.of_mean(np.asarray(less)), test=test)


def every(
    where: str, names: Sequence[str], values: Iterable[float], errors: Iterable[float], n: int, test: Test
) -> Evidence:
    """All of several numbers of `n` draws as one piece of evidence: the least sure of them.

    It holds if each does on its own, and fails if one surely does not, allowing for how many there are.
    """
    pieces = [
        Evidence(f"{where}, {name}", Estimate(float(value), float(se), n, max(1.0, n - 2.0)), test=test)
        for name, value, se in zip(names, values, errors, strict=True)
    ]
    flawed = [piece for piece in pieces if piece.flaw]
    if flawed:
        return flawed[0]
    against = min(1.0, len(pieces) * min(piece.against for piece in pieces))
    return replace(max(pieces, key=lambda piece: (piece.p, -piece.sureness)), opposite=against)


def share(where: str, pieces: Sequence[Evidence]) -> Evidence:
    """The share of `pieces`, each with its test, in which that is passed: what *often* and *most* speak of.

    Each counts with the chance that it is passed, 1 − p, and a half where nothing is known of it; the error is
    that of the sum, so that of exact numbers there is none. The test is that the share is above one half.
    """
    if all(piece.flaw for piece in pieces):
        return Evidence(where, flaw=pieces[0].flaw if pieces else "nothing to count", test=MOST)
    chances = np.array([0.5 if piece.flaw else 1.0 - piece.p for piece in pieces])
    error = float(np.sqrt((chances * (1.0 - chances)).sum())) / len(pieces)
    passed = sum(not piece.flaw and piece.p < 0.5 for piece in pieces)
    told = f"{where}, {passed} of {len(pieces)}" if len(pieces) > 1 else where
    return Evidence(told, Estimate(float(chances.mean()), error), test=MOST)


def _too_few(count: int, draws: str) -> str:
    return f"{draws}: {count}, two needed"


# --- numbers in words --------------------------------------------------------------------------------------

_COARSE = (Above(), Below(), Near())


def signed_text(value: float) -> str:
    """'+0.120' or '−0.120'."""
    return f"{value:+.3f}".replace("-", "−")


def _coarse(piece: Evidence) -> str:
    return f"{signed_text(piece.estimate.value)} ± {piece.estimate.se:.3f}"


def _fine(piece: Evidence) -> str:
    """A quantity to the first digit of its standard error: '0.63807 ± 0.00007', '−1.3e-7 ± 2e-8'."""
    value, se = piece.estimate.value, piece.estimate.se
    whole = not isinstance(piece.test, Near) or piece.test.target != 0.0
    sign = "" if whole and getattr(piece.test, "bound", 1.0) != 0.0 else "+"
    if not se > _EXACT:
        return f"{value:{sign}.4g}".replace("-", "−")
    digits = max(0, -math.floor(math.log10(se)))
    fixed = digits <= 6
    if fixed or not sign:
        size = f"{value:{sign}.{digits}f}"
    else:
        size = f"{value:{sign}.{max(0, digits + math.floor(math.log10(abs(value) or se)))}e}"
    error = f"{se:.{digits}f}" if fixed else f"{se:.0e}"
    return f"{size.replace('-', '−', value < 0)} ± {error}".replace("e-0", "e-")


def p_text(p: float) -> str:
    """'p = 0.03', or 'p < 1e-5' for one so small that normal theory is not to be trusted with it."""
    return (f"p = {p:.2g}" if p >= 1e-5 else "p < 1e-5").replace(" ", "\xa0")


def margin_text(slack: float) -> str:
    """'margin 0.12', 'margin 0 to rounding', 'off by a factor of 25' or 'of more than 10^11'."""
    if slack < -FAR:
        times = 1.0 - slack
        far = f"more than 10^{math.floor(math.log10(times))}" if times >= 1000 else f"{times:.0f}"
        return f"off by a factor of {far}"
    least = "0 to rounding" if abs(slack) <= 1e-9 else f"{slack:.2g}".replace("-", "−")
    return f"margin {least}"
