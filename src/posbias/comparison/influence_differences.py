"""Where two measurements differ: their shares of influence at the first positions, in the middle and at the last.

Within prompts where both measured the same texts, else between two samples of prompts (Welch). The three intervals
of an answer hold together in 95 % (Bonferroni), so that one of three does not look like a difference by chance.

    from posbias.comparison.influence_differences import influence_differences

    found = influence_differences(posbias.measured_influence(one), posbias.measured_influence(other))
    found.paired, found.sentence("one", "other")
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from posbias.comparison.paired_scores import up_to_query
from posbias.core.errors import InvalidValueError
from posbias.profiles.agreement import LEAST_PROMPTS, same_prompts
from posbias.profiles.estimate import Estimate, quantile_of_t
from posbias.profiles.profile import Profile
from posbias.profiles.summary import at_ends

TOGETHER = 0.05
"""How often one of an answer's intervals misses, at most."""


@dataclass(frozen=True)
class PartDifference:
    """What two profiles have of all influence in a part of the positions, and p's share minus q's.

    The interval of the difference holds with those of the other parts together.
    """

    part: str
    p: float
    q: float
    difference: Estimate

    @property
    def told(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.difference.sign != 0


@dataclass(frozen=True)
class InfluenceDifferences:
    """The parts, whether prompts are the same for both (`paired`), and how many prompts each has."""

    parts: tuple[PartDifference, ...]
    paired: bool
    prompts: tuple[int, int]

    @property
    def differ(self) -> bool:
        """Whether a difference is told in any part."""
        return any(one.told for one in self.parts)

    def sentence(self, p: str = "p", q: str = "q") -> str:
        """Where the two differ and by how much, and where that is inconclusive; `p` and `q` are their names."""
        one, other = self.prompts
        of = f"the same {one} prompts" if self.paired else f"{one} and {other} prompts that are not the same"
        told = [_told(one) for one in self.parts if one.told]
        said = [f"they differ {', '.join(told)}"] if told else []
        if rest := [one for one in self.parts if not one.told]:
            said.append(f"inconclusive {', '.join(map(_told, rest))}")
        return f"influence of {p} less that of {q}, on {of}: {'; '.join(said)}"


def influence_differences(
    p: Profile, q: Profile, *, shares: int | None = None
) -> InfluenceDifferences | None:
    """Where two measured profiles of one length differ; None unless both are masses over four prompts or more.

    With `shares`, profiles of unlike length are held at so many equal shares of their contexts (`by_share`).
    Prompts are the same where both profiles name the same in `attrs["prompts"]`, as measurements do. Errors are of
    ratios of means over prompts, to first order; intervals by Student's t. Raises `InvalidValueError` for profiles
    of unlike length or with influence of later positions than the query.
    """
    if not all(_measured(one) for one in (p, q)):
        return None
    paired = same_prompts(p, q)
    p, q = up_to_query(p, "p"), up_to_query(q, "q")
    if shares is not None:
        p, q = p.by_share(shares), q.by_share(shares)
    if p.tokens != q.tokens:
        raise InvalidValueError(f"p: {p.tokens} positions given, {q.tokens} needed, as in the reference")
    samples = [np.asarray(one.samples, dtype=np.float64) for one in (p, q)]
    parts = list(_parts(p.tokens))
    found = []
    for name, left, right in parts:
        values, errors = zip(*(_share(one, left, right) for one in samples), strict=True)
        if paired:
            difference = _mean(values[0] - values[1], errors[0] - errors[1])
        else:
            difference = _mean(values[0], errors[0]) - _mean(values[1], errors[1])
        reach = quantile_of_t(difference.freedom, 1 - TOGETHER / len(parts) / 2)
        half = reach * difference.se if difference.se else 0.0
        ends = (difference.value - half, difference.value + half)
        difference = replace(difference, ends=ends, together=len(parts))
        found.append(PartDifference(name, values[0], values[1], difference))
    return InfluenceDifferences(tuple(found), paired, (len(samples[0]), len(samples[1])))


def _measured(profile: Profile) -> bool:
    return profile.kind == "mass" and profile.samples is not None and len(profile.samples) >= LEAST_PROMPTS


def _parts(tokens: int) -> Iterator[tuple[str, int, int]]:
    """Name and stretch of the first positions, the middle and the last; without a middle where there is none."""
    ends = at_ends(tokens)
    many = "position" if ends == 1 else f"{ends}"
    yield f"at the first {many}", 0, ends
    if tokens > 2 * ends:
        yield "in the middle", ends, tokens - ends
    yield f"at the last {many}", tokens - ends, tokens


def _share(samples: np.ndarray, left: int, right: int) -> tuple[float, np.ndarray]:
    """The share of a stretch in the mean over prompts, and each prompt's part in its error, to first order."""
    inside, whole = samples[:, left:right].sum(axis=1), samples.sum(axis=1)
    value = inside.mean() / whole.mean()
    return float(value), (inside - value * whole) / whole.mean()


def _mean(value: float, residual: np.ndarray) -> Estimate:
    return Estimate(value, float(residual.std(ddof=1) / math.sqrt(len(residual))), len(residual))


def _told(one: PartDifference) -> str:
    low, high = one.difference.interval
    by = f"{one.p:.2%} and {one.q:.2%}, {one.difference.value:+.2%} [{low:+.2%}, {high:+.2%}]"
    return f"{one.part} ({by})"
