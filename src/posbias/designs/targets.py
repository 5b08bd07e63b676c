"""What a design is to achieve: a shape of the profile, and how far a profile is from it.

    flat            a uniform profile
    middle=0.5      at least half of the mass in the middle half of the text
    reach=2000      at least this many of the last tokens hold 90 % of the mass
    FILE            another model's curve, by share of the text

The distance to a curve is Wasserstein's, on positions divided by their number less one (Herasimchyk et al. 2026,
Appendix B.2); to the others by how much a profile falls short: a share of the mass, or of the reach.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InvalidValueError, nearest, shortened, whole
from posbias.profiles.curves import at_shares, wasserstein
from posbias.profiles.measurements import load_profile
from posbias.profiles.profile import Profile, uniform
from posbias.theory.configs import read_architecture
from posbias.theory.prediction import predict

CLOSE = 0.02
"""A curve this near, in units of the text's length, meets a target unless another number is given."""


class _Target:
    """What every target says of itself."""

    kind = ""

    @property
    def specification(self) -> dict[str, Any]:
        """What it asks for, ready for JSON."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in ("name", "within")}


@dataclass(frozen=True, eq=False)
class CurveTarget(_Target):
    """A curve to be near: `mass` by position of a text of any length, summing to 1.

    `name` says whose; `caveat` what a prediction of it leaves out (`Profile.caveat`).
    """

    name: str
    mass: Float[np.ndarray, "position"]
    within: float = CLOSE
    caveat: str = ""

    kind = "curve"

    def distance(self, profile: Profile) -> float:
        """Wasserstein distance of the profile to the curve at its length, between 0 and 1."""
        tokens = profile.tokens
        curve = self.mass if self.mass.size == tokens else at_shares(self.mass, tokens, total=True)
        return float(wasserstein(_shares(profile), curve))


@dataclass(frozen=True)
class MiddleTarget(_Target):
    """At least `least` of the mass in the middle half of the text."""

    least: float
    within: float = 0.0

    kind = "middle"

    def __post_init__(self):
        if not 0 < self.least <= 1:
            raise InvalidValueError(
                f"target: expected a share above 0 and up to 1, got middle={self.least:g}"
            )

    def distance(self, profile: Profile) -> float:
        """By how much the middle half falls short, as a share of all mass."""
        quarters = at_shares(_shares(profile), 4, total=True)
        return max(0.0, self.least - float(quarters[1] + quarters[2]))

    @property
    def name(self) -> str:
        """The target in words."""
        return f"at least {self.least:g} of the mass in the middle half"


@dataclass(frozen=True)
class ReachTarget(_Target):
    """At least `least` of the last tokens to hold 90 % of the mass (`Summary.effective_range`)."""

    least: int
    within: float = 0.0

    kind = "reach"

    def __post_init__(self):
        whole("target: reach", self.least, 1)

    def distance(self, profile: Profile) -> float:
        """By how much the reach falls short, as a share of the one wanted."""
        return max(0.0, 1.0 - profile.summary.effective_range / self.least)

    @property
    def name(self) -> str:
        """The target in words."""
        return f"a reach of at least {self.least:,} tokens"


Target = CurveTarget | MiddleTarget | ReachTarget
UNIFORM = "a uniform profile"


def target_of(spelling: str, tokens: int, within: float | None = None) -> Target:
    """The target that is written `flat`, `middle=SHARE`, `reach=TOKENS`, or as a file with a curve.

    A file is a measurement's .nc, the JSON of a prediction, a list of weights, or an architecture, which is
    predicted at `tokens`. `within` is how near is near enough. Raises `InvalidValueError` for another word, a
    number that cannot be, or a curve that is no mass; `InputFileError` as `load_profile` and `read_architecture`.
    """
    if within is not None and not 0 <= within < 1:
        raise InvalidValueError(f"within: expected a number from 0 to below 1, got {within:g}")
    near: dict[str, Any] = {} if within is None else {"within": float(within)}
    word, equals, number = spelling.partition("=")
    if spelling == "flat":
        return CurveTarget(UNIFORM, uniform(tokens).mass, **near)
    if equals and word in ("middle", "reach"):
        try:
            return (
                MiddleTarget(float(number), **near)
                if word == "middle"
                else _reached(int(number), tokens, **near)
            )
        except ValueError as error:
            if isinstance(error, InvalidValueError):
                raise
            kind = "a share of the mass" if word == "middle" else "a number of tokens"
            raise InvalidValueError(f"target: expected {kind}, got {shortened(spelling)}") from None
    if not _is_there(spelling):
        hint = nearest(word, ("flat", "middle", "reach"))
        raise InvalidValueError(
            "target: expected flat, middle=SHARE, reach=TOKENS or a file with a curve, "
            f"got {shortened(spelling)}{hint}"
        )
    profile = _curve(Path(spelling), tokens)
    if profile.kind != "mass":
        raise InvalidValueError(
            f"target: expected influence that sums to 1, got a {profile.kind} in {shortened(spelling)}"
        )
    return CurveTarget(Path(spelling).name, _shares(profile), caveat=profile.caveat, **near)


def _is_there(path: str) -> bool:
    """Whether there is such a file or folder; what no file can be called is none."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def _reached(least: int, tokens: int, **near: float) -> ReachTarget:
    if least > tokens:
        raise InvalidValueError(f"target: expected at most the text's {tokens:,} tokens, got reach={least:,}")
    return ReachTarget(least, **near)


def _curve(path: Path, tokens: int) -> Profile:
    """The curve of a file: of a measurement, a prediction, a list, or of an architecture at `tokens`."""
    if path.is_dir() or path.suffix.lower() in (".toml", ".yaml", ".yml") or path.name == "config.json":
        return predict(read_architecture(path).architecture, tokens)
    return load_profile(path)


def _shares(profile: Profile) -> Float[np.ndarray, "position"]:
    """The mass by position, of what reaches the tokens at all."""
    return profile.mass / profile.mass.sum()
