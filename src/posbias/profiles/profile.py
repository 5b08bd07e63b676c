"""A profile: how much every position influences one token, and what can be said about its shape.

Predictions and measurements both end here, so that everything after (comparing, plotting, reporting) knows
only profiles. A profile's mass is a probability distribution over positions; that is checked, never made so.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float

from posbias.core import machine
from posbias.core.arrays import numbers
from posbias.core.errors import wrong
from posbias.core.plotting import Plottable
from posbias.profiles.calibration import Calibration
from posbias.profiles.curves import at_shares, blocks, least_stretch
from posbias.profiles.estimate import LIMITS, Estimate, intervals, ratio_of_means
from posbias.profiles.summary import (
    LEAST_PROMPTS,
    MixingBand,
    Summary,
    at_ends,
    doubts,
    summarise,
    verdict_of,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from posbias.profiles.places import Places

Kind = Literal["mass", "rate", "signed"]
"""What the numbers of a profile are: shares of one whole, shares of each position's own, or of either sign."""


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Plottable):
    """Influence of every position on one token, or what else a position has.

    `kind` says what `mass` holds, in float64 and finite. A "mass" is ≥ 0 and sums to 1 − `missing_mass` (to
    1e-9), which is what learned sinks took (statistics are shares of what the positions hold). A "rate" (an
    accuracy) lies in [0, 1] at each position, "signed" numbers are any: these two have no statistics of shape,
    and are compared by rank alone. `query` is the 0-based position influenced; `measures` what the numbers are
    ("rollout", "gradient", …); `samples` the unnormalised influences of the single prompts behind a measured
    mean, if any; `se` the standard error of `mass`; `attrs` what a user puts there, and of a file made elsewhere
    what it was taken for; `left_out` the parts of an architecture that a prediction does not cover, so that it has
    no verdict. Raises `InvalidValueError` where any of that does not hold; `Profile.from_weights` normalises.
    """

    _drawn_by: ClassVar[str] = "draw_profile"

    mass: Float[np.ndarray, "position"]
    query: int = -1
    measures: str = "rollout"
    samples: Float[np.ndarray, "prompt position"] | None = None
    se: Float[np.ndarray, "position"] | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    missing_mass: float = 0.0
    left_out: tuple[str, ...] = ()
    kind: Kind = "mass"
    _: KW_ONLY
    model: str = ""
    """The architecture or model that it is of, by name."""
    text: str = ""
    """The text that a model was measured on, by name."""
    prompts: str = ""
    """What names the prompts: equal for measurements of the same prompts, empty where that is not known."""
    counts: Sequence[Sequence[int]] | None = None
    """Right answers and all, by place, of rates whose samples are groups of single answers."""
    positions: int | None = None
    """Of a profile by share of the context, the number of positions before."""
    predictor: str = ""
    """What predicted it, in words, where something other than an architecture did."""
    assumptions: tuple[str, ...] = ()
    """What a prediction takes for granted, in words."""
    exact: bool | None = None
    """Of a prediction, whether no layer was approximated."""
    method: Mapping[str, int] = field(default_factory=dict)
    """Of a prediction, the number of layers by the engine that computed them."""
    places: "Places | None" = None
    """The results by place that it was made from."""
    band: MixingBand | None = None
    """Of a prediction from an architecture without λ, what it is under every known λ."""
    calibration: Calibration | None = None
    """Of a prediction from a measurement of fewer tokens, what it rests on."""

    def __post_init__(self):
        mass = numbers("mass", self.mass).astype(np.float64)
        if mass.ndim != 1 or not mass.size:
            raise wrong("mass", "one number per position", got=f"shape {mass.shape}")
        if self.kind not in LIMITS:
            raise wrong("kind", f"one of {', '.join(LIMITS)}", self.kind)
        low, high, needed = LIMITS[self.kind]
        if not np.isfinite(mass).all() or (mass < low).any() or (mass > high).any():
            raise wrong("mass", needed, got="others")
        missing = self.missing_mass
        if not 0 <= missing <= 1 + 1e-9:
            raise wrong("missing_mass", "a number between 0 and 1", got=f"{missing}")
        if self.kind == "mass" and abs(mass.sum() + missing - 1.0) > 1e-9:
            besides = f" with {missing:.9g} missing" if missing else ""
            got = f"{mass.sum():.9g}{besides} (Profile.from_weights normalises)"
            raise wrong("mass", "a sum of 1", got=got)
        whole = isinstance(self.query, int | np.integer) and not isinstance(self.query, bool)
        if not whole or not -mass.size <= self.query < mass.size:
            raise wrong("query", f"a position of the {mass.size}", self.query)
        for name in ("samples", "se"):
            given = getattr(self, name)
            if given is not None and (
                np.shape(given)[-1:] != mass.shape or np.ndim(given) != 1 + (name == "samples")
            ):
                raise wrong(name, f"{mass.size} positions", got=f"shape {np.shape(given)}")
        mass.flags.writeable = False
        object.__setattr__(self, "mass", mass)
        object.__setattr__(self, "query", int(self.query) % mass.size)

    def _need_mass(self, what: str) -> None:
        if self.kind != "mass":
            raise wrong("kind", f"a profile of mass for {what}", self.kind)

    @classmethod
    def from_weights(cls, weights: Any, *, measures: str = "weights", **fields: Any) -> "Profile":
        """A profile from weights ≥ 0 [position] that are divided by their sum; `fields` as in `Profile`.

        Weights are an array, a tensor of torch of any float type, or a list. Raises `InvalidValueError`.
        """
        weights = numbers("weights", weights).astype(np.float64)
        with np.errstate(over="ignore"):
            total = weights.sum()
        if not (np.isfinite(total) and total > 0):
            raise wrong("weights", "a finite sum above zero", got=f"{total}")
        return cls(weights / total, measures=measures, **fields)

    @classmethod
    def from_samples(cls, samples: Any, **fields: Any) -> "Profile":
        """The normalised mean of influences [prompt, position], with a standard error for each position.

        Influences are averaged over prompts and then divided by their sum (Herasimchyk et al. 2026, Eq. 6);
        the error of that ratio is taken to first order. Raises `InvalidValueError` unless prompt × position.
        """
        samples = numbers("samples", samples).astype(np.float64)
        if samples.ndim != 2 or not len(samples):
            raise wrong("samples", "prompts × positions", got=f"shape {samples.shape}")
        with np.errstate(over="ignore"):
            mean = samples.mean(axis=0)
            total = mean.sum()
        se = None
        if len(samples) > 1 and 0 < total < math.inf:
            mass = mean / total
            residual = (samples - mass * samples.sum(axis=1, keepdims=True)) / total
            se = residual.std(axis=0, ddof=1) / math.sqrt(len(samples))
        return cls.from_weights(mean, samples=samples, se=se, **fields)

    @classmethod
    def from_rows(cls, samples: Float[np.ndarray, "sample position"], **fields: Any) -> "Profile":
        """The mean of samples as they are, of rates for instance, with its standard error where there are two."""
        count = len(samples)
        se = samples.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else None
        return cls(samples.mean(axis=0), samples=samples, se=se, **fields)

    @property
    def remainder(self) -> str:
        """What the profile is where a prediction leaves out what decides it, in words; empty where it does not."""
        calibrated = self.measures == "extrapolated"
        said = ["a calibrated curve, untested here"] if calibrated and self.left_out else []
        if not calibrated and any(not part.startswith("λ") for part in self.left_out):
            said.append("mask and residual only")
        said += ["λ assumed"] if "λ" in self.left_out else []
        said += ["λ of another length"] if any(part.startswith("λ at") for part in self.left_out) else []
        return ", ".join(said)

    @property
    def caveat(self) -> str:
        """What a prediction leaves out, and what it is instead, in words; empty where it leaves out nothing."""
        return f"{' and '.join(self.left_out)} not known, this is {self.remainder}" if self.left_out else ""

    @property
    def name(self) -> str:
        """The architecture, model or predictor that it is of, by name; empty where it is not known.

        Of a curve by place, `attrs` name the model.
        """
        return self.model or str(self.attrs.get("model", "")) or self.predictor

    @property
    def tokens(self) -> int:
        """The number of positions."""
        return self.mass.size

    @property
    def at(self) -> Float[np.ndarray, "position"]:
        """Where its numbers stand: the places that they were asked at, else positions from 0."""
        depth = None if self.places is None else self.places.depth
        return (
            np.arange(self.tokens, dtype=np.float64) if depth is None or depth.size != self.tokens else depth
        )

    @property
    def limits(self) -> tuple[Float[np.ndarray, "position"], Float[np.ndarray, "position"]] | None:
        """The 95 % interval of each number, low ends and high ends; None where it has no error.

        Of `counts` Wilson's, else `intervals`.
        """
        if self.counts is not None:
            low, high = np.array([Estimate.of_counts(right, of).interval for right, of in self.counts]).T
            return low, high
        if self.se is None or self.samples is None or len(self.samples) < 2:
            return None
        return intervals(self.mass, np.asarray(self.se), len(self.samples), self.kind)

    @cached_property
    def cumulative(self) -> Float[np.ndarray, "position"]:
        """Prefix mass: what positions 0 … j hold together. Raises `InvalidValueError` unless it is a mass."""
        self._need_mass("cumulative")
        return np.cumsum(self.mass)

    @cached_property
    def summary(self) -> Summary:
        """All statistics of the profile. Raises `InvalidValueError` unless it is a mass.

        Where λ was not given, the verdicts without an end are those that all known λ share.
        """
        self._need_mass("summary")
        if self.left_out:
            return self._shape
        found = {}
        for name, place in (("verdict_without_first", 0), ("verdict_without_last", self.query)):
            rest = np.delete(self.mass[: self._reached.size], place)
            if self.query > 0 and rest.any():
                verdict = verdict_of(rest) if self.samples is None else self._verdict_without(place)
                shapes = () if self.band is None else self.band.shapes.values()
                shared = all(getattr(shape, name) == verdict for shape in shapes)
                found[name] = verdict if shared else None
        return replace(self._shape, **found)

    @cached_property
    def _shape(self) -> Summary:
        """The statistics but for the verdicts without an end."""
        reached, mass = self._reached, self.mass[: self._reached.size]
        held = float(mass.sum()) if self.missing_mass and mass.any() else 1.0
        # a stretch out of reach is no trough, and yet what an end is favoured over
        least = self.trough_share.value / held if reached.all() else None
        few = min(at_ends(mass.size), int(reached.sum()))
        place = np.flatnonzero(reached)[least_stretch(mass[reached], few) + (few - 1) // 2]
        trough = int(place), self.trough_depth.value
        return summarise(mass / held, self.query, trough, least, decided=not self.left_out)

    def share(self, left: int, right: int) -> Estimate:
        """Mass of positions left … right − 1, with its standard error over prompts (NaN without prompts).

        Raises `InvalidValueError` for a stretch that is empty or leaves the positions, and unless it is a mass.
        """
        self._need_mass("share")
        if not 0 <= left < right <= self.tokens:
            raise wrong("left, right", f"a stretch of 0 … {self.tokens}", got=f"{left}, {right}")
        value = float(self.mass[left:right].sum())
        if self.samples is None or len(self.samples) < 2:
            return Estimate(value, math.nan, 1)
        samples = np.asarray(self.samples)
        inside, whole = samples[:, left:right].sum(axis=1), samples.sum(axis=1)
        return Estimate.linearised(value, ratio_of_means(inside, whole)[1])

    @property
    def cross_fitted(self) -> bool:
        """Whether the trough's share is read off other prompts than those that place it: with four or more."""
        return self.samples is not None and len(self.samples) >= LEAST_PROMPTS

    @cached_property
    def _reached(self) -> Bool[np.ndarray, "position"]:
        """Which positions up to the last that counts have influence; all, where none has."""
        reached = self.mass[: _seen(self)] > 0
        return reached if reached.any() else ~reached

    @cached_property
    def trough_share(self) -> Estimate:
        """Mass of the trough's k positions (k = max(1, round(0.05·tokens))), of those in reach.

        With four prompts or more it is cross-fitted: the trough of either half of the prompts (every second
        one) is read off the other half, and the two are averaged. The least of noisy numbers, read off the
        numbers that chose it, would be too small on average.
        """
        reached = self._reached
        ends = min(at_ends(reached.size), int(reached.sum()))
        samples = None if self.samples is None else np.asarray(self.samples)[:, : reached.size][:, reached]
        if samples is None or not self.cross_fitted:
            mass = self.mass[: reached.size][reached]
            start = least_stretch(mass, ends)
            part = self if reached.all() else replace(self, mass=mass, samples=samples, se=None, query=-1)
            return part.share(start, start + ends)
        halves = [Profile.from_samples(samples[k::2]) for k in (0, 1)]
        starts = [least_stretch(half.mass, ends) for half in halves]
        one, two = (half.share(at, at + ends) for half, at in zip(halves, starts[::-1], strict=True))
        return Estimate((one.value + two.value) / 2, math.hypot(one.se, two.se) / 2, len(samples))

    @property
    def trough_depth(self) -> Estimate:
        """How far the trough lies below the mean of the positions in reach, as a share of that mean."""
        reached = int(self._reached.sum())
        even = min(at_ends(self._reached.size), reached) / reached
        even *= float(self.mass.sum()) if self.missing_mass and self.mass.any() else 1.0
        trough = self.trough_share
        return Estimate(1.0 - trough.value / even, trough.se / even, trough.n)

    @cached_property
    def doubts(self) -> list[str]:
        """What of the verdict its prompts do not tell, in words; of a prediction nothing."""
        if self.kind != "mass" or self.samples is None:
            return []
        seen = _seen(self)
        return doubts(np.asarray(self.samples)[:, :seen], at_ends(seen), self.summary.verdict)

    def _verdict_without(self, place: int) -> str | None:
        """Of a profile with samples, the verdict on all other positions."""
        samples = np.delete(np.asarray(self.samples), place, axis=1)
        rest = Profile.from_weights(np.delete(self.mass, place), query=self.query - 1, samples=samples)
        return rest._shape.verdict

    def by_share(self, shares: int) -> "Profile":
        """The same profile over `shares` stretches of equal length, so that contexts of unlike length compare.

        Stretch k holds what the positions between k/shares and (k + 1)/shares of the context do: a position that
        lies in two is parted in proportion. Rates and signed numbers are means instead of sums. `positions`
        is the number before; `se`, `counts` and `band` are left out. Raises `InvalidValueError` for shares < 1 and
        for a query that is not the last position.
        """
        machine.length("shares", shares, each=64)
        if self.query != self.tokens - 1:
            raise wrong("query", f"the last position ({self.tokens - 1})", self.query)
        arrays = {"mass": self.mass} | ({} if self.samples is None else {"samples": np.asarray(self.samples)})
        parts: Any = {name: at_shares(one, shares, total=self.kind == "mass") for name, one in arrays.items()}
        return replace(
            self, **parts, query=shares - 1, positions=self.tokens, se=None, counts=None, band=None
        )

    def to_series(self) -> "pd.Series":
        """The numbers as a pandas Series over positions."""
        import pandas as pd

        return pd.Series(self.mass, pd.RangeIndex(self.tokens, name="position"), name=self.measures)

    def _words(self) -> str:
        head, *_, last = repr(self).splitlines()
        return "; ".join([head, *([self._verdict] if self.kind == "mass" else []), last])

    @property
    def _verdict(self) -> str:
        said = f"no verdict: {self.caveat}" if self.left_out else f"verdict: {self.summary.verdict}"
        return "; ".join([said, *self.summary.ends_alone, *self.doubts])

    def __repr__(self) -> str:
        """What it is of, its shape in blocks, its verdict and statistics: four lines."""
        prompts = "" if self.samples is None else f", {len(self.samples)} prompts"
        of = f" of {self.name}" if self.name else ""
        head = f"Profile: {self.measures}{of}, {self.tokens} positions{prompts}"
        if self.kind != "mass":
            return f"{head}\n{self.kind}: {self.mass.min():.4g} to {self.mass.max():.4g}"
        s = self.summary
        ends = f"the first {s.ends} hold {s.first_mass:.1%}, the last {s.ends} {s.last_mass:.1%}"
        shape = blocks(self.mass[: self.query + 1])
        return f"{head}\n{shape}\n{self._verdict}\n{ends}; trough at {s.trough}; flatness {s.flatness:.2f}"


def measured_influence(measurement: "xr.Dataset") -> Profile:
    """The gradient influence of the last token, averaged over prompts (its samples) and normalised.

    It has the names of model and text, and `prompts`. Source: Herasimchyk et al. 2026, Eq. (6).
    """
    if "influence" not in getattr(measurement, "data_vars", ()):
        raise wrong(
            "measurement", "one with the variable 'influence' (load_measurement reads a file)", got="none"
        )
    about = {name: str(measurement.attrs.get(name, "")) for name in ("model", "text")}
    about |= {"measures": "gradient", "prompts": _prompts(measurement)}
    return Profile.from_samples(measurement["influence"].values, **about)


def _prompts(measurement: "xr.Dataset") -> str:
    """What names the prompts: their text, length and places in it; empty where a file does not say."""
    held = measurement.attrs
    named = [str(held.get(name, "")) for name in ("text_sha256", "starts", "tokens", "documents", "skipped")]
    if not all(named[:3]):
        return ""
    asked = json.loads(held.get("asked", "{}"))
    return hashlib.sha256("|".join([*named, str(asked.get("scramble", False))]).encode()).hexdigest()[:16]


def _seen(profile: Profile) -> int:
    """Positions up to the query, or up to the last that has influence (under masks that look ahead)."""
    after = np.flatnonzero(profile.mass[profile.query + 1 :])
    return profile.query + 1 + (int(after[-1]) + 1 if after.size else 0)


def harmonic(tokens: int) -> Profile:
    """The recency-only baseline: mass in proportion to 1/(distance + 1) from the last token."""
    count = machine.length("tokens", tokens, each=16)
    return Profile.from_weights(1.0 / np.arange(count, 0, -1), measures="baseline")


def uniform(tokens: int) -> Profile:
    """The baseline that knows nothing: the same mass everywhere."""
    count = machine.length("tokens", tokens, each=16)
    return Profile(np.full(count, 1.0 / count), measures="baseline")
