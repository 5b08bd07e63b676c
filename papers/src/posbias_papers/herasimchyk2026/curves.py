"""The curves of one model on one text: influence by level and as measured, and how well each level agrees.

Values, intervals, baselines, held-out scores and what noise allows are `scores`'s. Differences are
taken on the same resamples of the prompts for both levels, so that noise in the measured curve, which both share,
drops out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from posbias.comparison.held_out import Fold
from posbias.comparison.scores import Comparison, compare_all
from posbias.core.seeds import stream
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence
from posbias.profiles.profile import Profile, spearman, wasserstein
from posbias.profiles.summary import SHARE

RESAMPLES = 1000
SCORES: dict[str, Callable[..., np.ndarray]] = {"spearman": spearman, "wasserstein": wasserstein}
"""The scores of Tables 2 to 5: Spearman (higher is better) and 1-Wasserstein on positions over n − 1 (lower)."""


@dataclass(frozen=True)
class Curves:
    """Influence on the last token of one model on one corpus: as measured, if it was, and by level.

    `additive` says whether the model adds a line by distance to its logits, `remarks` what no level knows of;
    resamples are drawn from `seed`; `folds` are levels from halves of the prompts, to be judged on the others.
    What is said of agreement is of curves that were measured.
    """

    model: str
    corpus: str
    levels: Mapping[str, Profile]
    measured: Profile | None = None
    additive: bool = True
    remarks: tuple[str, ...] = ()
    seed: int = 0
    folds: tuple[Fold, ...] = ()

    @property
    def name(self) -> str:
        """'mpt-7b, FineWeb-Edu'."""
        return f"{self.model}, {self.corpus}" if self.corpus else self.model

    @property
    def influence(self) -> Profile:
        """The measured curve."""
        assert self.measured is not None
        return self.measured

    @property
    def samples(self) -> Float[np.ndarray, "prompt position"]:
        """The measured influence of each prompt."""
        return np.asarray(self.influence.samples, dtype=np.float64)

    @cached_property
    def comparison(self) -> Comparison:
        """Scores with intervals by letter, and what they stand beside. Raises as `compare`."""
        return compare_all(self.levels, self.influence, held_out=self.folds, seed=self.seed)

    @cached_property
    def resampled(self) -> Float[np.ndarray, "resample position"]:
        """Normalised mean influence over prompts drawn with replacement."""
        prompts = len(self.samples)
        counts = stream(self.seed, "herasimchyk2026.bootstrap").multinomial(
            prompts, np.full(prompts, 1.0 / prompts), size=RESAMPLES
        )
        sums = counts @ self.samples
        return sums / sums.sum(axis=1, keepdims=True)

    def best(self, score: str) -> str:
        """The letter of the level that agrees best by this score."""
        values = {letter: getattr(one, score).value for letter, one in self.comparison.agreements.items()}
        sign = 1.0 if score == "spearman" else -1.0
        return max(values, key=lambda letter: sign * np.nan_to_num(values[letter], nan=-np.inf * sign))

    def difference(self, where: str, score: str, more: str, less: str) -> Evidence:
        """That level `more` has the higher score than `less`, with the bootstrap's standard error over prompts."""
        of, (high, low) = SCORES[score], (self.levels[letter].mass for letter in (more, less))
        return self.evidence(where, lambda measured: of(high, measured) - of(low, measured))

    def minimum(self, where: str, letter: str) -> Evidence:
        """How far the trough of a level lies behind that of the measured curve, as a share of the text."""
        predicted = self.levels[letter].mass
        width = max(1, round(SHARE * predicted.size))
        at = int(trough(predicted, width))
        return self.evidence(where, lambda measured: (at - trough(measured, width)) / (predicted.size - 1))

    def evidence(self, where: str, statistic: Callable[[np.ndarray], np.ndarray]) -> Evidence:
        """A statistic of the measured curve ([…, position] → […]) with its error over prompts."""
        if len(self.samples) < 2:
            return Evidence(where, flaw="one prompt, two needed")
        value, drawn = float(statistic(self.influence.mass)), statistic(self.resampled)
        return Evidence(where, Estimate(value, float(np.std(drawn, ddof=1)), len(self.samples)))


def trough(mass: Float[np.ndarray, "*batch position"], width: int) -> Int[np.ndarray, "*batch"]:
    """The centre of the `width` neighbouring positions with the least mass, the earliest such place."""
    sums = np.lib.stride_tricks.sliding_window_view(mass, width, axis=-1).sum(axis=-1)
    return np.asarray(sums.argmin(axis=-1) + (width - 1) // 2)
