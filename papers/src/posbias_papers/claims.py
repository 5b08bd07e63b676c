"""Claims of papers: a sentence with its place and kind, the quantity it is about, a test of that, and the verdict.

    claim = Claim("kim2026/fig1/5", "Section 3", "Anisotropy strengthens recency", quantity, Above())
    judged = judge(claim, results)
    print(judged.verdict, judged.why)

A claim's quantity gives evidence, which is judged as `posbias.profiles.claims` says. What the evidence shows
stays open as a verdict (`Judged.withheld`) where it was not made as the claim asks: at less effort, or of other
models.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, ClassVar, Self, get_args

import numpy as np
from jaxtyping import Float

from posbias.core.errors import wrong
from posbias.profiles import claims
from posbias.profiles.estimate import Estimate

_EXACT = 1e-12


# --- tests and evidence ------------------------------------------------------------------------------------


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
    in_errors: ClassVar[bool] = True

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

    def room(self, estimate: Estimate) -> float:
        """By how many standard errors less than allowed the two differ."""
        return self.errors - abs(self.deviation(estimate))


class Evidence(claims.Evidence):
    """Evidence in words: where it was taken, its number and how sure that is."""

    def __str__(self) -> str:
        if self.flaw:
            return f"{self.where}: {self.flaw}".removeprefix(": ")
        coarse = self.test in _COARSE and self.estimate.se >= 5e-4  # a smaller one would be printed as none
        size = (_coarse if coarse else _fine)(self).replace(" ", "\xa0")
        if isinstance(self.test, Printed):
            printed = f"{self.test.number.value:.{self.test.digits}f}".replace("-", "−")
            text = f"{self.where} {size}, printed {printed}".lstrip()
            vague = self.estimate.se > self.test.known
            return f"{text}; ± {self.test.known:g} needed" if vague else text
        if self.estimate.se == 0.0:  # of all there is
            return f"{self.where} {size}".lstrip()
        text = f"{self.where} {size}, {p_text(self.p)}".lstrip()
        if bound := getattr(self.test, "bound", 0.0):
            text += f" against {bound:g}".replace("-", "−")
        least = getattr(self.test, "least", 0.0)
        if least and self.verdict() == "fails" and self.sureness > -math.inf:
            return f"{text}; surely less than the {least:g} that counts"
        return text


def mean(
    where: str,
    values: Float[np.ndarray, "draw"],
    less: Float[np.ndarray, "other_draw"] | None = None,
    *,
    draws: str = "independent values",
    test: claims.Test | None = None,
) -> Evidence:
    """The mean of `values`, one per draw, less that of other draws (Welch's test) if any; `draws` names them."""
    sides = [np.asarray(side, dtype=np.float64) for side in (values, less) if side is not None]
    fewest = min(side.size for side in sides)
    if fewest < 2:
        return Evidence(where, flaw=f"{draws}: {fewest}, two needed", test=test)
    one, *other = map(Estimate.of_mean, sides)
    return Evidence(where, one - other[0] if other else one, test=test)


# --- numbers in words --------------------------------------------------------------------------------------

_COARSE = (claims.Above(), claims.Below(), claims.Near())


def signed_text(value: float) -> str:
    """'+0.120' or '−0.120'."""
    return f"{value:+.3f}".replace("-", "−")


def _coarse(piece: Evidence) -> str:
    return f"{signed_text(piece.estimate.value)} ± {piece.estimate.se:.3f}"


def _fine(piece: Evidence) -> str:
    """A quantity to the first digit of its standard error: '0.63807 ± 0.00007', '−1.3e-7 ± 2e-8'."""
    value, se = piece.estimate.value, piece.estimate.se
    whole = not isinstance(piece.test, claims.Near) or piece.test.target != 0.0
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


ALWAYS = ("claim", "number", "se", "verdict", "why")
"""The keys of `Judged.as_dict` that every judged claim has."""
ABOUT = ("provenance", "place", "strength", "scope", "evidence", "bar", "alias_of")
"""The keys that one with an id has, too: attributes of its claim."""
_SEEN: Mapping[str, bool] = {"holds": True, "fails": False}
ELSEWHERE = "/elsewhere"
"""What the id of a claim ends with where it is judged of other models than the paper speaks of."""
NAMED = 3
"""Up to so many pieces of evidence, the reason names those that hold and those that do not."""


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper or of ours, the quantity it is about, and the test of that.

    `id` never changes and is never used twice; `place` is where the sentence stands (section, equation,
    caption); `quantity` makes the evidence from a study's results. `provenance` tells the paper's claims from
    ours (nulls, other comparisons, corrected formulas, other models); where a `hedged` observation says often,
    typically, most or tend to, the share of cases is judged. `scope` says what the text speaks of, `evidence`
    what its numbers rest on there, `bar` whose the bound is that it fails by: the paper's (a sign is), or ours
    where the text gives none, by which a claim of the paper never fails. The claim is that of id `alias_of` said
    again, or fails by the same gap, and is counted there. `explanation` says why it does not hold, as far as
    somebody found out.
    """

    id: str
    place: str
    sentence: str
    quantity: Callable[[Any], Iterable[Evidence]] | None = None
    test: claims.Test = field(default=claims.Above())
    provenance: claims.Provenance = "paper"
    strength: claims.Strength = "observation"
    scope: str = ""
    evidence: str = ""
    bar: str = ""
    alias_of: str = ""
    explanation: str = ""


AMENDED: Mapping[claims.Provenance, str] = {
    "paper": "fails as printed, holds as amended",
    "ours": "fails as we read it, holds as amended",
}
"""The verdict in words on a numbered statement (of a paper, or as we read it) of which another reading holds."""


@dataclass(frozen=True)
class Judged:
    """A claim with the evidence it was judged on, the verdict, the number behind that (NaN: none), and why.

    `seen` says whether the evidence shows what is claimed (None: it does not tell), also where the verdict is
    withheld. `study` says whose claim it is among those of all papers (PAPER/NAME). What was read from a file
    has no evidence but `effects`.
    """

    claim: Claim
    evidence: tuple[Evidence, ...]
    verdict: claims.ClaimVerdict
    estimate: Estimate
    why: str
    study: str = ""
    seen: bool | None = None
    _: KW_ONLY
    effects: Sequence[Mapping[str, Any]] = ()
    """The pieces of evidence as they were written, of a claim that was read."""
    statement: str = ""
    """Of a numbered statement, its key,"""
    instances: int | None = None
    """the number of instances that it was tried on,"""
    stands: str = ""
    """and the reading that holds where the printed one fails."""
    effort: str = ""
    """What was spent, or what the verdict rests on."""
    explanation: str = ""
    """Why it does not hold, as far as somebody found out."""
    tested_on: str = ""
    """The kind of evidence that a claim of a paper was judged on."""

    @property
    def id(self) -> str:
        """The claim's."""
        return self.claim.id

    @property
    def paper(self) -> str:
        """The paper of its study."""
        return self.study.partition("/")[0]

    @property
    def sentence(self) -> str:
        """What is claimed."""
        return self.claim.sentence

    @property
    def shown(self) -> Sequence[Evidence]:
        """The evidence; of more than `SHOWN` pieces the least sure."""
        return claims.shown(self.evidence)

    def __str__(self) -> str:
        """'fails: sentence (why)', 'holds (ours): sentence (why)' of a claim that no paper makes."""
        ours = " (ours)" if self.id and self.claim.provenance == "ours" else ""
        return f"{self.mark}{ours}: {self.sentence} ({self.why})"

    @property
    def mark(self) -> str:
        """The verdict in words: what stands instead of what fails, and what is seen where nothing is decided."""
        if self.verdict == "fails" and self.stands:
            return AMENDED[self.claim.provenance]
        if self.verdict == "undecided" and self.seen is not None:
            return f"undecided, {'seen' if self.seen else 'not seen'} at this effort"
        return self.verdict

    def withheld(self, reason: str) -> Self:
        """The same left open for `reason`, or as it is if there is none."""
        if not reason:
            return self
        shown = {True: "seen", False: "not seen", None: "neither seen nor ruled out"}[self.seen]
        return replace(self, verdict="undecided", why=f"{shown} here: {self.why}; {reason}")

    def as_dict(self) -> dict[str, Any]:
        """For JSON, where a number that is not there is null."""
        keys: dict[str, Any] = {"id": self.id} if self.id else {}
        keys |= {"paper": self.paper} if self.study else {}
        number, se = map(_finite, (self.estimate.value, self.estimate.se))
        keys |= {"claim": self.sentence, "number": number, "se": se}
        keys |= {"verdict": self.verdict, "why": self.why}
        if self.id:
            keys |= {"seen": self.seen} | {name: getattr(self.claim, name) for name in ABOUT}
        keys |= {"study": self.study} if self.study else {}
        if not self.study:
            keys["effects"] = [claims.effect(piece, len(self.evidence)) for piece in self.shown]
        return keys | {name: held for name in self._some() if (held := getattr(self, name))}

    @classmethod
    def _some(cls) -> list[str]:
        """The fields that are keys of JSON where a claim has them."""
        return [one.name for one in fields(cls) if one.kw_only]

    @classmethod
    def read(cls, written: Mapping[str, Any], id: str, study: str) -> Self:
        """What `as_dict` made of a claim, as that of `id` and `study`. Raises KeyError for what is not whole."""
        about = {name: written[name] for name in ABOUT if name in written}
        some = {name: written[name] for name in cls._some() if name in written}
        number, se = (
            math.nan if written[name] is None else float(written[name]) for name in ("number", "se")
        )
        claim = Claim(id, sentence=str(written["claim"]), **{"place": "", **about})
        seen = written.get("seen", _SEEN.get(written["verdict"]))
        return cls(
            claim, (), written["verdict"], Estimate(number, se), str(written["why"]), study, seen, **some
        )


def undecided(claim: Claim, why: str, study: str) -> Judged:
    """A claim of which nothing is known."""
    return Judged(claim, (), "undecided", Estimate(math.nan), why, study)


def judge(claim: Claim, results: Any) -> Judged:
    """Judge a claim on a study's results. Raises `InvalidValueError` for a claim without quantity or evidence."""
    if claim.quantity is None:
        raise wrong("claim", f"a quantity of {claim.id or claim.sentence!r}", got="none")
    return judged(claim, claim.quantity(results))


def judged(claim: Claim, evidence: Iterable[Evidence]) -> Judged:
    """Judge a claim on evidence that is at hand. Raises `InvalidValueError` for none."""
    pieces = tuple(piece.tested(claim.test) for piece in evidence)
    made = claims.judged(claim.id or claim.sentence, claim.test, pieces)
    verdict, why = made.verdict, f"{_shares(pieces)}{claims.deciding(pieces)}"
    if (verdict, claim.provenance, claim.bar) == ("fails", "paper", "ours"):
        verdict, why = "undecided", f"{why}; the text gives no such bound, it is ours"
    return Judged(claim, pieces, verdict, made.estimate, why, seen=_SEEN.get(made.verdict))


def _shares(pieces: Sequence[claims.Evidence]) -> str:
    """'holds for decay; fails for RoPE; ', of many how many."""
    verdicts = [piece.verdict(len(pieces)) for piece in pieces]
    if len(pieces) == 1 or len(pieces) > NAMED or {*verdicts} == {"holds"}:
        return claims.shares(pieces)
    named = {
        verdict: [piece.where for piece, its in zip(pieces, verdicts, strict=True) if its == verdict]
        for verdict in claims.VERDICTS
    }
    return "".join(f"{verdict} for {' and '.join(places)}; " for verdict, places in named.items() if places)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def count(verdicts: Iterable[Judged]) -> dict[claims.ClaimVerdict, int]:
    """How many claims hold, fail and are undecided."""
    named = [one.verdict for one in verdicts]
    return {verdict: named.count(verdict) for verdict in claims.VERDICTS}


def tally(every: Iterable[Judged]) -> dict[claims.Provenance, dict[claims.ClaimVerdict, int]]:
    """The same of the papers' own claims and of ours, what is said twice counted once."""
    once = [one for one in every if not one.claim.alias_of]
    kinds = get_args(claims.Provenance)
    return {kind: count(one for one in once if one.claim.provenance == kind) for kind in kinds}
