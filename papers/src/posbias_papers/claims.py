"""What the claims of a study are made with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from posbias.profiles.claims import Claim
from posbias.profiles.evidence import Evidence, Test

P = ParamSpec("P")
Quantity = Callable[[Any], Iterable[Evidence]]
"""What a claim is about: from results to evidence."""
Maker = Callable[..., Claim]
"""Makes the claims of a study, as `claims_of` says."""


def quantity(evidence: Callable[Concatenate[Any, P], Iterable[Evidence]]) -> Callable[P, Quantity]:
    """A function of results and something else as one of something else, which gives a claim's quantity."""

    @wraps(evidence)
    def of(*args: P.args, **options: P.kwargs) -> Quantity:
        return lambda results: evidence(results, *args, **options)

    return of


def claims_of(study: str, place: str, **every: Any) -> Maker:
    """What makes the claims of a study: `claim(3, sentence, quantity)` is STUDY/3, at `place` unless told.

    `every` are further fields of all its claims, unless told.
    """

    def claim(
        number: int,
        sentence: str,
        quantity: Quantity,
        test: Test = Claim.test,
        place: str = place,
        **about: Any,
    ) -> Claim:
        return Claim(f"{study}/{number}", place, sentence, quantity, test, **every | about)

    return claim


@dataclass(frozen=True)
class AtHand:
    """A quantity that needs nothing made, as it rests on what is at hand, such as the paper's own numbers.

    Where there are results, `measured` of them is taken, if it is given.
    """

    evidence: Callable[[], Iterable[Evidence]]
    basis: str = "the paper's own numbers"
    measured: Quantity | None = None

    def __call__(self, results: Any = None) -> Iterable[Evidence]:
        return self.evidence() if self.measured is None or results is None else self.measured(results)
