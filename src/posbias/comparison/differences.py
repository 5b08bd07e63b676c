"""Differences by position, with intervals that hold together (Bonferroni): none of many is one by chance.

Two measurements: their shares of influence at the first positions, in the middle and at the last, within prompts
where both measured the same texts, else between two samples of prompts (Welch).

    found = influence_differences(posbias.measured_influence(one), posbias.measured_influence(other))
    found.paired, found.sentence("one", "other")

Attributions over what position alone predicts, so that what content adds can be seen: a method of attribution
gives the first and last tokens much whatever they say, if the model does.

    found = posbias.prior_normalised(posbias.read("attributions.json"), posbias.predict(architecture, tokens=64))
    print(found.mass, found.se)      # 1: as much as position predicts, 2: twice as much, −1: as much against it
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from posbias.comparison.agreement import same_prompts
from posbias.comparison.scores import up_to_query
from posbias.core.errors import wrong
from posbias.imports import read
from posbias.profiles.estimate import Estimate, ratio_of_means
from posbias.profiles.profile import Profile
from posbias.profiles.summary import LEAST_PROMPTS, at_ends

if TYPE_CHECKING:
    from posbias.imports import AnyProfile

MEASURES = "attribution / prior"


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
    def significant(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.difference.tells()


@dataclass(frozen=True)
class InfluenceDifferences:
    """The parts, whether prompts are the same for both (`paired`), and how many prompts each has."""

    parts: tuple[PartDifference, ...]
    paired: bool
    prompts: tuple[int, int]

    @property
    def verdict(self) -> str:
        """`they differ` where the difference is significant in any part, else `inconclusive`."""
        return "they differ" if any(one.significant for one in self.parts) else "inconclusive"

    def sentence(self, p: str = "p", q: str = "q") -> str:
        """Where the two differ and by how much, and where that is inconclusive; `p` and `q` are their names."""
        one, other = self.prompts
        of = f"the same {one} prompts" if self.paired else f"{one} and {other} prompts that are not the same"
        if not any(one.difference.value or one.difference.se for one in self.parts):
            return f"influence of {p} and of {q}, on {of}: equal"
        found = [_words(one) for one in self.parts if one.significant]
        said = [f"they differ {', '.join(found)}"] if found else []
        if rest := [one for one in self.parts if not one.significant]:
            said.append(f"inconclusive {', '.join(map(_words, rest))}")
        return f"influence of {p} less that of {q}, on {of}: {'; '.join(said)}"


def influence_differences(
    p: Profile, q: Profile, *, shares: int | None = None
) -> InfluenceDifferences | None:
    """Where two measured profiles of one length differ; None unless both are masses over four prompts or more.

    With `shares`, profiles of unlike length are held at so many equal shares of their contexts (`by_share`).
    Prompts are the same where both profiles name the same (`Profile.prompts`), as measurements do. Errors are of
    ratios of means over prompts, to first order; intervals by Student's t. Raises `InvalidValueError` for profiles
    of unlike length or with influence of later positions than the query.
    """
    for one in (p, q):
        if one.kind != "mass" or one.samples is None or len(one.samples) < LEAST_PROMPTS:
            return None
    paired = same_prompts(p, q)
    p, q = up_to_query(p, "p"), up_to_query(q, "q")
    if shares is not None:
        p, q = p.by_share(shares), q.by_share(shares)
    if p.tokens != q.tokens:
        raise wrong("p", f"{q.tokens} positions as in the reference", p.tokens)
    samples = [np.asarray(one.samples, dtype=np.float64) for one in (p, q)]
    parts = list(_parts(p.tokens))
    found = []
    for name, left, right in parts:
        (ours, errors), (theirs, others) = (
            ratio_of_means(one[:, left:right].sum(axis=1), one.sum(axis=1)) for one in samples
        )
        if paired:
            difference = Estimate.linearised(ours - theirs, errors - others)
        else:
            difference = Estimate.linearised(ours, errors) - Estimate.linearised(theirs, others)
        found.append(PartDifference(name, ours, theirs, difference.jointly(len(parts))))
    return InfluenceDifferences(tuple(found), paired, (len(samples[0]), len(samples[1])))


def _parts(tokens: int) -> Iterator[tuple[str, int, int]]:
    """Name and stretch of the first positions, the middle and the last; without a middle where there is none."""
    ends = at_ends(tokens)
    many = "position" if ends == 1 else f"{ends}"
    yield f"at the first {many}", 0, ends
    if tokens > 2 * ends:
        yield "in the middle", ends, tokens - ends
    yield f"at the last {many}", tokens - ends, tokens


def _words(one: PartDifference) -> str:
    low, high = one.difference.interval
    by = f"{one.p:.2%} and {one.q:.2%}, {one.difference.value:+.2%} [{low:+.2%}, {high:+.2%}]"
    return f"{one.part} ({by})"


# --- attributions over a prior ---------------------------------------------------------------------------------


def prior_normalised(attributions: "AnyProfile", prior: "AnyProfile") -> Profile:
    """Each prompt's attributions as shares of their absolute sum, divided by the prior's mass, mean over prompts.

    r_pj = a_pj / (Σ_k |a_pk| · m_j): 1 where a position gets what the prior predicts. `se` is over prompts and,
    where the prior has an error, √(se² + (r·se_m/m)²) to first order, the two taken as independent. The result is
    signed, its samples are the prompts'. Raises `InvalidValueError` for lengths that differ, a prior that is no
    mass or 0 somewhere, and a prompt whose attributions are all 0.
    """
    attributions, prior = read(attributions), read(prior)
    if prior.kind != "mass":
        raise wrong("prior", "a mass", got=f"a profile of {prior.kind}")
    if attributions.tokens != prior.tokens:
        got = f"{prior.tokens} (Profile.by_share brings both to one length)"
        raise wrong("prior", f"{attributions.tokens} positions as in the attributions", got=got)
    if not (prior.mass > 0).all():
        raise wrong("prior", "numbers > 0", got=f"0 at position {int(np.argmin(prior.mass))}")
    samples = attributions.samples
    rows = np.asarray(attributions.mass[None] if samples is None else samples, np.float64)
    whole = np.abs(rows).sum(axis=1, keepdims=True)
    if not (whole > 0).all():
        raise wrong("attributions", "one other than 0 in each prompt", got="all 0")
    held = prior.mass / prior.mass.sum()
    made = Profile.from_rows(
        rows / whole / held,
        query=attributions.query,
        measures=MEASURES,
        attrs=attributions.attrs,
        kind="signed",
        model=attributions.model,
        assumptions=(f"relative to {prior.name or prior.measures}",),
    )
    if made.se is None:
        return replace(made, samples=None)
    if prior.se is None:
        return made
    return replace(made, se=np.hypot(made.se, made.mass * np.asarray(prior.se) / prior.mass))


@dataclass(frozen=True)
class Residual:
    """A position whose attribution is not what the prior predicts, and its `ratio` to that."""

    position: int
    ratio: Estimate


def residuals(normalised: Profile) -> tuple[Residual, ...]:
    """The positions of `prior_normalised` whose interval leaves out 1, the farthest from 1 first.

    Intervals hold together in 95 % (Student's t, Bonferroni over positions). None without prompts: then no
    interval is known.
    """
    if normalised.se is None or normalised.samples is None:
        return ()
    prompts = len(normalised.samples)
    numbers = zip(normalised.mass.tolist(), np.asarray(normalised.se).tolist(), strict=True)
    ratios = [Estimate(value, se, prompts).jointly(normalised.tokens) for value, se in numbers]
    found = [Residual(place, ratio) for place, ratio in enumerate(ratios) if ratio.tells(1.0)]
    return tuple(sorted(found, key=lambda one: -abs(one.ratio.value - 1)))


def sentence(found: Sequence[Residual], normalised: Profile) -> str:
    """What content adds to position, in words."""
    if normalised.samples is None:
        return "relative to what position predicts: not known, several prompts needed"
    over = f"{len(normalised.samples)} prompts"
    if not found:
        return f"relative to what position predicts: no position differs significantly in {over}"
    first = ", ".join(
        f"position {one.position} gets {one.ratio.value:.2g} times as much" for one in found[:3]
    )
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"relative to what position predicts: {first}{more} ({over}; intervals leave out 1, together in 95 %)"
    )
