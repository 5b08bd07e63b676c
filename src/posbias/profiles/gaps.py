"""The ends against the middle: gaps between places within trials, their intervals, the verdict on a curve.

Comparisons between places are differences within trials, so what makes a trial hard cancels. The middle is the
mean of all inner places. `decide` gives the verdict of every curve by place; `resampled` the intervals of shares.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Shaped

from posbias.core import machine
from posbias.profiles.estimate import (
    Estimate,
    about,
    counted,
    digits_of_shares,
    otherwise_at_most,
    quantile_of_t,
)
from posbias.profiles.summary import Verdict

MEAN, ENDS = "mean", "first - last"
GAPS = ("first - middle", "last - middle", ENDS)
WIDTHS = (0.1, 0.05, 0.02)
"""Half-widths of a gap's interval in accuracy for which the number of trials is estimated."""
EQUIVALENCE = 0.05
"""A difference in accuracy up to this counts as none, unless another is wanted."""
CEILING = 1 - EQUIVALENCE
"""Where surely more than this is right, no place can be much worse than another, whatever position does."""
CLEAR = 0.25
"""At chance is what surely goes less than so far from chance to always right; less surely, it is inconclusive."""
MAY_COPY = "the curve may show where it copies from, not what it can find"
NOT_KEPT = "rules are not shown to be kept for being asked for"
VERDICTS: dict[Verdict, str] = {
    "U": "U: both ends do better than the middle",
    "primacy": "primacy: the first place does better than the middle",
    "recency": "recency: the last place does better than the middle",
    "middle": "the middle does better than an end",
    "flat": "flat: no difference beyond {equivalence} between the ends and the middle",
    "inconclusive": "inconclusive: {misses}",
    "at ceiling": "at ceiling: {right} right, ask something harder",
    "at chance": f"at chance: {MAY_COPY}",
}
"""What a curve can be, in words."""
END_WORDS = ("inconclusive", "favoured", "no difference", "at a disadvantage")
"""What an end can be against the middle; of one whose difference has the sign 1, the second, of −1, the last."""
Against = Sequence[tuple[Estimate, float, float]]
"""Numbers, the level that each must exceed, and one that it stays below at chance."""
Name = TypeVar("Name", bound=Hashable)
Columns = Mapping[tuple[float, float], Mapping[Name, Float[np.ndarray, "trial"]]]
"""Numbers by trial under their names, by the least and the most that they can be."""


def gaps_of(found: Float[np.ndarray, "trial place *_"]) -> dict[str, Float[np.ndarray, "trial *_"]]:
    """`GAPS` within each trial, the middle being the mean of all inner places; of two, first − last alone."""
    first, inner, last = found[:, 0], found[:, 1:-1], found[:, -1]
    if not inner.shape[1]:
        return {ENDS: first - last}
    middle = inner.mean(axis=1)
    return dict(zip(GAPS, (first - middle, last - middle, first - last), strict=True))


def above_chance(against: Against) -> bool:
    """Whether each number's 95 % interval lies above its level."""
    return all(one.interval[0] > level for one, level, _ in against)


def at_ceiling(found: Shaped[np.ndarray, "trial place"], mean: Estimate) -> bool:
    """Whether all is right, or surely more than `CEILING` of it (`mean`, over trials)."""
    return bool((found == 1).all()) or mean.interval[0] > CEILING


def decide(
    gaps: Mapping[str, Estimate], equivalence: float | None, against: Against = (), *, ceiling: bool = False
) -> Verdict:
    """The verdict of a curve; every place that prints one asks here.

    Each number of `against` must lie above its level, by its 95 % interval; where one surely does not, the curve
    is at chance, else inconclusive. An end is favoured or not by `signs_of` (of two places, against the other
    one). Where neither is, the curve is at `ceiling`, or flat if the 90 % interval of every gap lies within
    ± `equivalence`; else it is inconclusive.
    """
    if not above_chance(against):
        return "at chance" if any(one.interval[1] < most for one, _, most in against) else "inconclusive"
    signs = signs_of(gaps)
    if GAPS[0] in gaps:
        first, last = (signs[name] for name in GAPS[:2])
    else:
        first, last = max(0, signs[ENDS]), max(0, -signs[ENDS])
    if first > 0 or last > 0:
        return "U" if first > 0 and last > 0 else "primacy" if first > 0 else "recency"
    if first < 0 or last < 0:
        return "middle"
    if ceiling:
        return "at ceiling"
    alike = equivalence is not None and all(gap.within(equivalence) for gap in gaps.values())
    return "flat" if alike else "inconclusive"


def signs_of(gaps: Mapping[str, Estimate]) -> dict[str, int]:
    """By gap 1 or −1 where it is surely above or below 0, else 0; of a flat curve in 5 % of experiments at most.

    Both ends are looked at together (Holm 1979): the surer one counts where its 97.5 % interval leaves out 0 too,
    the other one by its 95 % interval where the surer one counts.
    """
    surest = sorted(gaps, key=lambda name: -abs(gaps[name].value / (gaps[name].se or 1e-300)))
    ends = [name for name in surest if name != ENDS]
    signs = {name: gap.sign for name, gap in gaps.items()}
    if len(ends) > 1 and not gaps[ends[0]].jointly(len(ends)).sign:
        signs |= dict.fromkeys(ends, 0)
    return signs


def compared(gaps: Mapping[str, Estimate], equivalence: float | None) -> dict[str, str]:
    """By gap one of `END_WORDS`: by its sign (`signs_of`), or none where its 90 % interval lies within
    ± `equivalence`."""
    small = {name: equivalence is not None and gap.within(equivalence) for name, gap in gaps.items()}
    return {name: END_WORDS[sign or 2 * small[name]] for name, sign in signs_of(gaps).items()}


FEWEST, RESAMPLES = 4, 4000
"""Trials of an interval, and resamples that it is of."""
_AT_ONCE = 4_000_000


def resampled(columns: Columns[Name], seed: int = 0, together: int = 1) -> dict[Name, Estimate]:
    """The mean over trials of each column, with intervals from resamples of whole trials that all columns share.

    `columns` stand under the least and the most that they can be: an interval stays within them. Percentiles are
    widened as Student's t is (the expanded percentile interval of Hesterberg 2015, "What teachers should know
    about the bootstrap"): plain ones are too short for few trials, and of fewer than `FEWEST` anything may be.
    A column without spread has the interval of the number of trials alone: at most 1 − .05^(1/n) of all trials
    differ from those seen. `together` intervals hold at once in 95 % of experiments (Bonferroni: each in
    1 − .05/`together`).
    """
    from scipy.special import ndtr

    limits = {name: ends for ends, named in columns.items() for name in named}
    samples = np.stack([column for named in columns.values() for column in named.values()], axis=1)
    trials, means = len(samples), samples.mean(axis=0).tolist()
    errors = [math.nan] * len(means)
    drawn = np.empty((0, len(means)))
    if trials > 1:
        errors = (samples.std(axis=0, ddof=1) / math.sqrt(trials)).tolist()
        drawn = _means(samples, seed, RESAMPLES * together)
    found = {}
    for (name, (least, most)), mean, se, draws in zip(limits.items(), means, errors, drawn.T, strict=True):
        ends = []
        for miss in (0.05 / together, 0.1 / together):
            if trials < FEWEST and se != 0:
                low, high = least, most
            elif se > 0:
                reach = quantile_of_t(trials - 1, 1.0 - miss / 2) * math.sqrt(trials / (trials - 1))
                tail = float(ndtr(-reach))
                low, high = np.quantile(draws, [tail, 1.0 - tail]).tolist()
            else:
                others = otherwise_at_most(trials, miss)
                low, high = mean - others * (mean - least), mean + others * (most - mean)
            ends.append((max(least, low), min(most, high)))
        held = {"ends": ends[0], "narrow": ends[1], "method": "bootstrap", "together": together}
        found[name] = Estimate(mean, se, trials, **held)
    return found


def _means(
    samples: Float[np.ndarray, "trial quantity"], seed: int, resamples: int
) -> Float[np.ndarray, "resample quantity"]:
    random, trials = machine.stream(seed, "retrieval.bootstrap"), len(samples)
    sizes = [len(part) for part in np.array_split(np.arange(resamples), -(-resamples * trials // _AT_ONCE))]
    draws = (counted(random.integers(trials, size=(size, trials)), trials) for size in sizes)
    return np.concatenate([counts @ samples / trials for counts in draws])


# --- in words -------------------------------------------------------------------------------------------------


def in_words(
    verdict: Verdict,
    gaps: Mapping[str, Estimate],
    equivalence: float | None,
    effort: str,
    unit: str = "",
    found: Any = None,
) -> str:
    """A verdict in words; of one on one end, what is known of the other. `effort` is the number of trials."""

    def misses(least: float) -> str:
        if not unit and least > 1:
            return f"{effort} tell nothing"
        size = f"{least:.2g}{unit}" if unit else share_size(least, gaps[ENDS].n)
        return f"{effort} miss gaps under {size}"

    looks = min(2, len(gaps))
    rests_on = [gap.jointly(looks).detectable for name, gap in gaps.items() if name != ENDS or len(gaps) == 1]
    least = max(filter(math.isfinite, rests_on), default=math.nan)
    right = "nearly all" if found is None else f"{found.sum():,.0f} of {found.size:,}"
    words = VERDICTS[verdict].format(equivalence=equivalence, misses=misses(least), right=right)
    if verdict not in ("primacy", "recency"):
        return words
    place = "last" if verdict == "primacy" else "first"
    if GAPS[0] not in gaps:
        return words.replace("middle", place)
    other = gaps[f"{place} - middle"]
    of_the_other = {
        "at a disadvantage": f", the {place} worse",
        "no difference": f", the {place} not beyond {equivalence}",
        "inconclusive": f"; of the {place}, {misses(other.jointly(looks).detectable)}",
    }
    return words + of_the_other[compared(gaps, equivalence)[f"{place} - middle"]]


def gap_lines(gaps: Mapping[str, Estimate], equivalence: float | None, unit: str) -> list[str]:
    """Each difference of two places, with its interval and what it says."""
    lines = []
    for name, words in compared(gaps, equivalence).items():
        if words == "no difference":
            words += f" beyond {equivalence:g}"
        elif name == ENDS and gaps[name].sign:
            words = f"the {'first' if gaps[name].sign > 0 else 'last'} favoured"
        lines.append(f"{name}: {signed(gaps[name], unit)}: {words}")
    return lines


def share_size(least: float, answers: int | None) -> str:
    """A difference of shares up to which something holds, at least the last digit that such shares have."""
    digits = digits_of_shares(answers)
    return f"{max(least, 10.0**-digits):.{digits}f}"


def signed(one: Estimate, unit: str) -> str:
    """A difference with its interval: of nats with three digits, of shares by the number of answers."""
    digits = 3 if unit == "nats" else digits_of_shares(one.n)
    value, low, high = (f"{number:+.{digits}f}" for number in (one.value, *one.interval))
    return f"{value} in {unit} (95 % interval {low} to {high})"


def percent(one: Estimate) -> str:
    if one.bounds is None:
        return "not known" if math.isnan(one.value) else f"{one.value:.0%}"
    return f"{one.value:.0%} (95 % interval {one.interval[0]:.0%} to {one.interval[1]:.0%})"


def would(prompts: int | None, what: str) -> str:
    """In brackets, how many prompts would tell."""
    return "" if prompts is None else f" ({about(prompts)} would, were {what} as seen)"
