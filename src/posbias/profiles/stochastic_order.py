"""Distributions over positions compared by first-order stochastic dominance, and kernels that keep that order.

μ dominates ν when every prefix 0 … k holds no more of μ than of ν: μ lies towards later, more recent
positions. A kernel is stochastically monotone when later queries have dominating rows; such kernels preserve
dominance, and every finite-depth statement of Herasimchyk et al. 2026 (§4, Appendix A.1) follows from that.

Dominance is a signed margin here, the least difference of prefix masses: ≥ 0 where it holds, and how far it
is from holding where it does not. The last cutoff, the whole text, is left out: both sides hold one there.

How far a kernel is from monotone (Assumption 4.1) is counted in triples (i < i′, k) whose later row holds more of
the prefix 0 … k. In one column of prefix masses they are pairs out of order: merging sorted runs counts them in
O(n log n), a whole kernel in O(n² log n). An average over prompts breaks the order by its noise alone;
`noise_floor` is the rate to expect of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from posbias.core.errors import wrong
from posbias.core.machine import compiled

ROUNDING = 1e-12
"""Gaps of prefix mass up to this count as none: above what float64 sums of a row leave, below any effect."""
TOLERANCES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Tolerances at which violations of a measured kernel are counted."""
ROW_ERROR = 1e-6
"""How far a row sum may be from one before a matrix is refused as a kernel (float32 sums stay below)."""


@dataclass(frozen=True)
class Monotonicity:
    """How far a kernel is from stochastically monotone, over all triples (i < i′, cutoff k < tokens − 1).

    The gap of a triple is what the prefix mass of the later row i′ exceeds that of the earlier row i by;
    above `tolerance` it is a violation. Definition A.1 and Assumption 4.1 of Herasimchyk et al. 2026.
    """

    triples: int
    violations: int
    rate: float
    """Violations divided by triples; 0 where there are none."""
    mean_gap: float
    """Mean gap of the violating triples, 0 where there are none; rate·mean_gap is the expected shortfall."""
    margin: float
    """Least prefix mass of an earlier row minus that of a later one: ≥ 0 where the kernel is monotone."""

    @property
    def holds(self) -> bool:
        """Whether no triple violates the order by more than the tolerance."""
        return self.violations == 0


@dataclass(frozen=True)
class Violations:
    """Of all triples (i < i′, k < tokens − 1): the share violated, by tolerance, and by how much.

    `rate` is the share whose later row holds more of the prefix 0 … k by over the tolerance; `gap` the mean of
    that surplus E[Δ | Δ > 0], 0 where no triple is violated.
    """

    tolerances: tuple[float, ...]
    rate: Float[np.ndarray, "tolerance"]
    gap: float


def monotonicity(kernel: Float[np.ndarray, "query key"], tolerance: float = ROUNDING) -> Monotonicity:
    """How often and by how much a row-stochastic kernel violates Definition A.1; see `Monotonicity`.

    All pairs of rows count, not only neighbours. Rows are taken as they are, in float64: a sum further than
    `ROW_ERROR` from one is refused, not divided away. O(n²) for a monotone kernel, else O(n² log n).
    Raises `InvalidValueError` for a matrix that is not square, negative, not finite or not row-stochastic.
    """
    prefix = _prefixes(kernel)
    error = float(np.abs(prefix[:, -1] - 1.0).max())
    if error > ROW_ERROR:
        raise wrong("kernel", f"row sums within {ROW_ERROR:g} of one", got=f"one {error:.3g} away")
    step = _tolerances(tolerance, "tolerance")
    columns, triples = prefix[:, :-1], _triples_of(len(prefix))
    margins = np.minimum.accumulate(columns, axis=0)[:-1] - columns[1:]
    margin = float(margins.min(initial=np.inf))
    counts, surpluses = _counted(columns if margin < -step else columns[:1], step[None])
    violations, surplus = int(counts[0]), float(surpluses[0])
    rate, gap = violations / triples if triples else 0.0, surplus / violations if violations else 0.0
    return Monotonicity(triples, violations, rate, gap, margin if triples else 0.0)


def violations(
    kernel: Float[np.ndarray, "query key"], tolerances: Sequence[float] = TOLERANCES
) -> Violations:
    """Count the violated triples of one measured kernel, its rows divided by their sums in float64.

    Raises `InvalidValueError` for a kernel that is not square, negative, not finite or has an empty row, and for
    tolerances that are not finite numbers ≥ 0.
    """
    columns, steps = prefix_shares(kernel), _tolerances(tolerances, "tolerances", 1)
    counts, surplus = _counted(columns, np.append(steps, 0.0))
    triples = _triples_of(len(columns))
    rate = counts[:-1] / triples if triples else np.zeros(len(steps))
    return Violations(tuple(steps.tolist()), rate, float(surplus[-1] / counts[-1]) if counts[-1] else 0.0)


def noise_floor(
    even: Float[np.ndarray, "query key"], odd: Float[np.ndarray, "query key"], share: float = 0.5
) -> float:
    """The rate of violations at tolerance 0 that sampling noise alone is expected to make.

    `even` and `odd` are the averages over two halves of the prompts, `share` the part of the prompts that are
    in `even`. A triple that breaks the order by chance is one on which the two tend to disagree: under
    independent, symmetric noise at least every second time, for a true difference of zero exactly so. Twice the
    share of the triples that break it in the mean but not in both halves is therefore what to expect of noise,
    and for order that holds clearly up to twice that. Raises as `violations`, and `InvalidValueError` for a share
    that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise wrong("share", "a number between 0 and 1", got=f"{share}")
    first, second = prefix_shares(even), prefix_shares(odd)
    mean = share * first + (1 - share) * second
    broken_in_mean, broken_first, broken_second = (_broken(columns) for columns in (mean, first, second))
    # where the halves disagree, one is broken: the triples broken in both follow from three counts of pairs
    disagreeing = _broken(np.take_along_axis(_ranks(second), np.argsort(-_ranks(first), axis=0), axis=0))
    broken_in_both = (broken_first + broken_second - disagreeing) // 2
    triples = _triples_of(len(mean))
    return 2 * max(0, broken_in_mean - broken_in_both) / triples if triples else 0.0


def _prefixes(kernel: Float[np.ndarray, "query key"]) -> Float[np.ndarray, "query cutoff"]:
    """Prefix masses of a kernel's rows; raises unless it is square, finite and ≥ 0."""
    kernel = np.asarray(kernel)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or not kernel.size:
        raise wrong("kernel", "queries × as many keys", got=f"shape {kernel.shape}")
    if not np.isfinite(kernel).all() or (kernel < 0).any():
        raise wrong("kernel", "numbers ≥ 0", got="one that is negative or not finite")
    return np.cumsum(kernel, axis=-1, dtype=np.float64)


def prefix_shares(kernel: Float[np.ndarray, "query key"]) -> Float[np.ndarray, "query cutoff"]:
    """The share of its row's mass in keys 0 … k, for cutoffs k < tokens − 1.

    A row whose mass lies before the cutoff holds exactly one.
    """
    prefix = _prefixes(kernel)
    whole = prefix[:, -1:]
    if not (whole > 0).all():
        raise wrong("kernel", "mass in every row", got=f"none in row {int(whole.argmin())}")
    return prefix[:, :-1] / whole


def _tolerances(tolerances: float | Sequence[float], name: str, dimensions: int = 0) -> np.ndarray:
    steps = np.array(tolerances, dtype=np.float64)
    if steps.ndim != dimensions or not (np.isfinite(steps) & (steps >= 0)).all():
        needed = "finite numbers" if dimensions else "a finite number"
        raise wrong(name, f"{needed} ≥ 0", got=f"{tolerances}")
    return steps


def _triples_of(tokens: int) -> int:
    return tokens * (tokens - 1) // 2 * (tokens - 1)


def _broken(columns: Float[np.ndarray, "query cutoff"]) -> int:
    """The number of pairs in order of query, over all columns, whose later value is the larger one."""
    return int(_counted(columns, np.zeros(1))[0][0])


def _counted(
    columns: Float[np.ndarray, "query cutoff"], tolerances: Float[np.ndarray, "tolerance"]
) -> tuple[Int[np.ndarray, "tolerance"], Float[np.ndarray, "tolerance"]]:
    return _violated(np.ascontiguousarray(columns.T), tolerances)


def _ranks(masses: Float[np.ndarray, "query cutoff"]) -> Float[np.ndarray, "query cutoff"]:
    """Ranks in each column without ties: of equal masses the later query's is the lower, as it breaks nothing."""
    backwards = masses[::-1].argsort(axis=0, kind="stable")
    ranks = np.empty(masses.shape)
    np.put_along_axis(
        ranks, len(masses) - 1 - backwards, np.arange(len(masses), dtype=float)[:, None], axis=0
    )
    return ranks


@compiled()
def _violated(
    columns: Float[np.ndarray, "cutoff query"], tolerances: Float[np.ndarray, "tolerance"]
) -> tuple[Int[np.ndarray, "tolerance"], Float[np.ndarray, "tolerance"]]:
    """Violated triples for each tolerance, and the sums of their surpluses.

    Each column is sorted by merging ever longer runs; a run on the left holds earlier queries. Of two sorted
    runs, the left values that a right one exceeds by more than the tolerance are the first so many.
    """
    cutoffs, tokens = columns.shape
    counts = np.zeros(len(tolerances), dtype=np.int64)
    surplus = np.zeros(len(tolerances))
    merged = np.empty(tokens)
    for cutoff in range(cutoffs):
        values = columns[cutoff].copy()
        width = 1
        while width < tokens:
            for begin in range(0, tokens, 2 * width):
                middle, end = min(begin + width, tokens), min(begin + 2 * width, tokens)
                for step in range(len(tolerances)):
                    below, sum_below = begin, 0.0
                    for right in range(middle, end):
                        while below < middle and values[right] - values[below] > tolerances[step]:
                            sum_below += values[below]
                            below += 1
                        counts[step] += below - begin
                        surplus[step] += (below - begin) * values[right] - sum_below
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
