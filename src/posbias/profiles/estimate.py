"""A sampled number and how sure we are of it.

Every Monte Carlo or sampled figure is an `Estimate`; it prints as many digits as its error allows. Moments
are accumulated by Welford's update, never as E[x²] − E[x]², which cancels over long sums.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError

NORMAL_95 = 1.96
"""Standard errors in half a 95 % interval where draws are counted in thousands; `t_95` with fewer."""
MOST_DRAWS = 10_000
"""More draws than this are not counted by `Estimate.draws_to_tell`."""
_EXACT = 1e-12
"""A standard error below this is rounding."""
_FINE = 1e-9
"""Standard errors below this are not written out."""


def t_95(freedom: float) -> float:
    """Standard errors in half a 95 % interval by Student's t: 12.7 for one degree of freedom, 1.96 for ∞."""
    return quantile_of_t(freedom, 0.975)


def quantile_of_t(freedom: float, share: float) -> float:
    """The quantile of Student's t, of the normal's for infinite degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def otherwise_at_most(draws: int, level: float = 0.05) -> float:
    """Of all draws, the share that may be otherwise at most where so many were all alike (the "rule of three").

    With more of them so many alike would be seen in less than `level` of experiments: 1 − level^(1/draws).
    """
    return 1.0 - level ** (1.0 / draws)


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error from `n` independent draws; exact, with `se` 0, where `n` is None.

    `value` and `se` share a unit; a value that is not defined is NaN, and so is `se` where it is not known
    (n < 2). `freedom` are the degrees of freedom of `se`, n − 1 unless given. Raises `InvalidValueError` for n < 1
    or se < 0.
    """

    value: float
    se: float = 0.0
    n: int | None = None
    freedom: float = math.nan

    def __post_init__(self):
        if self.n is not None and self.n < 1:
            raise InvalidValueError(f"n: {self.n} given, at least one sample needed")
        if self.se < 0:
            raise InvalidValueError(f"se: {self.se} given, a standard error is ≥ 0")
        if math.isnan(self.value):
            object.__setattr__(self, "se", math.nan)
        if math.isnan(self.freedom):
            object.__setattr__(self, "freedom", math.inf if self.n is None else max(1.0, self.n - 1.0))

    @property
    def exact(self) -> bool:
        """Whether nothing was drawn for it."""
        return self.n is None

    @property
    def known(self) -> bool:
        """Whether value and error are finite, so that something can be said of the true value."""
        return math.isfinite(self.value) and math.isfinite(self.se)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval by Student's t."""
        half = t_95(self.freedom) * self.se if self.se else 0.0
        return self.value - half, self.value + half

    def within(self, bound: float) -> bool:
        """Whether the 90 % interval lies within ± `bound`: equivalence, by two one-sided tests at 5 %."""
        return self.known and abs(self.value) + quantile_of_t(self.freedom, 0.95) * self.se <= bound

    @property
    def detectable(self) -> float:
        """The least true value whose interval leaves out 0 in 80 % of experiments, were the spread as seen."""
        return (t_95(self.freedom) + quantile_of_t(self.freedom, 0.8)) * self.se

    def tells(self, bound: float = 0.0) -> bool:
        """Whether the 95 % interval is known and leaves out `bound`."""
        low, high = self.interval
        return low > bound or high < bound

    def draws_to_tell(self, bound: float = 0.0) -> int | None:
        """About how many draws the interval needs to leave out `bound`, were the value as seen.

        The least n with t(n − 1)·σ/√n < |value − bound|, σ = se·√(draws behind se). It is an estimate from an
        estimate: with so many draws, even odds. None where `tells` is true already or the error is not known;
        `MOST_DRAWS` + 1 stands for every number above `MOST_DRAWS`.
        """
        if self.n is None or not self.known or self.tells(bound):
            return None
        from scipy.special import stdtrit

        draws = np.arange(2, MOST_DRAWS + 1)
        freedom = np.maximum(1.0, (draws - 1) * self.freedom / max(1, self.n - 1))
        reach = stdtrit(freedom, 0.975) * self.se * np.sqrt(self.n / draws)
        enough = np.flatnonzero(reach < abs(self.value - bound))
        return int(draws[enough[0]]) if enough.size else MOST_DRAWS + 1

    def p_above(self, bound: float = 0.0) -> float:
        """One-sided p-value against "the true value is at most `bound`", by Student's t."""
        if self.se <= _EXACT:
            return 0.0 if self.value > bound else 1.0
        from scipy.special import stdtr

        return float(stdtr(self.freedom, (bound - self.value) / self.se))

    @classmethod
    def of(cls, samples: Float[np.ndarray, "sample"]) -> "Estimate":
        """Mean and standard error of the mean of independent samples."""
        samples = np.asarray(samples, dtype=np.float64)
        if samples.size == 0:
            raise InvalidValueError("samples: none given, at least one needed")
        se = float(samples.std(ddof=1) / math.sqrt(samples.size)) if samples.size > 1 else math.nan
        return cls(float(samples.mean()), se, samples.size)

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit."""
        return Estimate(self.value * factor, self.se * abs(factor), self.n, self.freedom)

    def __neg__(self) -> "Estimate":
        return self.scaled(-1.0)

    def __add__(self, other: "Estimate") -> "Estimate":
        """The sum of two independent estimates, with the degrees of freedom of Welch and Satterthwaite."""
        parts = [(one.se**2, one.freedom) for one in (self, other)]
        total = sum(variance for variance, _ in parts)
        spread = sum(variance**2 / freedom for variance, freedom in parts)
        drawn = [one.n for one in (self, other) if one.n is not None]
        freedom = total**2 / spread if spread > 0 else math.inf
        return Estimate(
            self.value + other.value, math.sqrt(total), min(drawn) if drawn else None, max(1.0, freedom)
        )

    def __sub__(self, other: "Estimate") -> "Estimate":
        return self + -other

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "–"
        if not math.isfinite(self.se) or self.se == 0:
            return f"{self.value:.4g}"
        if self.se < _FINE:
            return f"{self.value:.3g} ± {self.se:.1g}" if abs(self.value) < _FINE else f"{self.value:.8g}"
        digits = max(0, 1 - math.floor(math.log10(self.se)))
        return f"{self.value:.{digits}f} ± {self.se:.{digits}f}"


def about(draws: int) -> str:
    """A number from `Estimate.draws_to_tell` in words, with two digits: 'about 140', 'more than 10,000'."""
    if draws > MOST_DRAWS:
        return f"more than {MOST_DRAWS:,}"
    return f"about {round(draws, min(0, 2 - len(str(draws)))):,}"


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
