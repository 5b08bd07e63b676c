"""What is trained: a task, a network, seeds, and how long; and which of them can be trained side by side.

    Experiment(RetrievalTask(answers=(0, 7)), Network(depth=2, residual=True), seeds=(0, 1, 2), iterations=2500)

Every seed is a member: a network with its own initial weights, its own classes and labels and its own batches.
"""

from typing import Any, Literal

from posbias.core import machine
from posbias.core.errors import InvalidValueError
from posbias.core.spec import Count, NonNegative, Positive, value
from posbias.training.network import Network, Rotary, Sinusoidal
from posbias.training.precision import Precision
from posbias.training.task import Places, RetrievalTask

POINTS, SPAN = 40, 100
"""Points of a learning curve, and at how many times the iterations of the first its last one is."""
SEEDS = 2**63
"""Seeds stay below this: cells name their members by them, as integers of 64 bits."""


@value
class Experiment:
    """One cell: `network` trained on `task` once per seed, with AdamW.

    `iterations` batches of `batch` sequences each. Defaults are those of Wu et al. 2025, Appendix J, but for
    the iterations (100,000 there). Learning curves have a point every `evaluate_every` iterations; None: 40 points
    evenly spaced in the logarithm (`points`). `precision` says in what numbers matrices are multiplied, `draws`
    where random numbers come from (`training.philox`). Raises `InvalidValueError` for a seed given
    twice or of more than 63 bits, a window or prefix longer than the sequence, and an odd dimension with an
    encoding that pairs dimensions.
    """

    task: RetrievalTask = RetrievalTask()
    network: Network = Network()
    seeds: Places = (0, 1, 2, 3, 4)
    iterations: Count = 2500
    batch: Count = 128
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 1e-6
    evaluate_every: Count | None = None
    precision: Precision = "float32"
    draws: Literal["philox"] = "philox"

    def __post_init__(self):
        if len(set(self.seeds)) < len(self.seeds):
            raise InvalidValueError(f"seeds: {list(self.seeds)} given, different ones needed")
        if max(self.seeds) >= SEEDS:
            raise InvalidValueError(f"seeds: {max(self.seeds)} given, numbers below 2⁶³ needed")
        self.network.check(self.task.tokens)
        if isinstance(self.network.positional, Rotary | Sinusoidal) and self.task.dimension % 2:
            raise InvalidValueError(
                f"task.dimension: {self.task.dimension} given, an even one needed for the "
                f"{self.network.positional.kind} encoding"
            )

    def check_memory(self) -> None:
        """Raise `InvalidValueError` naming what takes most, if training would need more memory than can be had.

        Weights with gradients and both moments of AdamW, classes and labels of every member, and a batch with
        what is kept of it for the gradient, in float32; a lower bound.
        """
        task, members = self.task, len(self.seeds)
        width, tokens = task.dimension, task.tokens
        weights = (3 * (self.network.depth + 1) * width + task.labels) * width
        kept = self.batch * tokens * (width * (2 + 4 * self.network.depth) + tokens * self.network.depth)
        parts = {
            "dimension": (16 * weights, width),
            "classes": (4 * (task.classes + task.labels) * width + 8 * task.classes, task.classes),
            "items" if task.items > self.batch else "batch": (4 * kept, max(task.items, self.batch)),
        }
        name, (_, given) = max(parts.items(), key=lambda part: part[1][0])
        machine.require(members * sum(bytes for bytes, _ in parts.values()), name, given)

    @property
    def points(self) -> tuple[int, ...]:
        """The iterations after which the networks are looked at: from a hundredth of all to the last one."""
        last, steps = self.iterations, POINTS - 1
        if self.evaluate_every is not None:
            return (*range(self.evaluate_every, last, self.evaluate_every), last)
        return tuple(sorted({max(1, round(last * SPAN ** (-step / steps))) for step in range(POINTS)}))


def compatible(a: Experiment, b: Experiment) -> bool:
    """Whether two experiments can be trained as one ensemble: equal shapes, depth and optimisation.

    Normalisers are equal too. Mask, encoding, residual connections, answers, inputs, number of classes and seeds
    may differ.
    """
    return _shape(a) == _shape(b)


def _shape(one: Experiment) -> tuple[Any, ...]:
    task = (one.task.items, one.task.dimension, one.task.labels)
    steps = (
        one.iterations,
        one.batch,
        one.learning_rate,
        one.weight_decay,
        one.evaluate_every,
        one.precision,
    )
    return (*task, one.network.depth, one.network.normaliser, *steps)
