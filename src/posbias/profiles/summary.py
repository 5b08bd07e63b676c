"""The shape of a profile in numbers: mass at its ends, its trough, its verdict.

Ends and trough are as many positions each (`at_ends`), so that their mass compares. A verdict says which ends are
favoured (`Summary.verdict`).

It is that of the mean over prompts. Influence of single prompts varies so much that a mean over a few rises at
either end by chance: positions shuffled within prompts, in which nothing is favoured, gave 4 prompts a verdict
other than flat in half of the cases. An end is surely favoured where the intervals of its margins, over what the
verdict compares it with, lie above 0; surely not where one lies below; and inconclusive otherwise (`doubts`).
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from posbias.profiles.curves import least_stretch
from posbias.profiles.estimate import Estimate, about, ratio_of_means

SHARE = 0.05
"""The share of positions that counts as first and as last."""

RISE = 1.25
"""How much denser than the trough an end must be to count as favoured."""
FLOOR = 0.1
"""The mass relative to uniform that an end must have to count as favoured: next to nothing is no favour."""
LEAST_PROMPTS = 4
"""With fewer the trough cannot be read off other prompts than those that place it, and neither resampling prompts
nor leaving them out says how sure a number is: no verdict is sure, and no score has an interval."""
Samples = Float[np.ndarray, "prompt position"]
Verdict = Literal["U", "primacy", "recency", "middle", "flat", "inconclusive", "at ceiling", "at chance"]
"""The shape of a curve by position, of predictions, measurements and retrievals alike. Only what was asked in
trials can be at ceiling or at chance; where it is not known, a prediction has None and trials are inconclusive."""


@dataclass(frozen=True)
class Summary:
    """The statistics of a profile over positions 0 … query (under masks that look ahead, over all that have
    influence); each is defined at its field.

    `ends` is k = max(1, round(0.05·tokens)), the number of positions at either end.
    """

    tokens: int
    query: int
    ends: int
    first_mass: float
    """Mass of the first k positions."""
    last_mass: float
    """Mass of the last k positions up to the query."""
    trough: int
    """Centre of the k neighbouring positions in reach with the least mass (the earliest such place)."""
    trough_depth: float
    """1 − (mean mass in the trough)/(mean mass over all positions in reach): 0 is flat, 1 is nothing at all. With
    prompts it is cross-fitted (`Profile.trough_share`): choosing the least of noisy numbers does not deepen it."""
    ratio: tuple[float, float, float]
    """Mean mass per position of the first k, the middle, and the last k, in units of the mean over all."""
    effective_range: int
    """The fewest positions, counted back from the query, that hold at least 90 % of the mass."""
    entropy: float
    """−Σ p ln p, in nats."""
    verdict: Verdict | None
    """An end is favoured when its k positions hold more than 1.25 times the mass of the least k neighbours (out of
    reach or not), more than k positions of the middle do on average, and at least a tenth of an even share: both
    ends give U, one gives primacy or recency. With none, it is middle where the middle so exceeds both ends by
    1.25, else flat. None for a prediction that leaves out what decides it (`Profile.left_out`)."""
    flatness: float = math.nan
    """Σ min(p, 1/tokens): 1 minus the total variation distance to uniform. 1 is flat, 1/tokens all on one
    position. Noise in a measured profile lowers it."""
    out_of_reach: int = 0
    """Positions without any influence: no path leads from them to the query (or none within double precision)."""
    verdict_without_first: Verdict | None = None
    """The verdict on the same profile without position 0."""
    verdict_without_last: Verdict | None = None
    """The verdict on the same profile without the query's own token."""
    middle_mass: float = math.nan
    """Mass of the middle half of the positions up to the query."""

    @property
    def ends_alone(self) -> list[str]:
        """Where the verdict rests on the first token alone, or on the query's own, in words."""
        first = "the first token", self.verdict_without_first, "primacy"
        said, last = [], ("the query's own token", self.verdict_without_last, "recency")
        for name, rest, end in (first, last):
            if self.verdict and rest and rest != self.verdict:
                alone = self.verdict in ("U", end) and rest not in ("U", end)
                without = f"{self.verdict} only through {name}; without it" if alone else f"without {name}"
                said.append(f"{without}: {rest}")
        return said

    @property
    def shares(self) -> tuple[float, float, float]:
        """What the first k positions, the middle half and the last k hold."""
        return self.first_mass, self.middle_mass, self.last_mass

    @property
    def reaches_all(self) -> bool:
        """Whether it takes all positions to hold 90 % of the mass, so that `effective_range` tells nothing."""
        return self.effective_range >= self.tokens


@dataclass(frozen=True, eq=False)
class MixingBand:
    """A prediction under every known λ: `shapes` by the model whose λ it has, that of the assumed λ first.

    `low` and `high` are the least and the most of each position over the pretrained models of one definition of λ.
    The others, `checks`, count for verdicts, which are of the curves as computed, at any length.
    """

    shapes: dict[str, Summary]
    checks: tuple[str, ...]
    low: Float[np.ndarray, "position"]
    high: Float[np.ndarray, "position"]

    @property
    def models(self) -> tuple[str, ...]:
        """The pretrained models of `low` and `high`."""
        return tuple(name for name in list(self.shapes)[1:] if name not in self.checks)

    @property
    def verdicts(self) -> dict[str, str | None]:
        """The verdict under each λ."""
        return {name: shape.verdict for name, shape in self.shapes.items()}

    @property
    def verdict(self) -> tuple[str | None, dict[str, bool]]:
        """The verdict under most λ, and whether it is that under each; None where something else decides it."""
        (most, _), *_ = Counter(self.verdicts.values()).most_common()
        return most, {name: one == most for name, one in self.verdicts.items()}


def summarise(
    mass: Float[np.ndarray, "position"],
    query: int,
    trough: tuple[int, float],
    least: float | None,
    *,
    decided: bool = True,
) -> Summary:
    """The statistics of shares `mass` ≥ 0, which sum to 1, of the positions that influence `query`.

    `trough` is its place and depth, `least` the mass of the k neighbours with the least (None: to be found), which
    may be read off other prompts than those that place it; unless `decided` there is no verdict.
    """
    tokens = mass.size
    ends = at_ends(tokens)
    first, last = float(mass[:ends].sum()), float(mass[-ends:].sum())
    inner = mass[ends:-ends]
    half = mass[tokens // 4 : tokens - tokens // 4]  # whose first and last may be cut
    middle = float(inner.mean()) if inner.size else math.nan
    uniform = 1.0 / tokens
    positive = mass[mass > 0]
    backwards = np.cumsum(mass[::-1])
    reached = np.flatnonzero(backwards >= 0.9 - 1e-12)
    return Summary(
        tokens=tokens,
        query=query,
        ends=ends,
        first_mass=first,
        last_mass=last,
        trough=trough[0],
        trough_depth=trough[1],
        ratio=(first / ends / uniform, middle / uniform, last / ends / uniform),
        effective_range=int(reached[0]) + 1 if reached.size else tokens,
        entropy=abs(float((positive * np.log(positive)).sum())),
        verdict=verdict_of(mass, least) if decided else None,
        flatness=float(np.minimum(mass, uniform).sum()),
        out_of_reach=tokens - positive.size,
        middle_mass=float(half.sum() - tokens % 4 / 4 * (half[0] + half[-1])),
    )


def at_ends(tokens: int) -> int:
    """The number of positions that count as first, as last and as the trough."""
    return max(1, round(SHARE * tokens))


def verdict_of(mass: Float[np.ndarray, "position"], least: float | None = None) -> Verdict:
    """The verdict (`Summary.verdict`) on numbers ≥ 0 of any sum, whose least k neighbours hold `least`."""
    ends, inner = at_ends(mass.size), mass[at_ends(mass.size) : -at_ends(mass.size)]
    if least is None:
        start = least_stretch(mass, ends)
        least = float(mass[start : start + ends].sum())
    first, last = float(mass[:ends].sum()), float(mass[-ends:].sum())
    middle = ends * float(inner.mean()) if inner.size else 0.0
    above, enough = max(RISE * least, middle), FLOOR * ends * float(mass.mean())
    primacy, recency = (end > above and end >= enough for end in (first, last))
    if primacy and recency:
        return "U"
    if primacy or recency:
        return "primacy" if primacy else "recency"
    return "middle" if middle > RISE * max(first, last) else "flat"


# --- what prompts say of a verdict -----------------------------------------------------------------------------


def margins(samples: Samples, ends: int, last: bool) -> tuple[Estimate, ...]:
    """Share of the first (or `last`) `ends` positions minus what a verdict holds it against, over the prompts.

    `RISE` times the trough, whose place either half of the prompts gives the other; the middle's mean over as many
    positions; `FLOOR` relative to uniform. Errors are of ratios of means, to first order, with Student's t.
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
    return tuple(Estimate.linearised(*ratio_of_means(end - other, whole)) for other in against)


def favoured(found: tuple[Estimate, ...]) -> bool | None:
    """Whether an end with these margins is favoured; None where the prompts do not tell."""
    if any(one.interval[1] < 0 for one in found):
        return False
    return True if all(one.interval[0] > 0 for one in found) else None


def doubts(samples: Samples | None, ends: int, verdict: str | None) -> list[str]:
    """What of a verdict the prompts do not decide, a sentence each; none where they decide all, or there are none.

    `ends` is the number of positions that count as first and as last.
    """
    if samples is None or verdict is None:
        return []
    prompts = len(samples)
    if prompts < LEAST_PROMPTS:
        return [f"{_prompts_do(prompts)} not tell the verdict, at least {LEAST_PROMPTS} needed"]
    return inconclusive(prompts, list(_open(samples, ends, verdict)))


def inconclusive(prompts: int, questions: Sequence[str]) -> list[str]:
    """A sentence that this many prompts do not tell whether each of these is so; none without questions."""
    return (
        [f"{_prompts_do(prompts)} not tell whether {', nor whether '.join(questions)}"] if questions else []
    )


def _prompts_do(prompts: int) -> str:
    return "1 prompt does" if prompts == 1 else f"{prompts} prompts do"


def _open(samples: Samples, ends: int, verdict: str) -> Iterator[str]:
    """Each end of which the prompts do not bear the verdict out, with how many would."""
    for last, name, word in ((False, "first", "primacy"), (True, "last", "recency")):
        found, said = margins(samples, ends, last), verdict in ("U", word)
        decided = favoured(found)
        if decided is said:
            continue
        needed = [one.draws_to_tell() for one in found] if decided is None else []
        # to be favoured takes all margins, not to be takes one
        counts = [one for one in needed if one is not None]
        many = (max if said else min)(counts) if counts else None
        would = "" if many is None else f" ({about(many)} would, were the margin as seen)"
        yield f"the {name} {'position is' if ends == 1 else f'{ends} are'} favoured{would}"
