"""The numbers behind the words: shares of positions with their errors, the trough, the sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from posbias.comparison.parts import USED, chain
from posbias.comparison.scores import Comparison, Difference
from posbias.core.seeds import stream
from posbias.profiles.agreement import Agreement
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile

if TYPE_CHECKING:
    import xarray as xr

RESAMPLES = 1000
LEAST_RESAMPLED = 8
"""Fewer prompts are not resampled for a range: its ends would be those of single prompts drawn again and again."""


@dataclass(frozen=True)
class Shape:
    """Where a measured profile lies: shares of all influence, and the trough as seen over the prompts.

    `first` and `last` are the shares of the first and last 5 %; `depth` how far the mean of the trough lies
    below the mean of positions in reach (`Profile.trough_depth`); `trough_range` holds the trough in 95 % of
    resamples of the prompts (None with fewer than `LEAST_RESAMPLED`).
    """

    first: Estimate
    last: Estimate
    depth: Estimate
    trough_range: tuple[int, int] | None


@dataclass(frozen=True)
class Sink:
    """Token 0: its share of attention, what even attention would give, heads it rules, its norm.

    `share` is the mean over layers and heads, `even` the mean of 1/(i + 1) over queries i ≥ 1, `ruled` the
    number of `heads` where it draws more than half; `norm_ratio` the largest over layers of its norm over the
    median of the other tokens'.
    """

    share: float
    even: float
    ruled: int
    heads: int
    norm_ratio: float


@dataclass(frozen=True)
class Judged:
    """The scores that verdicts speak of: those on prompts that the predictors did not use, where there are any.

    `ceiling` is that of these scores, a noiseless predictor's; None with fewer than four prompts.
    """

    held_out: bool
    agreements: Mapping[str, Agreement]
    baselines: Mapping[str, Agreement]
    differences: tuple[Difference, ...]
    ceiling: Agreement | None

    @classmethod
    def of(cls, comparison: Comparison) -> "Judged":
        """The held-out scores of a comparison, else those on the very prompts."""
        noise, held_out = comparison.reliability, comparison.held_out
        one = comparison if held_out is None else held_out
        ceiling = noise and (noise.noiseless if held_out is None else noise.noiseless_half)
        return cls(held_out is not None, one.agreements, one.baselines, one.differences, ceiling)

    def difference(self, more: str, less: str, field: str) -> Estimate | None:
        """A score of `more` minus that of `less`, with its paired interval; None where it was not computed."""
        for one in self.differences:
            score: Estimate = getattr(one.scores, field)
            if (one.more, one.less) == (more, less):
                return score
            if (one.more, one.less) == (less, more):
                return -score
        return None


@dataclass(frozen=True)
class Findings:
    """Everything that a report is made from; `seed` drew the resamples of the prompts."""

    measurement: "xr.Dataset"
    measured: Profile
    predictions: Mapping[str, Profile]
    comparison: Comparison
    seed: int = 0

    @property
    def model(self) -> str:
        """The name of what was measured."""
        return str(self.measurement.attrs.get("model", "the model"))

    @cached_property
    def judged(self) -> Judged:
        """The scores that verdicts speak of."""
        return Judged.of(self.comparison)

    @cached_property
    def shape(self) -> Shape:
        """Where the measured influence lies."""
        return shape(self.measured, self.seed)

    @cached_property
    def parts(self) -> Mapping[str, Profile]:
        """The measured curve by parts (`parts`); empty where a predictor of the chain was not asked."""
        return chain(self.measurement, self.predictions) if self.predictions.keys() >= USED else {}

    @cached_property
    def sink(self) -> Sink:
        """What is known of token 0 as a sink of attention."""
        return sink(self.measurement)


def shape(measured: Profile, seed: int = 0) -> Shape:
    """Shares of the ends and depth of the trough, each with its standard error over prompts."""
    s = measured.summary
    first, last = measured.share(0, s.ends), measured.share(s.tokens - s.ends, s.tokens)
    return Shape(first, last, measured.trough_depth, _trough_range(measured, seed))


def sink(measurement: "xr.Dataset") -> Sink:
    """What is known of token 0 as a sink of attention."""
    shares = measurement["sink_share"].values
    norms = measurement["residual_norm"].values
    return Sink(
        share=float(shares.mean()),
        even=float(np.mean(1.0 / np.arange(2, measurement.sizes["position"] + 1))),
        ruled=int((shares > 0.5).sum()),
        heads=int(shares.size),
        norm_ratio=float((norms[:, 0] / np.median(norms[:, 1:], axis=1)).max()),
    )


def _trough_range(profile: Profile, seed: int) -> tuple[int, int] | None:
    if profile.samples is None or len(profile.samples) < LEAST_RESAMPLED:
        return None
    samples = np.asarray(profile.samples)
    drawn = stream(seed, "report.trough").integers(len(samples), size=(RESAMPLES, len(samples)))
    troughs = [Profile.from_weights(samples[rows].sum(axis=0))._shape.trough for rows in drawn]
    low, high = np.quantile(troughs, [0.025, 0.975], method="nearest")
    return int(low), int(high)
