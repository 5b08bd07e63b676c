"""What a stretch of a prompt is worth to the document that takes it, read off a profile.

A stretch is worth the mean of the curve over it. The curve of a mass (influence, measured or predicted) runs over
the whole prompt, in units of an even spread; that of a rate, or of another number by place (retrieval), over the
documents, so that on as many documents of one length as there were places each has the number of its own. Worth is
linear in the curve: a gain's error follows from the profile's prompts.

Where trials of N documents were asked at fewer places, those between are read on a line (`at_all_places`): equal
stretches would give the first and the last number to documents that do not stand there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from posbias.profiles.profile import Profile

Curve = Float[np.ndarray, "position"]
Array = Float[np.ndarray, "*batch"]


@dataclass(frozen=True, eq=False)
class Slots:
    """The stretch that documents of the length `total` share, with `before` and `after` in front and behind."""

    profile: Profile
    total: float
    before: float = 0.0
    after: float = 0.0

    @property
    def over_tokens(self) -> bool:
        """Whether the profile is over tokens, prefix and suffix among them, or else over places of documents."""
        return self.profile.kind == "mass"

    def levels(self, curve: Curve) -> Curve:
        """The curve in units of worth: of a mass its density, the mean over the whole prompt being 1."""
        return curve * (curve.size / curve.sum()) if self.over_tokens else curve

    def worth(self, curve: Curve) -> Callable[[Array, Array], Array]:
        """The worth of the stretch behind so much of other documents, as a function of that and of its length."""
        held = np.concatenate([[0.0], np.cumsum(self.levels(curve))])
        front, scale = self._scale(curve.size)

        def mean(offset: Array, length: Array) -> Array:
            start, width = front + offset * scale, length * scale
            return (_at(held, start + width) - _at(held, start)) / width

        return mean

    def weights(self, offset: float, length: float, positions: int) -> Curve:
        """The worth of a stretch as weights of the numbers of `levels` at `positions` positions."""
        front, scale = self._scale(positions)
        start, end = front + offset * scale, front + (offset + length) * scale
        place = np.arange(positions)
        return np.clip(np.minimum(end, place + 1) - np.maximum(start, place), 0.0, None) / (end - start)

    def shares(self, positions: int) -> Curve:
        """How much of each position the documents take together, in their unit of length."""
        return self.weights(0.0, self.total, positions) * self.total

    def _scale(self, positions: int) -> tuple[float, float]:
        """Where documents begin, and their unit of length, in positions."""
        front, behind = (self.before, self.after) if self.over_tokens else (0.0, 0.0)
        scale = positions / (front + self.total + behind)
        return front * scale, scale


def places_of_job(profile: Profile) -> int | None:
    """How many places the lists behind a profile had: pairs, or documents if all had as many; None: not known."""
    job = profile.attrs.get("job")
    if not isinstance(job, Mapping):
        return None
    fewest, most = job.get("documents") or (None, None)
    return job.get("pairs") or (fewest if fewest == most else None)


def at_all_places(profile: Profile) -> Profile:
    """A profile by place that was asked at some of the places of its lists, at all of them; another as it is.

    `attrs["job"]` says how many places there are (`places_of_job`); it was asked at some, evenly from first to
    last. What lies between is taken on a line, trial by trial.
    """
    asked, places = profile.tokens, places_of_job(profile)
    if profile.kind == "mass" or places is None or not 2 <= asked < places:
        return profile
    slots = np.linspace(0, places - 1, asked).round()
    on_a_line = np.array([np.interp(np.arange(places), slots, one) for one in np.eye(asked)])
    samples = None if profile.samples is None else np.asarray(profile.samples) @ on_a_line
    return replace(profile, mass=np.asarray(profile.mass) @ on_a_line, samples=samples, se=None, query=-1)


def _at(held: Curve, place: Array) -> Array:
    """Linear interpolation between the numbers of `held`, at places in positions."""
    below = np.clip(place.astype(np.int64), 0, held.size - 2)
    return held[below] + (place - below) * (held[below + 1] - held[below])
