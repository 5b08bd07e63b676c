"""What is trained: a task, a network, seeds, and how long; and which of them can be trained side by side.

    Experiment(RetrievalTask(answers=(0, 7)), Network(depth=2, residual=True), seeds=(0, 1, 2), iterations=2500)

Every seed is a member: a network with its own initial weights, its own classes and labels and its own batches.
"""

from posbias.errors import InvalidValueError
from posbias.spec import Count, NonNegative, Positive, value
from posbias.training.network import Network, Rotary, Sinusoidal
from posbias.training.task import Places, RetrievalTask

SEEDS = 2**63
"""Seeds stay below this: cells name their members by them, as integers of 64 bits."""


@value
class Experiment:
    """One cell: `network` trained on `task` once per seed, with AdamW, and watched every `evaluate_every`.

    `iterations` batches of `batch` sequences each. Defaults are those of Wu et al. 2025, Appendix J, but for
    the iterations (100,000 there). Raises `InvalidValueError` for a seed given twice or of more than 63
    bits, a window or prefix longer than the sequence, and an odd dimension with an encoding that pairs dimensions.
    """

    task: RetrievalTask = RetrievalTask()
    network: Network = Network()
    seeds: Places = (0, 1, 2, 3, 4)
    iterations: Count = 2500
    batch: Count = 128
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 1e-6
    evaluate_every: Count = 250

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


def compatible(a: Experiment, b: Experiment) -> bool:
    """Whether two experiments can be trained as one ensemble: equal shapes, depth and optimisation.

    Mask, encoding, residual connections, answers, inputs, number of classes and seeds may differ.
    """
    return _shape(a) == _shape(b)


def _shape(one: Experiment) -> tuple[float, ...]:
    task = (one.task.items, one.task.dimension, one.task.labels)
    steps = (one.iterations, one.batch, one.learning_rate, one.weight_decay, one.evaluate_every)
    return (*task, one.network.depth, *steps)
