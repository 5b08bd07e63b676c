"""Claims: a sentence, the quantity it is about and a test of that; and the one judge of them.

    claim = Claim("kim2026/fig1/5", "Section 3", "Anisotropy strengthens recency", quantity, Above())
    judged = judge(claim, results)
    print(judged.verdict, judged.why)

A claim's quantity gives evidence: estimates, each with where it was taken. The claim holds when every estimate
surely passes the test (each at 5 %: the test of an "and"), fails when one surely does not (Bonferroni over the
evidence: the test of an "or"), and is undecided otherwise. What the evidence shows stays open as a verdict
(`Judged.withheld`) where it was not made as the claim asks: at less effort, or of other models.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import VERDICTS, Above, Evidence, Printed, Test, Verdict

TOLD = ("claim", "number", "se", "verdict", "why")
"""What a judged claim always tells of itself."""
ABOUT = ("provenance", "place", "strength", "scope", "effort", "alias_of")
"""What one with an id tells of its claim."""
_SEEN: Mapping[str, bool] = {"holds": True, "fails": False}
Provenance = Literal["paper", "ours"]
Strength = Literal["theorem", "constant", "printed", "observation", "hedged"]
STRENGTHS: Mapping[Strength, str] = {
    "theorem": "numbered statement",
    "constant": "constant, equation or step of a proof",
    "printed": "printed number",
    "observation": "observation",
    "hedged": "hedged observation",
}
"""How strong a claim is, in words."""
ELSEWHERE = "/elsewhere"
"""What the id of a claim ends with where it is judged of other models than the paper speaks of."""
SHOWN = 24
"""Of more pieces of evidence, the least sure so many are listed."""
NAMED = 3
"""Up to so many pieces of evidence, the reason names those that hold and those that do not."""


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper or of ours, the quantity it is about, and the test of that.

    `id` never changes and is never used twice; `place` is where the sentence stands (section, equation, caption);
    `quantity` makes the evidence from a study's results. `provenance` tells the paper's claims from ours (nulls,
    other comparisons, corrected formulas, other models); where a `hedged` observation says often, typically, most
    or tend to, the share of cases is judged. `scope` says what the text speaks of, `effort` what its numbers rest
    on there. The claim is the same as that of id `alias_of`, said again, and counted there. `explanation` says why
    it does not hold, as far as somebody found out.
    """

    id: str
    place: str
    sentence: str
    quantity: Callable[[Any], Iterable[Evidence]] | None = None
    test: Test = field(default=Above())
    provenance: Provenance = "paper"
    strength: Strength = "observation"
    scope: str = ""
    effort: str = ""
    alias_of: str = ""
    explanation: str = ""


AMENDED = "fails as printed, holds as amended"
"""The verdict in words on a numbered statement that holds in another reading alone."""


@dataclass(frozen=True)
class Judged:
    """A claim with the evidence it was judged on, the verdict, the number behind that (NaN: none), and why.

    `seen` says whether the evidence shows what is claimed (None: it does not tell), also where the verdict is
    withheld. `study` says whose claim it is among those of all papers (PAPER/NAME), `more` what only some have:
    what was spent, explanation, what stands instead. What was read from a file has no evidence but what is in
    `more`.
    """

    claim: Claim
    evidence: tuple[Evidence, ...]
    verdict: Verdict
    estimate: Estimate
    why: str
    study: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    seen: bool | None = None

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
        if len(self.evidence) <= SHOWN:
            return self.evidence
        return sorted(self.evidence, key=_surety(len(self.evidence)))[:SHOWN]

    @property
    def deciding(self) -> Evidence:
        """The evidence that the verdict hangs on: the piece that fails, else the least sure."""
        return _deciding(self.evidence)

    def __str__(self) -> str:
        """'fails: sentence (why)', 'holds (ours): sentence (why)' of a claim that no paper makes."""
        ours = " (ours)" if self.id and self.claim.provenance == "ours" else ""
        return f"{self.mark}{ours}: {self.sentence} ({self.why})"

    @property
    def mark(self) -> str:
        """The verdict in words: what stands instead of what fails, and what is seen where nothing is decided."""
        if self.verdict == "fails" and self.more.get("stands"):
            return AMENDED
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
        keys |= {
            "claim": self.sentence,
            "number": _finite(self.estimate.value),
            "se": _finite(self.estimate.se),
        }
        keys |= {"verdict": self.verdict, "why": self.why}
        if self.id:
            keys |= {"seen": self.seen} | {name: getattr(self.claim, name) for name in ABOUT}
        keys |= {"study": self.study} if self.study else {}
        if not self.study:
            keys["effects"] = [_effect(piece, len(self.evidence)) for piece in self.shown]
        return keys | dict(self.more)

    @classmethod
    def read(cls, told: Mapping[str, Any], id: str, study: str) -> Self:
        """What `as_dict` made of a claim, as that of `id` and `study`. Raises KeyError for what is not whole."""
        about = {name: told[name] for name in ABOUT if name in told}
        more = {name: told[name] for name in told if name not in ("id", "seen", *TOLD, *ABOUT)}
        number, se = (math.nan if told[name] is None else float(told[name]) for name in ("number", "se"))
        claim = Claim(id, sentence=str(told["claim"]), **{"place": "", **about})
        seen = told.get("seen", _SEEN.get(told["verdict"]))
        return cls(claim, (), told["verdict"], Estimate(number, se), str(told["why"]), study, more, seen)


def undecided(claim: Claim, why: str, study: str, more: Mapping[str, Any] | None = None) -> Judged:
    """A claim of which nothing is known."""
    return Judged(claim, (), "undecided", Estimate(math.nan), why, study, more or {})


def judge(claim: Claim, results: Any) -> Judged:
    """Judge a claim on a study's results. Raises `InvalidValueError` for a claim without quantity or evidence."""
    if claim.quantity is None:
        raise InvalidValueError(f"claim: {claim.id or claim.sentence!r} has no quantity, one needed")
    return judged(claim, claim.quantity(results))


def judged(claim: Claim, evidence: Iterable[Evidence]) -> Judged:
    """Judge a claim on evidence that is at hand. Raises `InvalidValueError` for none."""
    pieces = tuple(piece.tested(claim.test) for piece in evidence)
    if not pieces:
        raise InvalidValueError(f"evidence: none given for {claim.id or claim.sentence!r}, one piece needed")
    verdicts: list[Verdict] = [piece.verdict(len(pieces)) for piece in pieces]
    verdict: Verdict = "holds" if {*verdicts} == {"holds"} else "undecided"
    verdict = "fails" if "fails" in verdicts else verdict
    deciding = _deciding(pieces)
    why = f"{_shares(pieces, verdicts)}{deciding}"
    return Judged(claim, pieces, verdict, deciding.estimate, why, seen=_SEEN.get(verdict))


def _deciding(pieces: Sequence[Evidence]) -> Evidence:
    return min(pieces, key=_surety(len(pieces)))


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


def _shares(pieces: Sequence[Evidence], verdicts: Sequence[Verdict]) -> str:
    """'holds for decay; fails for RoPE; ', of many '3 of 5 hold; '."""
    if len(pieces) == 1:
        return ""
    held = verdicts.count("holds")
    if len(pieces) > NAMED or held == len(pieces):
        return f"{held} of {len(pieces)} hold; "
    named = {
        verdict: [piece.where for piece, its in zip(pieces, verdicts, strict=True) if its == verdict]
        for verdict in VERDICTS
    }
    return "".join(f"{verdict} for {', '.join(places)}; " for verdict, places in named.items() if places)


def _effect(piece: Evidence, pieces: int) -> dict[str, Any]:
    return {
        "where": piece.where,
        "value": piece.estimate.value,
        "se": piece.estimate.se,
        # agreement with a printed number is a bound, no p-value
        "p": math.nan if isinstance(piece.test, Printed) else piece.p,
        "verdict": piece.verdict(pieces),
        "flaw": piece.flaw,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def count(verdicts: Iterable[Judged]) -> dict[Verdict, int]:
    """How many claims hold, fail and are undecided."""
    named = [one.verdict for one in verdicts]
    return {verdict: named.count(verdict) for verdict in VERDICTS}


def tally(claims: Iterable[Judged]) -> dict[Provenance, dict[Verdict, int]]:
    """The same of the papers' own claims and of ours, what is said twice counted once."""
    once = [one for one in claims if not one.claim.alias_of]
    return {kind: count(one for one in once if one.claim.provenance == kind) for kind in get_args(Provenance)}
