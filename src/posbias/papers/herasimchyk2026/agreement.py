"""How well each level agrees with what was measured, and how sure we are of a difference between two levels.

Values, intervals, baselines and the ceiling are `posbias.comparison`'s. Differences are taken on the same
resamples of the prompts for both levels, so that noise in the measured curve, which both share, drops out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from posbias.claims import Evidence
from posbias.comparison import Comparison, compare_all
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.levels import Curves
from posbias.profile import SHARE, spearman, wasserstein
from posbias.seeds import stream

RESAMPLES = 1000
SCORES: dict[str, Callable[..., np.ndarray]] = {"spearman": spearman, "wasserstein": wasserstein}
"""The scores of Tables 2 to 5: Spearman (higher is better) and 1-Wasserstein on positions over n − 1 (lower)."""


@dataclass(frozen=True)
class Agreement:
    """One model's levels on one corpus against its measured influence; resamples are drawn from `seed`."""

    curves: Curves
    seed: int = 0

    @cached_property
    def comparison(self) -> Comparison:
        """Scores with intervals by letter, baselines and ceiling. Raises as `posbias.comparison.compare`."""
        assert self.curves.measured is not None
        return compare_all(self.curves.levels, self.curves.measured, seed=self.seed)

    @cached_property
    def resampled(self) -> Float[np.ndarray, "resample position"]:
        """Normalised mean influence over prompts drawn with replacement."""
        measured = self.curves.measured
        assert measured is not None
        assert measured.samples is not None
        samples = np.asarray(measured.samples, dtype=np.float64)
        prompts = len(samples)
        counts = stream(self.seed, "herasimchyk2026.bootstrap").multinomial(
            prompts, np.full(prompts, 1.0 / prompts), size=RESAMPLES
        )
        sums = counts @ samples
        return sums / sums.sum(axis=1, keepdims=True)

    @property
    def prompts(self) -> int:
        """The number of prompts behind the measured curve."""
        measured = self.curves.measured
        assert measured is not None
        return 0 if measured.samples is None else len(measured.samples)

    def best(self, score: str) -> str:
        """The letter of the level that agrees best by this score."""
        values = {letter: getattr(one, score).value for letter, one in self.comparison.agreements.items()}
        sign = 1.0 if score == "spearman" else -1.0
        return max(values, key=lambda letter: sign * np.nan_to_num(values[letter], nan=-np.inf * sign))

    def difference(self, where: str, score: str, more: str, less: str) -> Evidence:
        """That level `more` has the higher score than `less`, with the bootstrap's standard error over prompts."""
        return self.evidence(
            where, lambda measured: self._score(score, more, measured) - self._score(score, less, measured)
        )

    def minimum(self, where: str, letter: str) -> Evidence:
        """How far the trough of a level lies behind that of the measured curve, as a share of the text."""
        predicted = self.mass(letter)
        width = max(1, round(SHARE * predicted.size))
        at = int(trough(predicted, width))
        return self.evidence(where, lambda measured: (at - trough(measured, width)) / (predicted.size - 1))

    def evidence(self, where: str, statistic: Callable[[np.ndarray], np.ndarray]) -> Evidence:
        """A statistic of the measured curve ([…, position] → […]) with its error over prompts."""
        measured = self.curves.measured
        assert measured is not None
        if self.prompts < 2:
            return Evidence(where, flaw="one prompt, two needed")
        value, drawn = float(statistic(np.asarray(measured.mass))), statistic(self.resampled)
        return Evidence(where, Estimate(value, float(np.std(drawn, ddof=1)), self.prompts))

    def mass(self, letter: str) -> Float[np.ndarray, "position"]:
        """What a level predicts."""
        return np.asarray(self.curves.levels[letter].mass)

    def _score(self, score: str, letter: str, measured: Float[np.ndarray, "*batch position"]) -> np.ndarray:
        return SCORES[score](self.mass(letter), measured)


def trough(mass: Float[np.ndarray, "*batch position"], width: int) -> Int[np.ndarray, "*batch"]:
    """The centre of the `width` neighbouring positions with the least mass, the earliest such place."""
    sums = np.lib.stride_tricks.sliding_window_view(mass, width, axis=-1).sum(axis=-1)
    return np.asarray(sums.argmin(axis=-1) + (width - 1) // 2)
