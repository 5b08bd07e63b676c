"""What is known of trained networks: their accuracy gaps, sinks, attention, and learning curves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

if TYPE_CHECKING:
    from posbias.training.kernels import Agreement, Rollout
    from posbias.training.loop import Trained
    from posbias.training.probes import Evaluation
    from posbias.training.results import Cell

PAIRS = ("first-middle", "first-last", "middle-last")
"""The pairs of items whose accuracies are compared."""
LEARNT = 0.3
"""In-context accuracy from which a network counts as having learnt to copy a label of its context (about ½;
guessing among all 32 labels: 0.03). Networks that have not say nothing about position; they are left out."""


@dataclass(frozen=True)
class Gaps:
    """A cell's accuracy gaps by pair, [member], with loss and in-context accuracy, [member].

    `informative` are the gaps on the sequences where the compared labels differ. NaN for a stopped member.
    """

    gaps: Mapping[str, Float[np.ndarray, "member"]]
    accuracy: Float[np.ndarray, "member"]
    loss: Float[np.ndarray, "member"]
    informative: Mapping[str, Float[np.ndarray, "member"]]

    @property
    def means(self) -> tuple[float, float]:
        """In-context accuracy and loss, over all networks that were not stopped; NaN if all were."""
        kept = np.isfinite(self.loss)
        if not kept.any():
            return math.nan, math.nan
        return float(self.accuracy[kept].mean()), float(self.loss[kept].mean())

    @property
    def learnt(self) -> np.ndarray:
        """Which members have learnt: finite, and at least `LEARNT` accurate in context."""
        finite = np.isfinite([self.loss, *(self.gaps[pair] for pair in PAIRS)]).all(axis=0)
        return finite & (self.accuracy >= LEARNT)

    def of(self, pair: str) -> Float[np.ndarray, "network"]:
        """The gap of those that have learnt."""
        return np.asarray(self.gaps[pair], dtype=np.float64)[self.learnt]


@dataclass(frozen=True)
class Sinks:
    """The sink metric of a cell's networks, its two nulls, and which networks have learnt."""

    trained: Float[np.ndarray, "network token"]
    untrained: Float[np.ndarray, "network token"]
    uniform: Float[np.ndarray, "token"]
    learnt: Bool[np.ndarray, "network"]

    @property
    def kept(self) -> "Sinks":
        """The same of those that have learnt."""
        some = self.learnt
        return Sinks(self.trained[some], self.untrained[some], self.uniform, self.learnt[some])


@dataclass(frozen=True)
class Outcome:
    """What is known of a trained cell: gaps, sinks, mean attention, accuracy by position, learning curves, the
    number of test sequences, and what its own kernels and the theory predict of the gaps, by the names of
    `posbias.training.kernels.LABELS`.

    Attention and accuracy are NaN for a stopped member; `Evaluation` says what `accuracy_by_position` is."""

    gaps: Gaps
    sinks: Sinks
    attention: Float[np.ndarray, "member layer query key"]
    accuracy_by_position: Float[np.ndarray, "member item"]
    trained: "Trained"
    sequences: int
    agreements: Mapping[str, "Agreement"] = field(default_factory=dict)

    @property
    def recorded(self) -> bool:
        """Whether it is read from a cell's record, which has no weights."""
        return not self.trained.weights

    @property
    def kept_attention(self) -> Float[np.ndarray, "network layer query key"]:
        """The mean attention of the networks that have learnt."""
        return self.attention[self.gaps.learnt]

    @property
    def example(self) -> Float[np.ndarray, "layer query key"] | None:
        """The first network's attention to its first test sequence; None where there are no weights."""
        from posbias.training.kernels import attention_example

        return None if self.recorded else attention_example(self.trained)


def outcome_of(cell: "Cell") -> Outcome:
    """What figures and claims need of a finished cell."""
    from posbias.training.kernels import agreement

    evaluation = cell.evaluation
    gaps = Gaps(
        {name: gap.over_all.values for name, gap in evaluation.gaps.items()},
        evaluation.in_context_accuracy.values,
        evaluation.loss.values,
        {name: gap.over_informative.values for name, gap in evaluation.gaps.items()},
    )
    counted, whole = cell.sinks, np.isfinite(gaps.loss)
    metrics = (counted.metric()[whole], counted.metric_untrained()[whole], counted.metric_uniform())
    sinks = Sinks(*metrics, gaps.learnt[whole])
    agreements = agreement(*_learnt_only(cell.rollout, evaluation, gaps.learnt))
    tested = (evaluation.accuracy_by_position, cell.trained, evaluation.sequences)
    return Outcome(gaps, sinks, cell.attention, *tested, agreements)


def _learnt_only(
    rollout: "Rollout", evaluation: "Evaluation", learnt: np.ndarray
) -> "tuple[Rollout, Evaluation]":
    """Profiles and gaps without the networks that have not learnt: their gaps say nothing of position."""
    profiles = {name: np.where(learnt[:, None], one, np.nan) for name, one in rollout.profiles.items()}
    gaps = {
        pair: replace(
            gap, over_all=gap.over_all.only(learnt), over_informative=gap.over_informative.only(learnt)
        )
        for pair, gap in evaluation.gaps.items()
    }
    return replace(rollout, profiles=profiles), replace(evaluation, gaps=gaps)
