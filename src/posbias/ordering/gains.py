"""What an order gains over another, with its error: from the prompts behind a profile, cross-fitted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from posbias.ordering.search import Found, best_order
from posbias.ordering.slots import Curve, Slots
from posbias.profiles.estimate import Estimate, otherwise_at_most, t_95

Rows = Float[np.ndarray, "document position"]
FEWEST = 4
"""With fewer prompts behind a profile a gain has no error."""

_ALIKE = 1e-12
"""A standard error below this is rounding."""


@dataclass(frozen=True, eq=False)
class Judge:
    """Gains of orders over others, from the prompts behind the profile."""

    slots: Slots
    weights: Float[np.ndarray, "document"]
    lengths: Float[np.ndarray, "document"]
    errors: Float[np.ndarray, "document"]

    @property
    def curve(self) -> Curve:
        """The profile's own numbers, over all of its prompts."""
        return np.asarray(self.slots.profile.mass, dtype=np.float64)

    def gain(self, found: Found, other: Sequence[int]) -> Estimate:
        """That of the best order over another, with its error; without one where the prompts are too few."""
        samples = self.slots.profile.samples
        if samples is None or len(samples) < FEWEST:
            rows = self._by_document(found.order) - self._by_document(other)
            value = self._of(rows, self.curve)
            return Estimate(value, math.nan, 1)
        samples = np.asarray(samples, dtype=np.float64)
        halves = [samples[k::2] for k in (0, 1)]
        folds = []
        for own, rest in (halves, halves[::-1]):
            chosen = best_order(self.slots, own.mean(axis=0), self.weights, self.lengths)
            folds.append(self._on(rest, self._by_document(chosen.order) - self._by_document(other)))
        both = (folds[0] + folds[1]).scaled(0.5)
        # the scores are the same in both halves: their error is not halved by judging twice
        se = math.hypot(both.se, self._of_scores(found.order, other))
        return Estimate(both.value, se, len(samples), both.freedom)

    def over(self, order: Sequence[int], other: Sequence[int]) -> Estimate:
        """The gain of an order that no prompts chose over another, from all prompts of a profile that has some."""
        samples = np.asarray(self.slots.profile.samples, dtype=np.float64)
        gain = self._on(samples, self._by_document(order) - self._by_document(other))
        return Estimate(gain.value, math.hypot(gain.se, self._of_scores(order, other)), gain.n)

    def _by_document(self, given: Sequence[int]) -> Float[np.ndarray, "document position"]:
        """Each document's worth in an order as weights of the profile's numbers, by the document's own place."""
        rows = np.empty((len(self.weights), self.slots.profile.tokens))
        offset = 0.0
        for document in given:
            length = float(self.lengths[document])
            rows[document] = self.slots.weights(offset, length, self.slots.profile.tokens)
            offset += length
        return rows

    def _of(self, rows: Rows, curve: Curve) -> float:
        return float(self.weights @ self._differences(rows, curve))

    def _differences(self, rows: Rows, curve: Curve) -> Float[np.ndarray, "document"]:
        return rows @ self.slots.levels(curve)

    def _of_scores(self, given: Sequence[int], other: Sequence[int]) -> float:
        """The standard error that the scores' own errors give a gain, to first order."""
        rows = self._by_document(given) - self._by_document(other)
        found = self._differences(rows, self.curve)
        return float(np.linalg.norm((found - self.weights @ found) * self.errors))

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
