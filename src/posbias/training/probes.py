"""What a trained ensemble answers: position gaps, accuracy by position.

A gap [a, b] compares two tests on the same sequences, in which items a and b hold one vector but have labels of
their own: once a's label is right, once b's. Accuracy on the first minus accuracy on the second is the
preference for a. Where the two labels happen to agree no preference can show; the *informative* sequences are
the others, and on all sequences a gap is expected to stay within ± `largest_gap` (.554 for the paper's task).

    >>> evaluation = evaluate(trained, sequences=2000)          # doctest: +SKIP
    >>> evaluation.gaps["first-last"].all                       # doctest: +SKIP
    Estimate(value=…, se=…, n=5)

`Averages` are numbers of an ensemble, one per member, with two errors. Over members: how much a number varies from
network to network, with all that differs between them (initial weights, training data, test sequences). Over
sequences: how well the numbers of these very networks are known. A member whose training was stopped has no
number: NaN, left out of the estimates, null in JSON.

Every member is tested on sequences of its own: its own world's labels and, drawn from its seed and the number
of the test set, new classes. Its numbers are so the same in any ensemble. A block of `BLOCK` sequences per
member is drawn and run at once, all members together, which bounds memory whatever the number of sequences.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from posbias.core.errors import whole, wrong
from posbias.profiles.estimate import Estimate
from posbias.training.loop import Trained
from posbias.training.network import Wiring, finite_members, forward, wire
from posbias.training.task import PAIRS, Batch, Novel, RetrievalTask, blocks_of, make_world, novel_sequences

ZERO = 1e-9
"""A number of at most this is none."""


@dataclass(frozen=True, eq=False)
class Averages:
    """Each member's mean over its `counts` sequences, and the standard error of that mean over sequences."""

    values: Float[np.ndarray, "member"]
    errors: Float[np.ndarray, "member"]
    counts: Int[np.ndarray, "member"]

    @property
    def over_members(self) -> Estimate:
        """Mean over members with its standard error, which is NaN for one member."""
        return estimate_members(self.values)

    @property
    def over_sequences(self) -> Estimate:
        """The same mean with the error that the choice of sequences alone gives it."""
        kept = np.isfinite(self.values)
        if not kept.any():
            return Estimate(math.nan, math.nan, 1)
        error = float(np.sqrt((self.errors[kept] ** 2).sum()) / kept.sum())
        return Estimate(float(self.values[kept].mean()), error, int(self.counts[kept].sum()))

    @property
    def estimate(self) -> Estimate:
        """Over members; of a single one, with the error over its sequences."""
        over_members = self.over_members
        return over_members if over_members.known else self.over_sequences

    def only(self, members: Bool[np.ndarray, "member"]) -> "Averages":
        """The same with NaN for every other member."""
        values, errors = (np.where(members, held, np.nan) for held in (self.values, self.errors))
        return Averages(values, errors, self.counts)


def average(
    samples: Float[np.ndarray, "member sequence"], keep: Bool[np.ndarray, "member sequence"]
) -> Averages:
    """Each member's mean over the kept sequences: NaN for none, its error NaN for fewer than two."""
    counts = keep.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(keep, samples, 0.0).sum(axis=1) / counts
        squares = np.where(keep, samples - means[:, None], 0.0) ** 2
        errors = np.sqrt(squares.sum(axis=1) / (counts - 1.0) / counts)
    errors[counts < 2] = np.nan
    return Averages(means, errors, counts)


def estimate_members(values: Float[np.ndarray, "member"]) -> Estimate:
    """Mean and standard error over members without those that are NaN; NaN where none is left.

    A number that is the same for all of several members, such as a prediction, has exactly no error.
    """
    kept = values[np.isfinite(values)]
    if kept.size > 1 and (kept == kept[0]).all():
        return Estimate(float(kept[0]), 0.0, kept.size)
    return Estimate.of_mean(kept) if kept.size else Estimate(math.nan, math.nan, 1)


def sign(estimate: Estimate) -> int:
    """−1 or 1 where a number is significant at 95 % (Student's t), else 0."""
    low, high = estimate.interval
    return int(low > ZERO) - int(high < -ZERO)


def blocks(
    trained: Trained,
    sequences: int,
    seed: int,
    *,
    task: RetrievalTask | None = None,
    place: tuple[int, ...] = (),
) -> Iterator[Novel]:
    """The test set `seed` of `sequences` sequences per member, in blocks, on the device of the weights.

    `task` is what is shown, by default what was trained on; `place` tells tests apart that share no sequences.
    Raises `InvalidValueError` for sequences < 1, seed < 0, and networks of posbias 0.1, whose labels' vectors are
    drawn no more.
    """
    whole("sequences", sequences, 1)
    whole("seed", seed, 0)
    experiment = trained.experiment
    task = task or experiment.task
    world = make_world(task, experiment.seeds, str(_device(trained)))
    for start, rows in blocks_of(sequences):
        yield novel_sequences(task, world, seed + 1, rows, start, place)


def answers(
    trained: Trained, batch: Batch
) -> tuple[Float[Tensor, "member sequence label"], Int[Tensor, "member sequence"]]:
    """The ensemble's logits for a batch, and what would have been right; both on the CPU."""
    with torch.no_grad():
        logits = forward(trained.weights, wiring(trained), batch.tokens)
    return logits.cpu(), batch.target.cpu()


def attention_blocks(
    trained: Trained, sequences: int, seed: int, *weights: dict[str, Tensor]
) -> Iterator[tuple[Tensor, list[list[Tensor]]]]:
    """Blocks of tokens [member, sequence, token, dimension] and each layer's attention to them.

    Sequences show new classes and ask for one at a random item, so that they favour no position. Attention is
    [member, sequence, query, key], a list over layers, one such list for each of `weights`.
    """
    for novel in blocks(trained, sequences, seed):
        tokens = novel.asking().tokens
        attention: list[list[Tensor]] = [[] for _ in weights]
        with torch.no_grad():
            for own, layers in zip(weights, attention, strict=True):
                forward(own, wiring(trained), tokens, layers)
        yield tokens, attention


def wiring(trained: Trained) -> Wiring:
    """The wiring of all members, on the device of their weights."""
    experiment = trained.experiment
    networks = [experiment.network] * len(experiment.seeds)
    return wire(networks, experiment.task.tokens, experiment.task.dimension, str(_device(trained)))


def running(trained: Trained) -> Bool[np.ndarray, "member"]:
    """Which members trained to the end: not stopped, every weight finite where weights were kept."""
    going = np.array([seed not in trained.stopped for seed in trained.experiment.seeds])
    return finite_members(trained.weights) & going if trained.weights else going


def _device(trained: Trained) -> torch.device:
    return trained.weights["query"].device


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

    sequences: int
    seed: int
    gaps: Mapping[str, Gap]
    loss: Averages
    in_context_accuracy: Averages
    accuracy_by_position: Float[np.ndarray, "member item"]
    accuracy_alone: Float[np.ndarray, "member item"]


def evaluate(trained: Trained, sequences: int = 2000, seed: int = 0) -> Evaluation:
    """Test an ensemble on `sequences` sequences per member and test; `seed` numbers the set of tests.

    Raises `InvalidValueError` for sequences < 1, seed < 0, or a task whose first, middle and last item are not
    three. Source: Wu et al. 2025, Section 5; informative sequences and `accuracy_alone` are ours.
    """
    task = trained.experiment.task
    pairs = compared(task)
    loss, accuracy, by_position = _asked_everywhere(trained, task, sequences, seed)
    return Evaluation(
        sequences=sequences,
        seed=seed,
        gaps={name: paired_gap(trained, *items, sequences, seed) for name, items in pairs.items()},
        loss=loss,
        in_context_accuracy=accuracy,
        accuracy_by_position=by_position,
        accuracy_alone=_asked_everywhere(trained, alone(task), sequences, seed)[2],
    )


def paired_gap(trained: Trained, first: int, second: int, sequences: int = 2000, seed: int = 0) -> Gap:
    """The gap [first, second] of two items (from 0). Raises `InvalidValueError` unless they are two."""
    task = trained.experiment.task
    for name, item in (("first", first), ("second", second)):
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < task.items:
            raise wrong(name, f"an item from 0 to {task.items - 1}", item)
    if first == second:
        raise wrong("second", "another item than the first", second)

    right, informative = [], []
    for novel in blocks(trained, sequences, seed, place=(first, second)):
        tests = novel.paired(first, second)
        right.append(torch.stack([_correct(*answers(trained, test)) for test in (tests.first, tests.second)]))
        informative.append(tests.informative.cpu())
    correct, differ = torch.cat(right, dim=2).double().numpy(), torch.cat(informative, dim=1).numpy()
    kept, difference = running(trained), correct[0] - correct[1]
    every, some = (average(difference, keep).only(kept) for keep in (np.ones_like(differ), differ))
    return Gap(first, second, every, some, differ.mean(axis=1))


def compared(task: RetrievalTask) -> dict[str, tuple[int, int]]:
    """The pairs of items that gaps compare: "first-middle" → (0, n/2), …

    Raises `InvalidValueError` where first, middle and last are not three different items.
    """
    places = task.places
    if len(set(places.values())) < 3:
        given = ", ".join(f"{name} {place}" for name, place in places.items())
        raise wrong("middle", "three different items", got=given)
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
        answered = [answers(trained, novel.asking(item)) for item in range(task.items)]
        rights.append(torch.stack([_correct(*one) for one in answered]))
        entropies.append(torch.stack([_entropy(*one) for one in answered]))
    right, entropy = (torch.cat(parts, dim=2).double().numpy() for parts in (rights, entropies))
    everywhere = np.ones_like(right[0], dtype=bool)
    losses, accuracies = (average(one.mean(axis=0), everywhere).only(kept) for one in (entropy, right))
    return losses, accuracies, np.where(kept, right.mean(axis=2), np.nan).T


def _correct(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return logits.argmax(dim=-1) == target


def _entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.double().transpose(1, 2), target, reduction="none")
