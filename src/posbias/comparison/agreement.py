"""What two profiles agree in: four scores, each with an interval; and what the noise of prompts allows of them.

Spearman's rank correlation (is the order of positions right?) and the 1-Wasserstein distance on positions
divided by n − 1 (how far would mass have to move?), with and without the first token, which alone can decide
either.

A mean over prompts is noisy, so that even the truth does not score Spearman 1 and Wasserstein 0 against it. Three
numbers say how noisy, from least to most assumed:

- **split-half agreement**: one random half of the prompts against the other;
- **a second measurement**: these prompts against as many others. Halves have half the prompts, so the agreement of
  random groups of n/8, n/4 and n/2 prompts is continued to n: the odds r/(1 − r) of Spearman's r and the
  Wasserstein distance as powers of the number of prompts. Spearman–Brown, 2r/(1 + r), is the power 1, and 1/√2 of
  the distance the power −1/2: what many equal prompts give. A few prompts that outweigh the others give less
  (SmolLM2: .69 for .73), and powers are not let beyond these two;
- **a noiseless predictor**, the noise ceiling: √r of the second measurement's r and 1/√2 of its distance, since a
  second measurement is as noisy as the first and a noiseless predictor is not. No fixed order of the positions is
  expected to correlate better than √r (Cauchy–Schwarz, with the mean rank of each position). The true mean
  correlates less where prompts are heavy-tailed: by .01 to .06 in synthetic cases (with half the prompts, .09).

Of two measurements of the same prompts the noise that they share drops out: `paired_ceiling`.

An interval is where 95 % of such scores lie: r as tanh(z), the distance as exp(z), z normal around the estimate.
Its variance is the sum of two: the estimate's own (a jackknife over groups of prompts) and that of single scores
(over the splits in halves). On synthetic prompts with a known truth they hold 85 to 100 % of such scores.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.machine import stream
from posbias.profiles.curves import spearman, wasserstein
from posbias.profiles.estimate import Estimate, counted, t_95
from posbias.profiles.profile import Profile
from posbias.profiles.summary import LEAST_PROMPTS

SCORES = ("spearman", "wasserstein", "spearman_without_first", "wasserstein_without_first")
"""The fields of `Agreement`, in the order of every axis called score."""

Scores = Float[np.ndarray, "score"]


@dataclass(frozen=True)
class Agreement:
    """Spearman and 1-Wasserstein of two profiles, with and without the first token.

    Each is NaN where it is undefined, and has no interval with fewer than `LEAST_PROMPTS` prompts. Of a
    prediction: by Student's t from the bootstrap's standard error over prompts (√(n/(n − 1)) times that of the
    resamples), within what the score can be. It is about the score against a mean of **as many** prompts. Noise in
    that mean lowers Spearman and raises Wasserstein for every prediction alike; the interval does not reach for
    the score without noise. Of a row of `Reliability`: where 95 % of such scores lie, with no standard error.
    """

    spearman: Estimate
    wasserstein: Estimate
    spearman_without_first: Estimate
    wasserstein_without_first: Estimate

    @classmethod
    def of(cls, values: Scores, low: Scores, high: Scores) -> "Agreement":
        """The four scores in the order of `SCORES`; one that is NaN, or an end of it, has no `bounds`."""
        ends = zip(low.tolist(), high.tolist(), strict=True)
        scores = zip(values.tolist(), ends, strict=True)
        return cls(*(Estimate(value, math.nan, ends=pair) for value, pair in scores))

    @classmethod
    def estimated(cls, estimates: Sequence[Estimate]) -> "Agreement":
        """The four scores in the order of `SCORES`; one whose error is not known has no interval."""
        return cls(*(one if one.known else replace(one, se=math.nan, ends=None) for one in estimates))


def scores(
    p: Float[np.ndarray, "*#batch position"], q: Float[np.ndarray, "*#batch position"], masses: bool
) -> Float[np.ndarray, "score *batch"]:
    """The four scores; Wasserstein is NaN unless both are `masses`.

    Without the first token what is left of a mass is divided by its sum (NaN where nothing is).
    """
    found = []
    for first in (0, 1):
        a, b = p[..., first:], q[..., first:]
        found.append(spearman(a, b))
        if first and masses:
            with np.errstate(invalid="ignore"):
                a, b = (one / one.sum(axis=-1, keepdims=True) for one in (a, b))
        found.append(wasserstein(a, b) if masses else np.full(found[-1].shape, math.nan))
    return np.array(found)


def means(
    profile: Profile, counts: Float[np.ndarray, "resample prompt"]
) -> Float[np.ndarray, "resample position"]:
    """Influence over prompts that count so often: their mean, of a mass divided by its sum (Eq. 6)."""
    sums = counts @ np.asarray(profile.samples)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / (sums if profile.kind == "mass" else counts).sum(axis=1, keepdims=True)


def same_prompts(p: Profile, q: Profile) -> bool:
    """Whether two profiles are measurements of the same prompts, by what names these (`Profile.prompts`)."""
    if p.samples is None or q.samples is None or not p.prompts:
        return False
    return p.prompts == q.prompts and len(p.samples) == len(q.samples)


# --- what noise allows -----------------------------------------------------------------------------------------

ROWS = {
    "split_half": "split-half agreement: half the prompts against the other half",
    "second_measurement": "second measurement of as many prompts (estimated)",
    "noiseless": "noise ceiling: a noiseless predictor (estimated)",
}
"""What the fields of `Reliability` for the whole reference are called."""
PAIRED = "noise ceiling on the same prompts: the noise of their differences alone"
RESAMPLES = 1000
"""Resamples of differences between two measurements of the same prompts."""
SPLITS = 200
"""Random pairs of groups, of each size."""
_SIZES = (8, 4, 2)
"""Groups have these parts of the prompts."""
_LEFT_OUT = 16
"""Parts of the prompts of which the jackknife leaves out one at a time."""
_JACKKNIFED = 50
"""The pairs of groups that the jackknife uses: each is compared with itself, so that few are enough."""
_LEAST = 1e-3
"""The least agreement of small groups that a power is fitted to."""
_RANKS: Bool[np.ndarray, "score"] = np.array([name.startswith("spearman") for name in SCORES])


@dataclass(frozen=True)
class Reliability:
    """What noise in a reference of n prompts allows, as agreements; intervals hold 95 % of such scores.

    `split_half`: n/2 prompts against n/2 others. `second_measurement`: n against n others. `noiseless`: a
    noiseless predictor against the n (the noise ceiling), `noiseless_half` against n/2. What is inferred of
    Spearman is NaN where halves do not agree (r ≤ 0).
    """

    split_half: Agreement
    second_measurement: Agreement
    noiseless: Agreement
    noiseless_half: Agreement


def reliability(measured: Profile, seed: int = 0) -> Reliability | None:
    """What the noise of a profile's prompts allows; None with fewer than four prompts.

    Groups of prompts are drawn from `seed`.
    """
    if measured.samples is None or len(measured.samples) < LEAST_PROMPTS:
        return None
    prompts = len(measured.samples)
    random = stream(seed, "compare.halves")
    order = random.permuted(np.tile(np.arange(prompts), (SPLITS, 1)), axis=1)
    sizes = sorted({prompts // part for part in _SIZES} - {0})
    pairs = {size: [counted(order[:, k * size :][:, :size], prompts) for k in (0, 1)] for size in sizes}
    halves = _scaled(_pair_scores(measured, pairs[prompts // 2], np.ones(prompts)))
    value = _extrapolated(measured, pairs, np.ones(prompts))
    few = {size: [members[:_JACKKNIFED] for members in pair] for size, pair in pairs.items()}
    parts = np.array_split(random.permutation(prompts), min(prompts, _LEFT_OUT))
    without = np.array([_extrapolated(measured, few, 1.0 - np.isin(range(prompts), part)) for part in parts])
    own = (len(parts) - 1) * without.var(axis=0)
    reach = t_95(prompts - 1.0) * np.sqrt(own + halves.var(axis=1, ddof=1))
    ends = [_unscaled(value - reach), _unscaled(value + reach)]
    return Reliability(*(Agreement.of(*row) for row in zip(_unscaled(value), *ends, strict=True)))


def paired_ceiling(p: Profile, q: Profile, seed: int = 0) -> Agreement:
    """How well two measurements of the same prompts agree that differ by the noise of their difference alone.

    The reference q against itself plus the mean of resampled differences of prompts, less their mean; the interval
    holds 95 % of such scores. A score below it (Wasserstein: above) is more than noise.
    """
    masses = p.kind == q.kind == "mass"
    rows = [np.asarray(one.samples, dtype=np.float64) for one in (p, q)]
    ours, theirs = (one / one.sum(axis=1).mean() for one in rows) if masses else rows
    prompts = len(ours)
    apart = ours - theirs - (ours - theirs).mean(axis=0)
    drawn = stream(seed, "compare.pairs").integers(prompts, size=(RESAMPLES, prompts))
    # resamples of n vary as (n − 1)/n of the prompts' variance does
    noise = counted(drawn, prompts) @ apart / np.sqrt(prompts * (prompts - 1))
    found = scores(q.mass + noise, q.mass, masses)
    return Agreement.of(found.mean(axis=1), *np.quantile(found, [0.025, 0.975], axis=1))


def _pair_scores(
    measured: Profile, pair: list[Float[np.ndarray, "split prompt"]], kept: Float[np.ndarray, "prompt"]
) -> Float[np.ndarray, "score kept_split"]:
    """Scores of two groups in each split, of the prompts that are kept; splits that lose a group are left out."""
    one, other = (members * kept for members in pair)
    whole = (one.sum(axis=1) > 0) & (other.sum(axis=1) > 0)
    return scores(means(measured, one[whole]), means(measured, other[whole]), measured.kind == "mass")


def _extrapolated(
    measured: Profile,
    pairs: Mapping[int, list[Float[np.ndarray, "split prompt"]]],
    kept: Float[np.ndarray, "prompt"],
) -> Float[np.ndarray, "row score"]:
    """The rows of `Reliability`, scaled, from the mean agreement of groups of each size."""
    mean = np.array([_pair_scores(measured, pair, kept).mean(axis=1) for pair in pairs.values()])
    odds = np.maximum(mean, _LEAST) / np.maximum(1 - mean, _TINY)
    grown = np.where(_RANKS, odds, np.maximum(mean, _TINY))
    power = _slope(np.log(list(pairs)), np.log(grown))
    power = np.where(_RANKS, np.clip(power, 0.0, 1.0), np.clip(power, -0.5, 0.0))
    # what does not agree at all has no odds to continue
    grown[-1][_RANKS & (mean[-1] <= 0)] = np.nan
    half, whole = grown[-1], grown[-1] * 2.0**power
    rows = [
        mean[-1],
        np.where(_RANKS, whole / (1 + whole), whole),
        np.where(_RANKS, np.sqrt(whole / (1 + whole)), whole / np.sqrt(2)),
        np.where(_RANKS, np.sqrt(half / (1 + half)), half / np.sqrt(2)),
    ]
    return np.array([_scaled(row) for row in rows])


_TINY = 1e-12
"""Stands for zero where a logarithm is taken: prompts that are all equal."""


def _slope(x: Float[np.ndarray, "size"], y: Float[np.ndarray, "size score"]) -> Float[np.ndarray, "score"]:
    """The least-squares slope of each column; zero from a single size."""
    centred = x - x.mean()
    return (centred[:, None] * y).sum(axis=0) / max((centred**2).sum(), _TINY)


def _scaled(values: Float[np.ndarray, "score *split"]) -> Float[np.ndarray, "score *split"]:
    """z: artanh of Spearman, logarithm of Wasserstein."""
    ranks = _RANKS.reshape(-1, *[1] * (values.ndim - 1))
    inner = np.clip(values, -1 + _TINY, 1 - _TINY)
    return np.where(ranks, np.arctanh(inner), np.log(np.maximum(values, _TINY)))


def _unscaled(z: Float[np.ndarray, "row score"]) -> Float[np.ndarray, "row score"]:
    return np.where(_RANKS, np.tanh(z), np.exp(z))
