"""The best order of documents: exact for a few, by assignment and swaps for many, with a bound on what is lost.

What stands before a document depends on which documents do, not on their order: up to `EXACT` documents a table
over all sets of them finds the best order. Of documents of one length the best order is that of rearrangement,
exact for any number. For others documents are assigned to slots of one length, then swapped as long as that gains.
What an order gains over another is read from the prompts behind a profile, cross-fitted (`GainEstimator`).

What a stretch of a prompt is worth to the document that takes it is read off a profile (`Slots`): the mean
of the curve over it. The curve of a mass (influence, measured or predicted) runs over
the whole prompt, relative to uniform; that of a rate, or of another number by place (retrieval), over the
documents, so that on as many documents of one length as there were places each has the number of its own. Worth is
linear in the curve: a gain's error follows from the profile's prompts.

Where trials of N documents were asked at fewer places, those between are read on a line (`at_all_places`): equal
stretches would give the first and the last number to documents that do not stand there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

from posbias.profiles.estimate import Estimate, otherwise_at_most, t_95
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
        """The worth of the stretch behind a length of other documents, as a function of that and of its length."""
        held, at = np.concatenate([[0.0], np.cumsum(self.levels(curve))]), np.arange(curve.size + 1.0)
        front, scale = self._scale(curve.size)

        def mean(offset: Array, length: Array) -> Array:
            start, width = front + offset * scale, length * scale
            return (np.interp(start + width, at, held) - np.interp(start, at, held)) / width

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
    if profile.places is None:
        return None
    job = profile.places.job
    fewest, most = job.get("documents") or (None, None)
    return job.get("pairs") or (fewest if fewest == most else None)


def at_all_places(profile: Profile) -> Profile:
    """A profile by place that was asked at some of the places of its lists, at all of them; another as it is.

    `places.job` says how many places there are (`places_of_job`); it was asked at some, evenly from first to
    last. What lies between is taken on a line, trial by trial.
    """
    asked, places = profile.tokens, places_of_job(profile)
    if profile.kind == "mass" or places is None or not 2 <= asked < places:
        return profile
    slots = np.linspace(0, places - 1, asked).round()
    on_a_line = np.array([np.interp(np.arange(places), slots, one) for one in np.eye(asked)])
    samples = None if profile.samples is None else np.asarray(profile.samples) @ on_a_line
    return replace(profile, mass=np.asarray(profile.mass) @ on_a_line, samples=samples, se=None, query=-1)


# --- the best order -------------------------------------------------------------------------------------------

EXACT = 12
"""Documents up to which every set of them is looked at."""
_ROUNDS, _TRIED = 40, 32
"""Swaps at most, and how many are worked out for each: those that promise most."""
Numbers = Float[np.ndarray, "document"]
Orders = Sequence[Sequence[int] | np.ndarray] | np.ndarray


@dataclass(frozen=True)
class Found:
    """An order (places of documents as given), its worth, and by how much no other can be worth more than it."""

    order: tuple[int, ...]
    worth: float
    loss: float


def best_order(slots: Slots, curve: Curve, weights: Numbers, lengths: Numbers) -> Found:
    """The order of the greatest Σ weight · worth of the stretch. That as given where no other is worth more."""
    given = tuple(range(len(weights)))
    one_length = bool((lengths == lengths[0]).all())
    exact = one_length or len(weights) <= EXACT
    if one_length:
        order = _rearranged(slots, curve, weights, lengths)
    elif exact:
        order = _by_sets(slots, curve, weights, lengths)
    else:
        start = _rearranged(slots, curve, weights, lengths)
        order = swapped(start, slots, curve, weights, lengths)
    worth, as_given = worths(slots, curve, weights, lengths, [order, given]).tolist()
    if worth <= as_given + 1e-12 * abs(as_given):
        order, worth = given, as_given
    loss = 0.0 if exact else max(0.0, most(slots, curve, weights, lengths) - worth)
    return Found(tuple(order), worth, loss)


def worths(
    slots: Slots, curve: Curve, weights: Numbers, lengths: Numbers, orders: Orders
) -> Float[np.ndarray, "order"]:
    """Σ weight · worth of the stretch, of each order."""
    rows = np.asarray(orders)
    length = lengths[rows]
    return (weights[rows] * slots.worth(curve)(np.cumsum(length, axis=1) - length, length)).sum(axis=1)


def most(slots: Slots, curve: Curve, weights: Numbers, lengths: Numbers) -> float:
    """At least what any order is worth: documents cut at will, those of most weight for their length best placed.

    An order gives each document as much of the stretch as it is long; of all ways to do so the rearrangement of
    the curve against weight by length is worth most (Hardy, Littlewood and Pólya, Inequalities, chapter 10).
    """
    levels, room = slots.levels(curve), slots.shares(curve.size)
    best = np.argsort(-levels, kind="stable")
    dearest = np.argsort(-(weights / lengths), kind="stable")
    places, documents = np.cumsum(room[best]), np.cumsum(lengths[dearest])
    borders = np.union1d(places, documents)
    borders = borders[borders <= documents[-1] * (1 + 1e-12)]
    widths = np.diff(borders, prepend=0.0)
    middle = borders - widths / 2
    at = np.minimum(np.searchsorted(places, middle, "left"), best.size - 1)
    whose = np.minimum(np.searchsorted(documents, middle, "left"), dearest.size - 1)
    return float((widths * levels[best[at]] * (weights / lengths)[dearest[whose]]).sum())


def _rearranged(slots: Slots, curve: Curve, weights: Numbers, lengths: Numbers) -> list[int]:
    """The documents by weight in slots of one length by worth."""
    count = len(weights)
    size = np.full(count, lengths.mean())
    slot = np.argsort(-slots.worth(curve)(np.arange(count) * size, size), kind="stable")
    order = np.empty(count, dtype=np.int64)
    order[slot] = np.argsort(-weights, kind="stable")
    return order.tolist()


def _by_sets(slots: Slots, curve: Curve, weights: Numbers, lengths: Numbers) -> list[int]:
    """The best order by the best worth of each set of documents that come first."""
    count = len(weights)
    sets = np.arange(2**count)
    inside = (sets[:, None] >> np.arange(count)) & 1
    offset, size = inside @ lengths, inside.sum(axis=1)
    worth = slots.worth(curve)
    best, last = np.full(sets.size, -np.inf), np.zeros(sets.size, dtype=np.int64)
    best[0] = 0.0
    for placed in range(count):
        of_size = sets[size == placed]
        for document in range(count):
            without = of_size[inside[of_size, document] == 0]
            found = best[without] + weights[document] * worth(offset[without], lengths[document])
            joined = without | 1 << document
            better = found > best[joined]
            best[joined[better]], last[joined[better]] = found[better], document
    order, left = [], int(sets[-1])
    while left:
        order.append(int(last[left]))
        left ^= 1 << order[-1]
    return order[::-1]


def swapped(
    order: Sequence[int], slots: Slots, curve: Curve, weights: Numbers, lengths: Numbers
) -> list[int]:
    """Swap the two documents that gain most, as long as one swap of those tried gains.

    Tried are those that promise most: what the two gain themselves, and, to first order, what those between them
    do when they move by the difference of the two lengths.
    """
    current = np.array(order)
    worth = slots.worth(curve)
    value = float(worths(slots, curve, weights, lengths, [current])[0])
    one, other = np.triu_indices(len(current), 1)
    step = lengths.sum() / curve.size / 2
    for _ in range(_ROUNDS):
        length, weight = lengths[current], weights[current]
        offset = np.cumsum(length) - length
        here = worth(offset, length)
        slope = weight * (worth(np.minimum(offset + step, lengths.sum() - length), length) - here) / step
        between = np.concatenate([[0.0], np.cumsum(slope)])
        longer = length[other] - length[one]
        promise = weight[other] * (worth(offset[one], length[other]) - here[other])
        promise += weight[one] * (worth(offset[other] + longer, length[one]) - here[one])
        promise += longer * (between[other] - between[one + 1])
        likely = np.argsort(-promise, kind="stable")[:_TRIED]
        tried = np.tile(current, (likely.size, 1))
        row = np.arange(likely.size)
        tried[row, one[likely]], tried[row, other[likely]] = current[other[likely]], current[one[likely]]
        found = worths(slots, curve, weights, lengths, tried)
        best = int(found.argmax()) if found.size else 0
        if not found.size or found[best] <= value + 1e-12 * abs(value):
            break
        current, value = tried[best], float(found[best])
    return current.tolist()


# --- gains ----------------------------------------------------------------------------------------------------

Rows = Float[np.ndarray, "document position"]
FEWEST = 4
"""With fewer prompts behind a profile a gain has no error."""

_ALIKE = 1e-12
"""A standard error below this is rounding."""


@dataclass(frozen=True, eq=False)
class GainEstimator:
    """Gains of orders over others, from the prompts behind the profile.

    The best orders of halves are those that `chooser` finds, which may take documents to be of other lengths.
    """

    slots: Slots
    weights: Float[np.ndarray, "document"]
    lengths: Float[np.ndarray, "document"]
    chooser: "GainEstimator | None" = None

    def gain(self, found: Found, other: Sequence[int]) -> Estimate:
        """That of the best order over another, with its error; without one where the prompts are too few."""
        samples = self.slots.profile.samples
        if samples is None or len(samples) < FEWEST:
            levels = self.slots.levels(np.asarray(self.slots.profile.mass, dtype=np.float64))
            rows = self._between(found.order, other)
            return Estimate(float(self.weights @ (rows @ levels)), math.nan, 1)
        one, two = (
            self._on(rest, self._between(chosen, other)) for chosen, rest in (self.chooser or self)._halves
        )
        both = (one + two).scaled(0.5)
        return Estimate(both.value, both.se, len(samples), both.freedom)

    @cached_property
    def _halves(self) -> list[tuple[tuple[int, ...], Float[np.ndarray, "prompt position"]]]:
        """The order that each half of the prompts chooses, and the other half, which judges it."""
        samples = np.asarray(self.slots.profile.samples, dtype=np.float64)
        halves = [samples[k::2] for k in (0, 1)]
        return [
            (best_order(self.slots, own.mean(axis=0), self.weights, self.lengths).order, rest)
            for own, rest in (halves, halves[::-1])
        ]

    def over(self, order: Sequence[int], other: Sequence[int]) -> Estimate:
        """The gain of an order that no prompts chose over another, from all prompts of a profile that has some."""
        samples = np.asarray(self.slots.profile.samples, dtype=np.float64)
        return self._on(samples, self._between(order, other))

    def _between(self, order: Sequence[int], other: Sequence[int]) -> Rows:
        """What each document has more of in one order than in another, as weights of the profile's numbers."""
        rows = np.zeros((len(self.weights), self.slots.profile.tokens))
        for sign, documents in ((1.0, order), (-1.0, other)):
            offset = 0.0
            for document in documents:
                length = float(self.lengths[document])
                rows[document] += sign * self.slots.weights(offset, length, rows.shape[1])
                offset += length
        return rows

    def _on(self, samples: Float[np.ndarray, "prompt position"], rows: Rows) -> Estimate:
        """The gain on these prompts: a ratio of means over tokens, a mean over places."""
        single = samples @ (self.weights @ rows)
        whole = samples.mean(axis=1) if self.slots.over_tokens else np.ones(len(samples))
        value = float(single.mean() / whole.mean())
        residual = (single - value * whole) / whole.mean()
        se = float(residual.std(ddof=1)) / math.sqrt(len(samples))
        if se < _ALIKE and self.slots.profile.kind == "rate":
            # all prompts agree: no spread tells how sure that is, but their number does
            weights = self.weights @ rows
            ends = (weights[weights < 0].sum(), weights[weights > 0].sum())
            reach = otherwise_at_most(len(samples)) * max(abs(end - value) for end in ends)
            se = float(reach) / t_95(len(samples) - 1.0)
        return Estimate(value, se, len(samples))
