"""Looks that are fixed beforehand, and what is decided at them: every gap within a bound, or one surely above.

Questions come in equal parts, and after each the numbers are looked at. A look's level is that of `boundary`, so
that over all looks together an error is made as rarely as by one look at 5 %. Each number is a mean over questions
that must not exceed the bound: a gap, and the same gap the other way. "Within" needs all of them (an
intersection-union test, Berger 1982: no further correction), "above" one, at a level that they share (Bonferroni).
"""

import bisect
from functools import cache

import numpy as np
from jaxtyping import Float, Int

from posbias.core import machine
from posbias.profiles.estimate import EXACT, MOST_DRAWS, otherwise_at_most

ALPHA, POWER = 0.05, 0.9
"""How often the decision is wrong at most; how often the announced number of questions decides as announced."""
RUNS = 10_000
"""Simulated runs behind an announced number: ± .003 of the share `POWER`, about 1 % of the number."""
FEWEST = 5
"""Questions between two looks, at least."""
WITHIN, ABOVE, UNDECIDED = 0, 1, 4
"""What is decided, as the exit status of the command."""
Looks = Float[np.ndarray, "*run look number"]
Numbers = Float[np.ndarray, "*run number"]


@cache
def boundary(looks: int, level: float, power: float = 0.0) -> tuple[float, ...]:
    """By look, how far a standard normal statistic has to lie from 0, on either side, so that in `level` of
    experiments without an effect it does at any look.

    The bounds are C·(look/looks)^(power − ½): of O'Brien & Fleming 1979 with power 0, of Pocock 1977 with ½ (a
    family of Wang & Tsiatis 1987). The density of the sum is carried from look to look (Armitage, McPherson & Rowe
    1969), at nodes of Gauss and Legendre.
    """
    from scipy.optimize import brentq

    nodes, weights = np.polynomial.legendre.leggauss(64)
    shares = np.arange(1, looks + 1) / looks

    def stays(scale: float) -> float:
        at, held = np.zeros(1), np.ones(1)
        for end in scale * shares**power:
            steps = np.exp(-looks / 2 * (end * nodes[:, None] - at) ** 2) * (looks / (2 * np.pi)) ** 0.5
            at, held = end * nodes, end * weights * (steps @ held)
        return float(held.sum())

    scale = float(brentq(lambda scale: stays(scale) - 1 + level, 0.1, 10.0, xtol=1e-9))  # type: ignore[arg-type]
    return tuple((scale * shares ** (power - 0.5)).tolist())


def looks_at(questions: int, looks: int) -> list[int]:
    """The numbers of questions after which is looked."""
    looks = max(1, min(looks, questions // FEWEST))
    return [-(-questions * look // looks) for look in range(1, looks + 1)]


def limits(
    means: Looks, errors: Looks, freedom: Float[np.ndarray, "look #number"], most: float, looks: int
) -> tuple[Numbers, Numbers]:
    """What each mean surely is at least, and at most, by the looks so far, of `looks` that are meant to be.

    By Student's t; above no nearer than a true mean of `most` may seem (variance most − most², where few questions
    differ). A mean without spread has the limits of the number of questions alone ("rule of three"), as means lie
    between −1 and 1.
    """
    from scipy.special import ndtr, stdtrit

    below, above = (
        ndtr(-np.array(boundary(looks, 2 * level)))[: means.shape[-2], None]
        for level in (ALPHA / means.shape[-1], ALPHA)
    )
    others = [otherwise_at_most(freedom + 1, level) for level in (below, above)]
    spread = np.maximum(errors, np.sqrt(most * (1 - most) / freedom))
    low = np.where(errors > EXACT, stdtrit(freedom, below) * errors, -others[0] * (means + 1))
    high = np.where(errors > EXACT, stdtrit(freedom, 1 - above) * spread, others[1] * (1 - means))
    return (means + low).max(axis=-2), (means + high).min(axis=-2)


def decided(low: Numbers, high: Numbers, most: float) -> Int[np.ndarray, "*run"]:
    """What is decided: `ABOVE` where a number surely is, `WITHIN` where all surely are, else `UNDECIDED`."""
    within = np.where((high <= most).all(axis=-1), WITHIN, UNDECIDED)
    return np.where((low > most).any(axis=-1), ABOVE, within)


def questions_for(covariance: Float[np.ndarray, "number number"], most: float, looks: int) -> int:
    """The least number of questions that decide in 90 % of runs, at this covariance of the numbers of a question:
    `WITHIN` where no number differs from 0, `ABOVE` where the most variable one is 2·`most`, whatever the others.

    By simulation of normal sums. `MOST_DRAWS` + 1 stands for every number above `MOST_DRAWS`.
    """
    values, vectors = np.linalg.eigh(covariance)
    random = machine.stream(0, "check.needed")
    drawn, unsure = random.normal(size=(RUNS, looks, len(values))), random.normal(size=(RUNS, looks, 1))
    sums = (drawn @ (vectors * np.sqrt(np.maximum(values, 0))).T).cumsum(axis=1)
    look, error = np.arange(1.0, looks + 1), np.sqrt(covariance.diagonal())

    def decides(questions: int) -> float:
        at = (questions * look / looks)[:, None]
        means = sums * np.sqrt(questions / looks) / at
        # a standard deviation of n questions is itself known to 1/√(2(n − 1))
        errors = np.maximum(0.1, 1 + unsure / np.sqrt(2 * (at - 1))) * error / np.sqrt(at)
        low, high = limits(means, errors, at - 1, most, looks)
        passes, fails = decided(low, high, most) == WITHIN, low[:, error.argmax()] + 2 * most > most
        return float(min(passes.mean(), fails.mean()))

    counts = range(looks * FEWEST, MOST_DRAWS + 1)
    return counts.start + bisect.bisect_left(counts, POWER, key=decides)
