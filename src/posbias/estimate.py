"""A sampled number and how sure we are of it.

Every Monte Carlo or sampled figure is an `Estimate`; it prints as many digits as its error allows. Moments
are accumulated by Welford's update, never as E[x²] − E[x]², which cancels over long sums.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.errors import InvalidValueError


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error from `n` independent samples.

    `value` and `se` share a unit; `se` is NaN when n < 2. Raises `InvalidValueError` for n < 1 or se < 0.
    """

    value: float
    se: float
    n: int

    def __post_init__(self):
        if self.n < 1:
            raise InvalidValueError(f"n: {self.n} given, at least one sample needed")
        if self.se < 0:
            raise InvalidValueError(f"se: {self.se} given, a standard error is ≥ 0")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval, value ± 1.96 se."""
        return self.value - 1.96 * self.se, self.value + 1.96 * self.se

    @classmethod
    def of(cls, samples: Float[np.ndarray, "sample"]) -> "Estimate":
        """Mean and standard error of the mean of independent samples."""
        samples = np.asarray(samples, dtype=np.float64)
        if samples.size == 0:
            raise InvalidValueError("samples: none given, at least one needed")
        se = float(samples.std(ddof=1) / math.sqrt(samples.size)) if samples.size > 1 else math.nan
        return cls(float(samples.mean()), se, samples.size)

    def __str__(self) -> str:
        if not math.isfinite(self.se) or self.se == 0:
            return f"{self.value:.4g}"
        digits = max(0, 1 - math.floor(math.log10(self.se)))
        return f"{self.value:.{digits}f} ± {self.se:.{digits}f}"


class RunningMean:
    """Streaming mean of equally shaped float64 arrays (Welford's update); holds one array, not the samples."""

    def __init__(self):
        self.count = 0
        self.mean: np.ndarray | None = None

    def add(self, sample: np.ndarray) -> None:
        """Add one sample; its shape must equal that of the earlier ones."""
        self.count += 1
        if self.mean is None:
            self.mean = np.array(sample, dtype=np.float64)
        else:
            self.mean += (sample - self.mean) / self.count
