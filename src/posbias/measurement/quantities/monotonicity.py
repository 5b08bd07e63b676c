"""How often averaged attention breaks the order that the finite-depth theory assumes, and how often noise would.

A kernel is stochastically monotone when the mass on every prefix of keys 0 … k falls, or stays, from each query
to every later one (Assumption 4.1 of Herasimchyk et al. 2026). What is counted are triples (i < i′, k) whose
later row holds more of the prefix. In one column of prefix masses they are pairs out of order: merging sorted
runs counts them in O(n log n), a whole kernel in O(n² log n).

An average over prompts breaks the order by its noise alone. A triple that does so by chance is one on which the
averages of two halves of the prompts tend to disagree: under independent, symmetric noise at least every second
time, for a true difference of zero exactly so. Twice the share of the triples that break the order in the mean
but not in both halves is therefore what to expect of noise; only above that floor does a rate speak against
the assumption.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from posbias.compiling import compiled
from posbias.errors import InvalidValueError

TOLERANCES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Prefix masses may differ by so much before a triple counts."""


@dataclass(frozen=True)
class Violations:
    """Of all triples (i < i′, k < tokens − 1): the share violated, by tolerance, and by how much.

    `rate` is the share whose later row holds more of the prefix 0 … k by over the tolerance; `gap` the mean of
    that surplus E[Δ | Δ > 0], 0 where no triple is violated.
    """

    tolerances: tuple[float, ...]
    rate: Float[np.ndarray, "tolerance"]
    gap: float


def violations(
    kernel: Float[np.ndarray, "query key"], tolerances: Sequence[float] = TOLERANCES
) -> Violations:
    """Count the violated triples of one kernel, its rows divided by their sums in float64.

    Definition A.1 and Assumption 4.1 of Herasimchyk et al. 2026; the last cutoff, where all rows hold one, is
    left out. Raises `InvalidValueError` for a kernel that is not square, negative, not finite or has an empty
    row, and for tolerances that are not finite numbers ≥ 0.
    """
    return _counted(prefix_masses(kernel), tolerances)


def noise_floor(
    even: Float[np.ndarray, "query key"], odd: Float[np.ndarray, "query key"], share: float = 0.5
) -> float:
    """Return the rate of violations at tolerance 0 that sampling noise alone is expected to make.

    `even` and `odd` are the averages over two halves of the prompts, `share` the part of the prompts that are
    in `even`. The floor is itself an estimate, and for order that holds clearly an upper one: up to twice the
    noise's rate. Raises as `violations`, and `InvalidValueError` for a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise InvalidValueError(f"share: {share} given, a number between 0 and 1 needed")
    first, second = prefix_masses(even), prefix_masses(odd)
    mean = share * first + (1 - share) * second
    broken_in_mean, broken_first, broken_second = (_broken(masses) for masses in (mean, first, second))
    # where the halves disagree, one is broken: the triples broken in both follow from three counts of pairs
    disagreeing = _broken(np.take_along_axis(_ranks(second), np.argsort(-_ranks(first), axis=0), axis=0))
    broken_in_both = (broken_first + broken_second - disagreeing) // 2
    tokens = len(mean)
    triples = tokens * (tokens - 1) // 2 * (tokens - 1)
    return 2 * max(0, broken_in_mean - broken_in_both) / triples if triples else 0.0


def prefix_masses(kernel: Float[np.ndarray, "query key"]) -> Float[np.ndarray, "query cutoff"]:
    """Return the mass of keys 0 … k for cutoffs k < tokens − 1; each row is divided by its sum first.

    A row whose mass lies before the cutoff holds exactly one. Raises as `violations`.
    """
    kernel = np.asarray(kernel)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or not kernel.size:
        raise InvalidValueError(f"kernel: shape {kernel.shape} given, queries × as many keys needed")
    if not np.isfinite(kernel).all() or (kernel < 0).any():
        raise InvalidValueError("kernel: negative or not finite somewhere, numbers ≥ 0 needed")
    sums = kernel.cumsum(axis=1, dtype=np.float64)
    whole = sums[:, -1:]
    if not (whole > 0).all():
        raise InvalidValueError(f"kernel: row {int(whole.argmin())} is empty, mass in every row needed")
    return sums[:, :-1] / whole


def _broken(columns: Float[np.ndarray, "query cutoff"]) -> int:
    """The number of pairs in order of query, over all columns, whose later value is the larger one."""
    return int(_triples(np.ascontiguousarray(columns.T), np.empty(0))[0][-1])


def _ranks(masses: Float[np.ndarray, "query cutoff"]) -> Float[np.ndarray, "query cutoff"]:
    """Ranks in each column without ties: of equal masses the later query's is the lower, as it breaks nothing."""
    backwards = masses[::-1].argsort(axis=0, kind="stable")
    ranks = np.empty(masses.shape)
    np.put_along_axis(
        ranks, len(masses) - 1 - backwards, np.arange(len(masses), dtype=float)[:, None], axis=0
    )
    return ranks


def _counted(masses: Float[np.ndarray, "query cutoff"], tolerances: Sequence[float]) -> Violations:
    given = np.array(tolerances, dtype=np.float64)
    if given.ndim != 1 or not (np.isfinite(given) & (given >= 0)).all():
        raise InvalidValueError(f"tolerances: {tolerances} given, finite numbers ≥ 0 needed")
    tokens = len(masses)
    counts, surplus = _triples(np.ascontiguousarray(masses.T), given)
    triples = tokens * (tokens - 1) // 2 * (tokens - 1)
    rate = counts[:-1] / triples if triples else np.zeros(len(given))
    return Violations(tuple(given.tolist()), rate, float(surplus / counts[-1]) if counts[-1] else 0.0)


@compiled()
def _triples(
    columns: Float[np.ndarray, "cutoff query"], tolerances: Float[np.ndarray, "tolerance"]
) -> tuple[Int[np.ndarray, "count"], float]:
    """Violated triples for each tolerance and, last, for 0; and the sum of all surpluses.

    Each column is sorted by merging ever longer runs; a run on the left holds earlier queries. Of two sorted
    runs, the left values that a right one exceeds by more than the tolerance are the first so many.
    """
    cutoffs, tokens = columns.shape
    steps = np.append(tolerances, 0.0)
    counts = np.zeros(len(steps), dtype=np.int64)
    surplus = 0.0
    merged = np.empty(tokens)
    for cutoff in range(cutoffs):
        values = columns[cutoff].copy()
        width = 1
        while width < tokens:
            for begin in range(0, tokens, 2 * width):
                middle, end = min(begin + width, tokens), min(begin + 2 * width, tokens)
                for step in range(len(steps)):
                    below, sum_below = begin, 0.0
                    for right in range(middle, end):
                        while below < middle and values[right] - values[below] > steps[step]:
                            sum_below += values[below]
                            below += 1
                        counts[step] += below - begin
                        if step == len(steps) - 1:
                            surplus += (below - begin) * values[right] - sum_below
                left, right = begin, middle
                for place in range(begin, end):
                    if right >= end or (left < middle and values[left] <= values[right]):
                        merged[place] = values[left]
                        left += 1
                    else:
                        merged[place] = values[right]
                        right += 1
            values, merged = merged, values
            width *= 2
    return counts, surplus
