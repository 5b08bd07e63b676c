"""What became of a claim: its sentence, the number behind it, the verdict and why."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Ruling:
    """One claim of a paper with its verdict (holds, fails, undecided).

    `number` is what the verdict hangs on (NaN where there is none) and `se` its standard error (NaN where it has
    none), `study` where the claim stands ("wu2025/fig2"), `more` what only some have: the key of a statement and
    what stands in its place, the effort, the effects, the explanation that is part of `why`.
    """

    PLAIN: ClassVar[tuple[str, ...]] = ("id", "paper", "claim", "number", "se", "verdict", "why", "study")

    id: str
    paper: str
    claim: str
    number: float
    se: float
    verdict: str
    why: str
    study: str
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, where a number that is not there is null."""
        about = {name: getattr(self, name) for name in self.PLAIN} | dict(self.more)
        return about | {name: _finite(about[name]) for name in ("number", "se")}

    def __str__(self) -> str:
        """'fails: sentence (why)'."""
        return f"{self.verdict}: {self.claim} ({self.why})"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
