"""What the prompts behind a measured profile tell of its verdict, and about how many would tell the rest.

A verdict is that of the mean over prompts. Influence of single prompts varies so much that a mean over a few rises
at either end by chance: positions shuffled within prompts, in which nothing is favoured, gave 4 prompts a verdict
other than flat in half of the cases. An end is **told** to be favoured where the intervals of its margins, over
what the verdict compares it with, lie above 0; told not to be where one lies below; and open otherwise.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from posbias.profiles.curves import least_stretch
from posbias.profiles.estimate import Estimate, about, otherwise_at_most, t_95
from posbias.profiles.summary import FLOOR, RISE

LEAST_PROMPTS = 4
"""With fewer the trough cannot be read off other prompts than those that place it, and nothing is told."""
LIMITS = {"rate": (0.0, 1.0), "mass": (0.0, math.inf)}
"""The least and the most that numbers of a kind can be, where there is such."""
_ALIKE = 1e-12
"""A standard error below this is rounding: all samples are alike."""
Samples = Float[np.ndarray, "prompt position"]


def margins(samples: Samples, ends: int, last: bool) -> tuple[Estimate, ...]:
    """Share of the first (or `last`) `ends` positions minus what a verdict holds it against, over the prompts.

    `RISE` times the trough, whose place either half of the prompts gives the other; the middle's mean over as many
    positions; `FLOOR` of an even spread. Errors are of ratios of means, to first order, with Student's t.
    """
    prompts, tokens = samples.shape
    inside = samples[:, -ends:] if last else samples[:, :ends]
    whole, end = samples.sum(axis=1), inside.sum(axis=1)
    trough = np.empty(prompts)
    for half in (0, 1):
        at = least_stretch(samples[1 - half :: 2].mean(axis=0), ends)
        trough[half::2] = samples[half::2, at : at + ends].sum(axis=1)
    against = [RISE * trough, FLOOR * ends / tokens * whole]
    if tokens > 2 * ends:
        against.append(ends * samples[:, ends:-ends].mean(axis=1))
    return tuple(_ratio(end - other, whole) for other in against)


def _ratio(part: Float[np.ndarray, "prompt"], whole: Float[np.ndarray, "prompt"]) -> Estimate:
    value = float(part.mean() / whole.mean())
    residual = (part - value * whole) / whole.mean()
    return Estimate(value, float(residual.std(ddof=1) / math.sqrt(len(part))), len(part))


def favoured(found: tuple[Estimate, ...]) -> bool | None:
    """Whether an end with these margins is favoured; None where the prompts do not tell."""
    if any(one.interval[1] < 0 for one in found):
        return False
    return True if all(one.interval[0] > 0 for one in found) else None


def doubts(samples: Samples | None, ends: int, verdict: str | None) -> list[str]:
    """What of a verdict the prompts do not tell, a sentence each; none where all is told, or there are no prompts.

    `ends` is the number of positions that count as first and as last.
    """
    if samples is None or verdict is None:
        return []
    prompts = len(samples)
    if prompts < LEAST_PROMPTS:
        return [f"{_prompts_do(prompts)} not tell the verdict, at least {LEAST_PROMPTS} needed"]
    return not_told(prompts, list(_open(samples, ends, verdict)))


def intervals(
    values: Float[np.ndarray, "position"], se: Float[np.ndarray, "position"], draws: int | None, kind: str
) -> tuple[Float[np.ndarray, "position"], Float[np.ndarray, "position"]]:
    """The 95 % interval of each number of a profile, as far as numbers of its kind go: low ends, high ends.

    Student's t over so many samples (None: the normal's). A rate that is the same in all of them (`se` 0) has no
    spread to go by, and the interval of their number alone (`otherwise_at_most`).
    """
    least, most = LIMITS.get(kind, (-math.inf, math.inf))
    reach = t_95(math.inf if draws is None else draws - 1.0) * se
    if kind == "rate" and draws is not None:
        others, alike = otherwise_at_most(draws), se < _ALIKE
        down, up = (np.where(alike, others * abs(values - end), reach) for end in (least, most))
        return np.maximum(least, values - down), np.minimum(most, values + up)
    return np.maximum(least, values - reach), np.minimum(most, values + reach)


def of_counts(
    counts: Sequence[Sequence[int]],
) -> tuple[Float[np.ndarray, "position"], Float[np.ndarray, "position"]]:
    """The 95 % interval of each share, of right answers and all of them: low ends, high ends (Wilson 1927)."""
    right, of = np.array(counts, dtype=np.float64).T
    share, z = right / of, t_95(math.inf)
    middle = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * np.sqrt(share * (1 - share) / of + z**2 / (4 * of**2))
    return np.maximum(0.0, middle - half), np.minimum(1.0, middle + half)


def not_told(prompts: int, questions: Sequence[str]) -> list[str]:
    """A sentence that so many prompts do not tell whether each of these is so; none without questions."""
    return (
        [f"{_prompts_do(prompts)} not tell whether {', nor whether '.join(questions)}"] if questions else []
    )


def _prompts_do(prompts: int) -> str:
    return "1 prompt does" if prompts == 1 else f"{prompts} prompts do"


def _open(samples: Samples, ends: int, verdict: str) -> Iterator[str]:
    """Each end that the verdict is not told of, with how many prompts would tell."""
    for last, name, word in ((False, "first", "primacy"), (True, "last", "recency")):
        found, said = margins(samples, ends, last), verdict in ("U", word)
        told = favoured(found)
        if told is said:
            continue
        needed = [one.draws_to_tell() for one in found] if told is None else []
        # to be favoured takes all margins, not to be takes one
        counts = [one for one in needed if one is not None]
        many = (max if said else min)(counts) if counts else None
        would = "" if many is None else f" ({about(many)} would, were the margin as seen)"
        yield f"the {name} {'position is' if ends == 1 else f'{ends} are'} favoured{would}"
