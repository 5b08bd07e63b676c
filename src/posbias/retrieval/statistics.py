"""The ends of a curve of retrieval against its middle: what is favoured, and the verdict, whoever was asked.

Comparisons between positions are differences within trials, so what makes a trial hard cancels. The middle is the
mean of all inner places. `decide` gives the verdict of every curve.

`resampled` takes whole trials: the answers at every place and in the control arms go into a resample together, so
what makes a trial hard cancels there too. Percentiles are widened as Student's t is (the expanded percentile
interval of Hesterberg 2015, "What teachers should know about the bootstrap"): plain ones are too short for few
trials. Where all agree a resample has no spread, and their number alone speaks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from posbias.core import machine
from posbias.profiles.estimate import Estimate, about, otherwise_at_most, quantile_of_t
from posbias.profiles.summary import Verdict

WIDTHS = (0.1, 0.05, 0.02)
"""Half-widths of a gap's interval in accuracy for which the number of trials is estimated."""
EQUIVALENCE = 0.05
"""A difference in accuracy up to this counts as none, unless another is wanted."""
CEILING = 1 - EQUIVALENCE
"""Where surely more than this is right, no place can be much worse than another, whatever position does."""
CLEAR = 0.25
"""At chance is what surely goes less than so far from chance to always right; less surely, it is inconclusive."""
ENDS = "first - last"
GAPS = ("first - middle", "last - middle", ENDS)
MAY_COPY = "the curve may show where it copies from, not what it can find"
VERDICTS: dict[Verdict, str] = {
    "U": "a U: both ends are found better than the middle",
    "primacy": "primacy: the first place is found better than the middle",
    "recency": "recency: the last place is found better than the middle",
    "middle": "the middle is found better than an end",
    "flat": "flat: no difference beyond {equivalence} between the ends and the middle",
    "inconclusive": "inconclusive: {misses}",
    "at ceiling": "at ceiling: {right} right, ask something harder",
    "at chance": f"at chance: {MAY_COPY}",
}
"""What a curve can be, in words; the middle is the mean of all inner places."""
END_WORDS = ("inconclusive", "favoured", "no difference", "at a disadvantage")
"""What an end can be against the middle; of one whose difference has the sign 1, the second, of −1, the last."""


Against = Sequence[tuple[Estimate, float, float]]
"""Numbers, the level that each must exceed, and one that it stays below at chance."""


def gaps_of(found: Float[np.ndarray, "prompt position"]) -> dict[str, Float[np.ndarray, "prompt"]]:
    """`GAPS` within each trial, the middle being the mean of all inner places; of two, first − last alone."""
    first, inner, last = found[:, 0], found[:, 1:-1], found[:, -1]
    if not inner.shape[1]:
        return {ENDS: first - last}
    middle = inner.mean(axis=1)
    return dict(zip(GAPS, (first - middle, last - middle, first - last), strict=True))


def above_chance(against: Against) -> bool:
    """Whether each number's 95 % interval lies above its level."""
    return all(one.interval[0] > level for one, level, _ in against)


def decide(
    gaps: Mapping[str, Estimate], equivalence: float | None, against: Against = (), *, ceiling: bool = False
) -> Verdict:
    """The verdict of a curve; every place that prints one asks here.

    Each number of `against` must lie above its level, by its 95 % interval; where one surely does not, the curve
    is at chance, else inconclusive. An end is favoured or not where its gap's 95 % interval leaves out 0 (of two
    places, against the other one). Where neither is, the curve is at `ceiling`, or flat if the 90 %
    interval of every gap lies within ± `equivalence`; else it is inconclusive.
    """
    if not above_chance(against):
        return "at chance" if any(one.interval[1] < most for one, _, most in against) else "inconclusive"
    if GAPS[0] in gaps:
        first, last = (gaps[name].sign for name in GAPS[:2])
    else:
        first, last = max(0, gaps[ENDS].sign), max(0, -gaps[ENDS].sign)
    if first > 0 or last > 0:
        return "U" if first > 0 and last > 0 else "primacy" if first > 0 else "recency"
    if first < 0 or last < 0:
        return "middle"
    if ceiling:
        return "at ceiling"
    alike = equivalence is not None and all(gap.within(equivalence) for gap in gaps.values())
    return "flat" if alike else "inconclusive"


def compared(gap: Estimate, equivalence: float | None) -> str:
    """One of `END_WORDS` for a difference: by its 95 % interval, or its 90 % interval within ± `equivalence`."""
    small = equivalence is not None and gap.within(equivalence)
    return END_WORDS[gap.sign or 2 * small]


def ends_of(gaps: Mapping[str, Estimate], equivalence: float | None, able: bool = True) -> dict[str, str]:
    """The first and the last place against the middle, each one of `END_WORDS`."""
    ends = zip(("first", "last"), GAPS, strict=False)
    return {end: compared(gaps[name], equivalence) if able else END_WORDS[0] for end, name in ends}


def detectable_of(gaps: Mapping[str, Estimate]) -> dict[str, float | None]:
    """By gap, the least one that this many trials would show; None where no two trials differ."""
    return {name: gap.detectable if math.isfinite(gap.detectable) else None for name, gap in gaps.items()}


def gap_words(name: str, gap: Estimate, equivalence: float | None) -> str:
    """A difference of two places in words."""
    said = compared(gap, equivalence)
    if said == "no difference":
        return f"no difference beyond {equivalence:g}"
    if name == ENDS and said != END_WORDS[0]:
        return f"the {'first' if said == END_WORDS[1] else 'last'} favoured"
    return said


def in_words(
    verdict: Verdict,
    gaps: Mapping[str, Estimate],
    equivalence: float | None,
    effort: str,
    unit: str = "",
    found: Any = None,
) -> str:
    """A verdict in words; of one on one end, what is known of the other. `effort` is the number of trials."""
    misses = f"{effort} miss gaps under {{:.2g}}{unit}"
    rests_on = [gap.detectable for name, gap in gaps.items() if name != ENDS or len(gaps) == 1]
    least = max(filter(math.isfinite, rests_on), default=math.nan)
    right = "nearly all" if found is None else f"{found.sum():,.0f} of {found.size:,}"
    said = VERDICTS[verdict].format(equivalence=equivalence, misses=misses.format(least), right=right)
    if verdict not in ("primacy", "recency"):
        return said
    place = "last" if verdict == "primacy" else "first"
    if GAPS[0] not in gaps:
        return said.replace("middle", place)
    other = gaps[f"{place} - middle"]
    words = {
        "at a disadvantage": f", the {place} worse",
        "no difference": f", the {place} not beyond {equivalence}",
        "inconclusive": f"; of the {place}, {misses.format(other.detectable)}",
    }
    return said + words[compared(other, equivalence)]


def at_ceiling(found: Shaped[np.ndarray, "prompt position"], mean: Estimate) -> bool:
    """Whether all is right, or surely more than `CEILING` of it (`mean`, over trials)."""
    return bool((found == 1).all()) or mean.interval[0] > CEILING


def would(prompts: int | None, what: str) -> str:
    """In brackets, how many prompts would tell."""
    return "" if prompts is None else f" ({about(prompts)} would, were {what} as seen)"


RESAMPLES = 4000
_AT_ONCE = 4_000_000


def resampled(
    samples: Float[np.ndarray, "set quantity"],
    limits: Sequence[tuple[float, float]],
    seed: int = 0,
    together: int = 1,
) -> list[Estimate]:
    """The mean of each column over the sets, with intervals from resamples that all columns share.

    `limits` are the least and the most that a column can be: an interval stays within them. A column without
    spread has the interval of the number of sets alone: at most 1 − .05^(1/n) of all sets differ from those seen.
    `together` intervals hold at once in 95 % of experiments (Bonferroni: each in 1 − .05/`together`).
    """
    sets = len(samples)
    means = samples.mean(axis=0)
    errors = samples.std(axis=0, ddof=1) / math.sqrt(sets) if sets > 1 else np.full(len(means), math.inf)
    drawn = _means(samples, seed, RESAMPLES * together) if sets > 1 else np.empty((0, len(means)))
    found = []
    for k, (least, most) in enumerate(limits):
        ends = []
        for miss in (0.05 / together, 0.1 / together):
            if errors[k] > 0 and sets > 1:
                low, high = np.quantile(drawn[:, k], _tails(sets, miss)).tolist()
            else:
                others = otherwise_at_most(sets, miss)
                low, high = means[k] - others * (means[k] - least), means[k] + others * (most - means[k])
            ends.append((float(max(least, low)), float(min(most, high))))
        se = float(errors[k]) if sets > 1 else math.nan
        found.append(
            Estimate(
                float(means[k]),
                se,
                sets,
                ends=ends[0],
                narrow=ends[1],
                method="bootstrap",
                together=together,
            )
        )
    return found


def _tails(sets: int, miss: float) -> list[float]:
    from scipy.special import ndtr

    tail = float(ndtr(-quantile_of_t(sets - 1, 1.0 - miss / 2) * math.sqrt(sets / (sets - 1))))
    return [tail, 1.0 - tail]


def _means(
    samples: Float[np.ndarray, "set quantity"], seed: int, resamples: int
) -> Float[np.ndarray, "resample quantity"]:
    random = machine.stream(seed, "retrieval.bootstrap")
    sets = len(samples)
    at_once = max(1, _AT_ONCE // sets)
    parts = []
    for begin in range(0, resamples, at_once):
        many = min(at_once, resamples - begin)
        rows = np.repeat(np.arange(many), sets) * sets + random.integers(sets, size=many * sets)
        counts = np.bincount(rows, minlength=many * sets).reshape(many, sets)
        parts.append(counts @ samples / sets)
    return np.concatenate(parts)
