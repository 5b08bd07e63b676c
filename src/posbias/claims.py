"""What something is said to show, as sentences with a verdict and the number behind it.

A claim is a list of effects, each a difference that the sentence says is above zero (or, for a null control,
near zero), with its standard error over independent draws (networks, prompts, samples) and Welch's degrees
of freedom. It holds when every effect is surely there (Student's t, each at 5 %: the test of an "and"), fails
when one effect is surely not there: below zero, or smaller than `LEAST` (Bonferroni over effects: the test of
an "or"), and is undecided otherwise. Of fewer than two draws an effect is flawed: it decides nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float
from scipy import stats

Verdict = Literal["holds", "fails", "undecided"]
LEVEL = 0.05
LEAST = 0.02
"""An effect below this is taken for none."""
NEAR = 0.05
"""Up to this, a null control may be off."""
NAMED = 3
"""Up to so many effects, a sentence names those that hold and those that do not."""
_EXACT = 1e-12


@dataclass(frozen=True)
class Effect:
    """One difference: what it is of, its value, standard error and degrees of freedom.

    `near` says that it is claimed to be about zero, not above. `flaw` says why it decides nothing. `tests` is
    the number of differences among which it was picked, by which its p-value is multiplied, and `opposite` the
    p-value against all of them, if it was. `sign` is −1 where the quantity is claimed to be below zero, and
    `value` its negative. Below `least` an effect is taken for none; up to `tolerance` a `near` one may be off.
    `origin` is what the quantity is counted from, where that is not zero: ½ for a probability.
    """

    where: str
    value: float = math.nan
    se: float = math.nan
    freedom: float = math.nan
    near: bool = False
    flaw: str = ""
    tests: int = 1
    sign: int = 1
    opposite: float | None = None
    least: float = LEAST
    tolerance: float = NEAR
    origin: float = 0.0

    def __post_init__(self):
        if not self.flaw and not (math.isfinite(self.value) and math.isfinite(self.se)):
            object.__setattr__(self, "flaw", "no finite number")

    def probability(self, beyond: float = 0.0) -> float:
        """One-sided p-value against "the true value is at most `beyond`"."""
        if self.se <= _EXACT:
            return 0.0 if self.value > beyond else 1.0
        return float(stats.t.sf((self.value - beyond) / self.se, self.freedom))

    @property
    def quantity(self) -> float:
        """What was measured, in its own units: `origin` and what it differs from that."""
        return self.origin + self.sign * self.value

    @property
    def p(self) -> float:
        """The p-value of the claim: that it is above zero, or, for `near`, within ± `tolerance`."""
        if self.flaw:
            return math.nan
        if not self.near:
            return min(1.0, self.tests * self.probability())
        return max(self.probability(-self.tolerance), 1.0 - self.probability(self.tolerance))

    @property
    def against(self) -> float:
        """The p-value of the opposite: that it is below `least`, or, for `near`, outside ± `tolerance`."""
        if self.flaw:
            return math.nan
        if self.opposite is not None:
            return self.opposite
        if not self.near:
            return 1.0 - self.probability(self.least)
        return min(1.0, 2.0 * min(self.probability(self.tolerance), 1.0 - self.probability(-self.tolerance)))

    def verdict(self, effects: int = 1) -> Verdict:
        """What this one effect says, as one of so many."""
        if self.flaw:
            return "undecided"
        if self.p < LEVEL:
            return "holds"
        return "fails" if self.against < LEVEL / effects else "undecided"

    def __str__(self) -> str:
        if self.flaw:
            return f"{self.where}: {self.flaw}"
        coarse = (self.least, self.tolerance, self.origin) == (LEAST, NEAR, 0.0)
        size = f"{signed_text(self.quantity)} ± {self.se:.3f}" if coarse else fine_text(self)
        size = size.replace(" ", "\xa0")
        return f"{self.where} {size}, {p_text(self.p)}"


@dataclass(frozen=True)
class Claim:
    """A sentence and the effects it is about."""

    sentence: str
    effects: tuple[Effect, ...]

    @property
    def verdict(self) -> Verdict:
        """`holds` if every effect does, `fails` if any does, else `undecided`."""
        found = {effect.verdict(len(self.effects)) for effect in self.effects}
        if "fails" in found:
            return "fails"
        return "holds" if found == {"holds"} else "undecided"

    @property
    def deciding(self) -> Effect:
        """The effect that the verdict hangs on: the one that fails, else the least sure."""
        order = {"fails": 0, "undecided": 1, "holds": 2}

        def place(effect: Effect) -> tuple[int, float]:
            return order[effect.verdict(len(self.effects))], -math.inf if effect.flaw else -effect.p

        return min(self.effects, key=place)

    @property
    def number(self) -> tuple[float, float]:
        """Value and standard error of the deciding effect, as it is claimed; NaN for a flawed one."""
        return self.deciding.quantity, self.deciding.se

    @property
    def why(self) -> str:
        """'holds for decay; fails for RoPE; RoPE −0.120 ± 0.010, p = 1'."""
        parts = len(self.effects)
        by_verdict = {
            kind: [one.where for one in self.effects if one.verdict(parts) == kind]
            for kind in get_args(Verdict)
        }
        lead = f"{len(by_verdict['holds'])} of {parts} hold; " if parts > 1 else ""
        if 1 < parts <= NAMED and len(by_verdict["holds"]) < parts:
            named = (f"{kind} for {', '.join(places)}" for kind, places in by_verdict.items() if places)
            lead = f"{'; '.join(named)}; "
        return f"{lead}{self.deciding}"

    def __str__(self) -> str:
        """'fails: sentence (why)'."""
        return f"{self.verdict}: {self.sentence} ({self.why})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        effects = [
            {
                "where": one.where,
                "value": one.quantity,
                "se": one.se,
                "p": one.p,
                "verdict": one.verdict(len(self.effects)),
                "flaw": one.flaw,
            }
            for one in self.effects
        ]
        number, se = self.number
        about = {"claim": self.sentence, "number": number, "se": se, "verdict": self.verdict, "why": self.why}
        return about | {"effects": effects}


def mean_effect(
    where: str, values: Float[np.ndarray, "draw"], *, near: bool = False, draws: str = "independent values"
) -> Effect:
    """That the mean of `values`, one per draw, is above zero (or near it); `draws` names them."""
    values = np.asarray(values, dtype=np.float64)
    if values.size < 2:
        return Effect(where, near=near, flaw=_too_few(values.size, draws))
    se = float(values.std(ddof=1) / math.sqrt(values.size))
    return Effect(where, float(values.mean()), se, values.size - 1.0, near)


def difference_effect(
    where: str,
    more: Float[np.ndarray, "draw"],
    less: Float[np.ndarray, "other"],
    *,
    draws: str = "independent values",
) -> Effect:
    """That the mean of `more` is above that of `less`, the draws being different ones (Welch's test)."""
    sides = [np.asarray(side, dtype=np.float64) for side in (more, less)]
    if min(side.size for side in sides) < 2:
        return Effect(where, flaw=_too_few(min(side.size for side in sides), draws))
    shares = [float(side.var(ddof=1)) / side.size for side in sides]
    total = sum(shares)
    spread = sum(share**2 / (side.size - 1) for share, side in zip(shares, sides, strict=True))
    freedom = total**2 / spread if spread > 0 else math.inf
    return Effect(where, float(sides[0].mean() - sides[1].mean()), math.sqrt(total), freedom)


def _too_few(found: int, draws: str) -> str:
    return f"{draws}: {found}, two needed"


def signed_text(value: float) -> str:
    """'+0.120' or '−0.120'."""
    return f"{value:+.3f}".replace("-", "−")


def fine_text(effect: Effect) -> str:
    """A quantity to the first digit of its standard error: '0.63807 ± 0.00007', '−1.3e-7 ± 2e-8'."""
    value, se, sign = effect.quantity, effect.se, "" if effect.origin else "+"
    if not se > _EXACT:
        return f"{value:{sign}.4g}".replace("-", "−")
    digits = max(0, -math.floor(math.log10(se)))
    fixed = digits <= 6
    if fixed or effect.origin:
        size = f"{value:{sign}.{digits}f}"
    else:
        size = f"{value:{sign}.{max(0, digits + math.floor(math.log10(abs(value) or se)))}e}"
    error = f"{se:.{digits}f}" if fixed else f"{se:.0e}"
    return f"{size.replace('-', '−', value < 0)} ± {error}".replace("e-0", "e-")


def p_text(p: float) -> str:
    """'p = 0.03', or 'p < 1e-5' for one so small that normal theory is not to be trusted with it."""
    return (f"p = {p:.2g}" if p >= 1e-5 else "p < 1e-5").replace(" ", "\xa0")


def count(claims: Iterable[Claim]) -> dict[Verdict, int]:
    """How many claims hold, fail and are undecided."""
    verdicts = [claim.verdict for claim in claims]
    return {kind: verdicts.count(kind) for kind in get_args(Verdict)}
