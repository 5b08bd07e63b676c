"""A sampled number and how sure we are of it.

Every Monte Carlo or sampled figure is an `Estimate`; it prints as many digits as its error allows.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from posbias.core.errors import wrong

NORMAL_95 = 1.96
"""Standard errors in half a 95 % interval where draws are counted in thousands; `t_95` with fewer."""
MOST_DRAWS = 10_000
"""More draws than this are not counted by `Estimate.draws_to_tell`."""
MANY_ANSWERS = 10_000
"""Shares of fewer answers have two digits after the point."""
LIMITS = {
    "mass": (0.0, math.inf, "finite numbers ≥ 0"),
    "rate": (0.0, 1.0, "numbers between 0 and 1"),
    "signed": (-math.inf, math.inf, "finite numbers"),
}
"""The least and the most that numbers of a kind can be, and that in words."""
EXACT = 1e-12
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


def otherwise_at_most(draws: Any, level: float = 0.05) -> Any:
    """Of all draws, the share that may be otherwise at most where so many were all alike (the "rule of three").

    With more of them so many alike would be seen in less than `level` of experiments: 1 − level^(1/draws).
    """
    return 1.0 - level ** (1.0 / draws)


Method = Literal["t", "wilson", "exact", "bootstrap", "none"]


@dataclass(frozen=True)
class Estimate:
    """A value and how sure it is: the only number with an error.

    `value` with its standard error `se` from `n` independent draws; exact, with `se` 0, where `n` is None. Both
    share a unit; a value that is not defined is NaN, and so is `se` where it is not known (n < 2). `freedom` are
    the degrees of freedom of `se`, n − 1 unless given. `method` says where its interval comes from: Student's t,
    or what was given as `ends` (95 %) and `narrow` (90 %), which may be asymmetric and stay within what the number
    can be; where `together` of them hold at once, both are wider accordingly. Raises `InvalidValueError` for n < 1
    or se < 0.
    """

    value: float
    se: float = 0.0
    n: int | None = None
    freedom: float = math.nan
    ends: tuple[float, float] | None = None
    narrow: tuple[float, float] | None = None
    method: Method = "t"
    together: int = 1

    def __post_init__(self):
        if self.n is not None and self.n < 1:
            raise wrong("n", "at least one sample", self.n)
        if self.se < 0:
            raise wrong("se", "a standard error ≥ 0", got=f"{self.se}")
        if math.isnan(self.value):
            object.__setattr__(self, "se", math.nan)
        if math.isnan(self.freedom):
            object.__setattr__(self, "freedom", math.inf if self.n is None else max(1.0, self.n - 1.0))

    @classmethod
    def of_mean(cls, samples: Float[np.ndarray, "sample"]) -> "Estimate":
        """Mean and standard error of the mean of independent samples."""
        samples = np.asarray(samples, dtype=np.float64)
        if samples.size == 0:
            raise wrong("samples", "at least one", got="none")
        se = float(samples.std(ddof=1) / math.sqrt(samples.size)) if samples.size > 1 else math.nan
        return cls(float(samples.mean()), se, samples.size)

    @classmethod
    def linearised(cls, value: float, errors: Float[np.ndarray, "sample"]) -> "Estimate":
        """A value that each sample is off from by `errors`, to first order (`ratio_of_means`)."""
        return replace(cls.of_mean(errors), value=value)

    @classmethod
    def of_counts(cls, hits: int, n: int) -> "Estimate":
        """A share of `n` trials with Wilson's interval, which stays inside 0 to 1."""
        from scipy.stats import binomtest

        low, high = binomtest(hits, n).proportion_ci(method="wilson")
        return cls(hits / n, math.nan, n, ends=(float(low), float(high)), method="wilson")

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
        """The 95 % interval: as given, else by Student's t."""
        if self.ends is not None:
            return self.ends
        half = t_95(self.freedom) * self.se if self.se else 0.0
        return self.value - half, self.value + half

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The 95 % interval; None where it is not known, or the value is not defined."""
        ends = self.interval
        return ends if all(map(math.isfinite, (self.value, *ends))) else None

    @property
    def half_width(self) -> float:
        """Half the 95 % interval."""
        return (self.interval[1] - self.interval[0]) / 2

    def clipped(self, least: float, most: float) -> "Estimate":
        """The same with the part of its interval from `least` to `most`."""
        low, high = self.interval
        return replace(self, ends=(max(least, low), min(most, high)))

    def as_share(self) -> "Estimate":
        """A mean share with the part of its interval within 0 to 1.

        Of a share that all draws had the spread is 0 and says nothing, their number does: others may be of other
        shares, but make up at most 1 − .05^(1/n) of all ("rule of three").
        """
        if not self.se <= EXACT:
            return self if math.isnan(self.se) else self.clipped(0.0, 1.0)
        others = otherwise_at_most(self.n or 1)
        ends = self.value * (1.0 - others), self.value * (1.0 - others) + others
        return Estimate(self.value, math.nan, self.n or 1, ends=ends, method="wilson")

    def jointly(self, count: int) -> "Estimate":
        """The same with the interval that it has where `count` of them hold together in 95 % (Bonferroni)."""
        half = quantile_of_t(self.freedom, 1 - 0.025 / count) * self.se if self.se else 0.0
        return replace(self, ends=(self.value - half, self.value + half), together=count)

    @property
    def sign(self) -> int:
        """1 or −1 where the 95 % interval lies on one side of 0, else 0."""
        low, high = self.interval
        return int(low > 0) - int(high < 0)

    @property
    def at_most(self) -> float:
        """The least bound that the 90 % interval lies within ±; NaN where value or error is not known."""
        if self.narrow is not None:
            return max(-self.narrow[0], self.narrow[1])
        return abs(self.value) + quantile_of_t(self.freedom, 1 - 0.05 / self.together) * self.se

    def within(self, bound: float) -> bool:
        """Whether the 90 % interval lies within ± `bound`: equivalence, by two one-sided tests at 5 %.

        Of shares whose intervals were given, also no nearer to the bound than a true difference of that size may
        seem (variance δ − δ²): where few trials differ, resamples alone would promise too much.
        """
        if self.narrow is None:
            return self.known and self.at_most <= bound
        reach = quantile_of_t(self.freedom, 1 - 0.05 / self.together)
        reach *= math.sqrt(bound * (1 - bound) / self.freedom)
        return max(self.at_most, abs(self.value) + reach) <= bound

    @property
    def detectable(self) -> float:
        """The least true value whose interval leaves out 0 in 80 % of experiments, were the spread as seen.

        k·se with k = t(.975) + t(.8). Of a bootstrap of shares at least k²/(n − 1 + k²), where a difference of so
        many trials, each right at one place and wrong at the other, would lie (variance δ − δ²).
        """
        k = quantile_of_t(self.freedom, 1 - 0.025 / self.together) + quantile_of_t(self.freedom, 0.8)
        if self.method != "bootstrap":
            return k * self.se
        return max(0.0 if math.isnan(self.se) else k * self.se, k**2 / (self.freedom + k**2))

    def tells(self, bound: float = 0.0) -> bool:
        """Whether the 95 % interval is known and leaves out `bound`."""
        low, high = self.interval
        return low > bound or high < bound

    def draws_for(self, half_width: float) -> int:
        """About how many draws an interval of ± `half_width` needs, were the spread as seen.

        The least n with t(n − 1)·σ/√n ≤ half_width; without spread, with 1 − .05^(1/n) ≤ half_width.
        `MOST_DRAWS` + 1 stands for every number above `MOST_DRAWS`.
        """
        from scipy.special import stdtrit

        draws = np.arange(2, MOST_DRAWS + 1)
        if self.se > 0:
            reach = stdtrit(draws - 1, 0.975) * self.se * np.sqrt((self.n or 1) / draws)
        else:
            reach = otherwise_at_most(draws)
        return _fewest(reach <= half_width)

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
        return _fewest(reach < abs(self.value - bound))

    def p_above(self, bound: float = 0.0) -> float:
        """One-sided p-value against "the true value is at most `bound`", by Student's t."""
        if self.se <= EXACT:
            return 0.0 if self.value > bound else 1.0
        from scipy.special import stdtr

        return float(stdtr(self.freedom, (bound - self.value) / self.se))

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit."""

        def scale(ends: tuple[float, float] | None) -> tuple[float, float] | None:
            return None if ends is None else tuple(sorted(end * factor for end in ends))  # type: ignore[return-value]

        value, se = self.value * factor, self.se * abs(factor)
        return replace(self, value=value, se=se, ends=scale(self.ends), narrow=scale(self.narrow))

    def __neg__(self) -> "Estimate":
        return self.scaled(-1.0)

    def __add__(self, other: "Estimate") -> "Estimate":
        """The sum of two independent estimates, with the degrees of freedom of Welch and Satterthwaite.

        Where intervals were given, that of the sum is made of them: each end lies as far off as the root of the
        sum of squares of how far the two may be off that way ("MOVER": Zou & Donner 2008, Statistics in Medicine
        27; Newcombe 1998 for shares). It has the level of theirs.
        """
        drawn = [one.n for one in (self, other) if one.n is not None]
        value, n = self.value + other.value, min(drawn) if drawn else None
        if self.ends is not None and other.ends is not None:
            ends = [
                None if mine is None or theirs is None else _mover(self.value, mine, other.value, theirs)
                for mine, theirs in ((self.ends, other.ends), (self.narrow, other.narrow))
            ]
            se, how = math.hypot(self.se, other.se), {"method": self.method, "together": self.together}
            return Estimate(value, se, n, ends=ends[0], narrow=ends[1], **how)  # type: ignore[arg-type]
        parts = [(one.se**2, one.freedom) for one in (self, other)]
        total = sum(variance for variance, _ in parts)
        spread = sum(variance**2 / freedom for variance, freedom in parts)
        freedom = total**2 / spread if spread > 0 else math.inf
        return Estimate(value, math.sqrt(total), n, max(1.0, freedom))

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


def ratio_of_means(
    part: Float[np.ndarray, "sample"], whole: Float[np.ndarray, "sample"]
) -> tuple[float, Float[np.ndarray, "sample"]]:
    """A ratio of two means, and how far each sample is off from it, to first order: their mean has its error."""
    value = float(part.mean() / whole.mean())
    return value, (part - value * whole) / whole.mean()


def _fewest(enough: Bool[np.ndarray, "draw"]) -> int:
    """The least number of draws, from 2 on, that is enough; `MOST_DRAWS` + 1 where none is."""
    return 2 + int(enough.argmax()) if enough.any() else MOST_DRAWS + 1


def _mover(
    value: float, ends: tuple[float, float], other: float, other_ends: tuple[float, float]
) -> tuple[float, float]:
    """The interval of a sum from those of its parts."""
    down = math.hypot(value - ends[0], other - other_ends[0])
    up = math.hypot(ends[1] - value, other_ends[1] - other)
    return value + other - down, value + other + up


def about(draws: int) -> str:
    """A number from `Estimate.draws_to_tell` in words, with two digits: 'about 140', 'more than 10,000'."""
    if draws > MOST_DRAWS:
        return f"more than {MOST_DRAWS:,}"
    return f"about {round(draws, min(0, 2 - len(str(draws)))):,}"


def digits_of_shares(answers: int | None) -> int:
    """Digits after the point of a share of this many answers, and of a difference of two such.

    The standard error of a share is at most .5/√answers: .065 of 60, .005 of 10,000, which have three.
    """
    return 2 if answers is None or answers < MANY_ANSWERS else 3


def share_text(one: Estimate) -> str:
    """A share with its interval: '0.50 [0.31, 0.69]'."""
    value, low, high = (f"{number:.{digits_of_shares(one.n)}f}" for number in (one.value, *one.interval))
    return f"{value} [{low}, {high}]"


def intervals(
    values: Float[np.ndarray, "position"], se: Float[np.ndarray, "position"], draws: int | None, kind: str
) -> tuple[Float[np.ndarray, "position"], Float[np.ndarray, "position"]]:
    """The 95 % interval of each number of a profile, as far as numbers of its kind go: low ends, high ends.

    Student's t over so many samples (None: the normal's). A rate that is the same in all of them (`se` 0) has no
    spread to go by, and the interval of their number alone (`otherwise_at_most`).
    """
    least, most, _ = LIMITS[kind]
    reach = t_95(math.inf if draws is None else draws - 1.0) * se
    if kind == "rate" and draws is not None:
        others, alike = otherwise_at_most(draws), se < EXACT
        down, up = (np.where(alike, others * abs(values - end), reach) for end in (least, most))
        return np.maximum(least, values - down), np.minimum(most, values + up)
    return np.maximum(least, values - reach), np.minimum(most, values + reach)


def counted(drawn: Int[np.ndarray, "resample draw"], of: int) -> Float[np.ndarray, "resample sample"]:
    """How often each of the samples 0 … `of` − 1 was drawn in each resample."""
    places = np.arange(len(drawn))[:, None] * of + drawn
    return np.bincount(places.ravel(), minlength=len(drawn) * of).reshape(-1, of).astype(np.float64)
