"""What a trained ensemble answers: position gaps, accuracy by position.

A gap [a, b] compares two tests on the same sequences, in which items a and b hold one vector but have labels of
their own: once a's label is right, once b's. Accuracy on the first minus accuracy on the second is the
preference for a. Where the two labels happen to agree no preference can show; the *informative* sequences are
the others, and on all sequences a gap is expected to stay within ± `largest_gap` (.554 for the paper's task).

    >>> evaluation = evaluate(trained, sequences=2000)          # doctest: +SKIP
    >>> evaluation.gaps["first-last"].all                       # doctest: +SKIP
    Estimate(value=…, se=…, n=5)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch.nn import functional

from posbias.core.errors import InvalidValueError, shortened
from posbias.profiles.estimate import Estimate
from posbias.training.averages import Averages, average
from posbias.training.loop import Trained
from posbias.training.task import PAIRS, RetrievalTask
from posbias.training.trials import answers, blocks, running


@dataclass(frozen=True, eq=False)
class Gap:
    """Accuracy where item `first` (from 0) is right minus accuracy where `second` is.

    On all sequences and on informative ones, whose share per member is `share`.
    """

    first: int
    second: int
    over_all: Averages
    over_informative: Averages
    share: Float[np.ndarray, "member"]

    @property
    def all(self) -> Estimate:
        """The gap on all sequences, with its error over members."""
        return self.over_all.over_members

    @property
    def informative(self) -> Estimate:
        """The gap on informative sequences, with its error over members."""
        return self.over_informative.over_members


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an ensemble shows on new classes; NaN for members whose training was stopped.

    `sequences` per member and test, of the test set number `seed`. `accuracy_by_position` asks for the class
    of one item, whose B − 1 other copies stand anywhere; `accuracy_alone` is sharper: only that item has the
    query's class (see `alone`). `loss` (cross-entropy in nats) and `in_context_accuracy` are means over all
    positions, on the sequences of `accuracy_by_position`.
    """

    seeds: tuple[int, ...]
    sequences: int
    seed: int
    gaps: Mapping[str, Gap]
    loss: Averages
    in_context_accuracy: Averages
    accuracy_by_position: Float[np.ndarray, "member item"]
    accuracy_alone: Float[np.ndarray, "member item"]
    largest_gap: float
    stopped: Mapping[int, int]


def evaluate(trained: Trained, sequences: int = 2000, seed: int = 0) -> Evaluation:
    """Test an ensemble on `sequences` sequences per member and test; `seed` numbers the set of tests.

    Raises `InvalidValueError` for sequences < 1, seed < 0, or a task whose first, middle and last item are not
    three. Source: Wu et al. 2025, Section 5; informative sequences and `accuracy_alone` are ours.
    """
    task = trained.experiment.task
    pairs = compared(task)
    loss, accuracy, by_position = _asked_everywhere(trained, task, sequences, seed)
    return Evaluation(
        seeds=tuple(trained.experiment.seeds),
        sequences=sequences,
        seed=seed,
        gaps={name: paired_gap(trained, *items, sequences, seed) for name, items in pairs.items()},
        loss=loss,
        in_context_accuracy=accuracy,
        accuracy_by_position=by_position,
        accuracy_alone=_asked_everywhere(trained, alone(task), sequences, seed)[2],
        largest_gap=largest_gap(task),
        stopped=dict(trained.stopped),
    )


def paired_gap(trained: Trained, first: int, second: int, sequences: int = 2000, seed: int = 0) -> Gap:
    """The gap [first, second] of two items (from 0). Raises `InvalidValueError` unless they are two."""
    task = trained.experiment.task
    for name, item in (("first", first), ("second", second)):
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < task.items:
            raise InvalidValueError(
                f"{name}: {shortened(item)} given, an item from 0 to {task.items - 1} needed"
            )
    if first == second:
        raise InvalidValueError(f"second: {second} given, another item than the first needed")

    right, informative = [], []
    for novel in blocks(trained, sequences, seed, place=(first, second)):
        tests = novel.paired(first, second)
        right.append(torch.stack([_correct(*answers(trained, test)) for test in (tests.first, tests.second)]))
        informative.append(tests.informative.cpu())
    correct = torch.cat(right, dim=2).numpy()
    gap = gap_of(first, second, correct[0], correct[1], torch.cat(informative, dim=1).numpy())
    kept = running(trained)
    return replace(gap, over_all=gap.over_all.only(kept), over_informative=gap.over_informative.only(kept))


def gap_of(
    first: int,
    second: int,
    first_correct: Bool[np.ndarray, "member sequence"],
    second_correct: Bool[np.ndarray, "member sequence"],
    informative: Bool[np.ndarray, "member sequence"],
) -> Gap:
    """The gap from answers: which were right where `first` had to be told, and where `second` had to be."""
    difference = first_correct.astype(np.float64) - second_correct
    over_all = average(difference, np.ones_like(informative))
    return Gap(first, second, over_all, average(difference, informative), informative.mean(axis=1))


def compared(task: RetrievalTask) -> dict[str, tuple[int, int]]:
    """The pairs of items that gaps compare: "first-middle" → (0, n/2), …

    Raises `InvalidValueError` where first, middle and last are not three different items.
    """
    places = task.places
    if len(set(places.values())) < 3:
        given = ", ".join(f"{name} {place}" for name, place in places.items())
        raise InvalidValueError(f"middle: {given} given, three different items needed")
    return {f"{a}-{b}": (places[a], places[b]) for a, b in PAIRS}


def largest_gap(task: RetrievalTask) -> float:
    """The expected share of informative sequences, (n − B)/(n − 1)·(1 − 1/L), which bounds a gap on all.

    Two items hold different classes with chance (n − B)/(n − 1), and those have different labels but for 1/L.
    """
    return (task.items - task.burstiness) / (task.items - 1) * (1.0 - 1.0 / task.labels)


def alone(task: RetrievalTask) -> RetrievalTask:
    """The task whose sequences show every class once, so that one item alone has the query's class.

    Burstiness becomes 1: n classes in a sequence instead of n/B. Copying any label is then right in about 1/n
    of the sequences instead of B/n, and the sequences are not of the kind that was trained on.
    """
    return replace(task, burstiness=1, classes=max(task.classes, task.items))


def _asked_everywhere(
    trained: Trained, task: RetrievalTask, sequences: int, seed: int
) -> tuple[Averages, Averages, Float[np.ndarray, "member item"]]:
    """Loss and accuracy over all positions, accuracy by position; all positions ask about the same sequences."""
    kept = running(trained)
    rights, entropies = [], []
    for novel in blocks(trained, sequences, seed, task=task):
        told = [answers(trained, novel.asking(item)) for item in range(task.items)]
        rights.append(torch.stack([_correct(*one) for one in told]))
        entropies.append(torch.stack([_entropy(*one) for one in told]))
    right, entropy = (torch.cat(parts, dim=2).double().numpy() for parts in (rights, entropies))
    everywhere = np.ones_like(right[0], dtype=bool)
    losses, accuracies = (average(one.mean(axis=0), everywhere).only(kept) for one in (entropy, right))
    return losses, accuracies, np.where(kept, right.mean(axis=2), np.nan).T


def _correct(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return logits.argmax(dim=-1) == target


def _entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.double().transpose(1, 2), target, reduction="none")
