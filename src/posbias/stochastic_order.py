"""Distributions over positions compared by first-order stochastic dominance, and kernels that keep that order.

μ dominates ν when every prefix 0 … k holds no more of μ than of ν: μ lies towards later, more recent
positions. A kernel is stochastically monotone when later queries have dominating rows; such kernels preserve
dominance, and every finite-depth statement of Herasimchyk et al. 2026 (§4, Appendix A.1) follows from that.

Dominance is a signed margin here, the least difference of prefix masses: ≥ 0 where it holds, and how far it
is from holding where it does not. The last cutoff, the whole text, is left out: both sides hold one there.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.errors import InvalidValueError

ROUNDING = 1e-12
"""Gaps of prefix mass up to this count as none: above what float64 sums of a row leave, below any effect."""
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
    row_error: float
    """Largest difference of a row sum from one."""
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether no triple violates the order by more than the tolerance."""
        return self.violations == 0


def prefix_mass(mass: Float[np.ndarray, "*batch position"]) -> Float[np.ndarray, "*batch position"]:
    """Mass of positions 0 … k for every cutoff k, summed in float64 from the first position on."""
    return np.cumsum(np.asarray(mass, dtype=np.float64), axis=-1)


def prefix_drift(
    before: Float[np.ndarray, "*#batch position"], after: Float[np.ndarray, "*#batch position"]
) -> Float[np.ndarray, "*batch cutoff"]:
    """What every prefix 0 … k, k < tokens − 1, gained: prefix mass `after` minus `before`.

    All ≥ 0 is a primacy drift, all ≤ 0 a recency drift (Herasimchyk et al. 2026, Propositions 4.2 to 4.5).
    Raises `InvalidValueError` where the positions differ in number or an entry is not finite.
    """
    before, after = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if before.shape[-1:] != after.shape[-1:]:
        raise InvalidValueError(
            f"after: {after.shape[-1:]} positions given, {before.shape[-1:]} as in `before` needed"
        )
    for name, mass in (("before", before), ("after", after)):
        if not np.isfinite(mass).all():
            raise InvalidValueError(f"{name}: not finite somewhere, finite masses needed")
    return (prefix_mass(after) - prefix_mass(before))[..., :-1]


def dominance(
    later: Float[np.ndarray, "*#batch position"], earlier: Float[np.ndarray, "*#batch position"]
) -> Float[np.ndarray, "*batch"]:
    """The margin of `later` ⪰ `earlier`: least prefix mass of `earlier` minus `later` over cutoffs.

    ≥ 0 where `later` dominates in first order (Herasimchyk et al. 2026, Appendix A.1); 0 for one position.
    Raises `InvalidValueError` as `prefix_drift` does.
    """
    drift = prefix_drift(later, earlier)
    return np.asarray(drift.min(axis=-1)) if drift.shape[-1] else np.zeros(drift.shape[:-1])


def dominates(
    later: Float[np.ndarray, "*#batch position"],
    earlier: Float[np.ndarray, "*#batch position"],
    tolerance: float = ROUNDING,
) -> bool:
    """Whether `later` ⪰ `earlier` throughout, up to `tolerance` of prefix mass."""
    return bool((dominance(later, earlier) >= -_tolerance(tolerance)).all())


def monotonicity(
    kernel: Float[np.ndarray, "query key"], tolerance: float = ROUNDING, row_error: float = ROW_ERROR
) -> Monotonicity:
    """How often and by how much a row-stochastic kernel violates Definition A.1; see `Monotonicity`.

    All pairs of rows count, not only neighbours. Rows are taken as they are, in float64: a sum further than
    `row_error` from one is refused, not divided away. O(n²) for a monotone kernel, at most O(n³).
    Raises `InvalidValueError` for a matrix that is not square, negative, not finite or not row-stochastic.
    """
    kernel = np.ascontiguousarray(kernel, dtype=np.float64)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or not kernel.size:
        raise InvalidValueError(f"kernel: shape {kernel.shape} given, queries × as many keys needed")
    if not np.isfinite(kernel).all() or (kernel < 0).any():
        raise InvalidValueError("kernel: negative or not finite somewhere, numbers ≥ 0 needed")
    error = float(np.abs(kernel.sum(axis=1) - 1.0).max())
    if error > row_error:
        raise InvalidValueError(
            f"kernel: a row sum is {error:.3g} away from one, at most row_error = {row_error:.3g} needed"
        )
    tokens = len(kernel)
    violations, total, margin = _violations(prefix_mass(kernel), _tolerance(tolerance))
    triples = tokens * (tokens - 1) // 2 * (tokens - 1)
    return Monotonicity(
        triples=triples,
        violations=violations,
        rate=violations / triples if triples else 0.0,
        mean_gap=total / violations if violations else 0.0,
        margin=margin if triples else 0.0,
        row_error=error,
        tolerance=tolerance,
    )


def _tolerance(tolerance: float) -> float:
    if not 0 <= tolerance < np.inf:
        raise InvalidValueError(f"tolerance: {tolerance} given, a finite number ≥ 0 needed")
    return float(tolerance)


def _violations(prefix: Float[np.ndarray, "query key"], tolerance: float) -> tuple[int, float, float]:
    """Triples whose gap exceeds the tolerance, the sum of their gaps, and the least margin.

    A row can only violate against the least prefix mass above it, so other rows and cutoffs are passed over.
    """
    least = np.minimum.accumulate(prefix, axis=0)
    margins = (least[:-1] - prefix[1:])[:, :-1]
    count, total = 0, 0.0
    for above in np.flatnonzero((margins < -tolerance).any(axis=1)):
        cutoffs = np.flatnonzero(margins[above] < -tolerance)
        gaps = prefix[above + 1, cutoffs] - prefix[: above + 1, cutoffs]
        gaps = gaps[gaps > tolerance]
        count += gaps.size
        total += float(gaps.sum())
    return count, total, float(margins.min(initial=np.inf))
