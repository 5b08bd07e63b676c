"""The settings that have to be trained for Figures 2 to 24, and what is spent on each.

A setting belongs to no figure: those that figures share are trained once. The paper does not print which depths
its residual networks have beyond 6, nor which networks its sinks are measured on: `DEEP` and, for Figures 9 to
12, depth 2 without and with residual connections are ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

from posbias.core.errors import one_of, whole
from posbias.core.spec import value
from posbias.theory.masks import Causal, Mask, Prefix, SlidingWindow

if TYPE_CHECKING:
    from posbias.training.experiments import Experiment
    from posbias.training.network import Network
    from posbias.training.task import RetrievalTask

Inputs = Literal["gaussian_mixture", "fixed_vocabulary"]
Embedding = Literal["variance", "deviation"]
"""Whether 1/d is the variance of an embedding's components (the paper's text) or their deviation (its code)."""
TestDirection = Literal["training", "drawn"]
"""Whether tests of a fixed vocabulary share the direction of training (the text) or another (the code)."""
EMBEDDINGS: dict[Embedding, str] = {
    "variance": "embeddings as in the text",
    "deviation": "embeddings as in the code",
}
"""What pages and verdicts call them."""
DEPTHS = (2, 4, 6)
DEEP = (2, 4, 6, 8, 10)
"""Depths of Figures 5 and 14."""
SHARED = 0.75
"""λ of the fixed vocabulary."""
ABSOLUTE = {"none": "none", "sinusoidal": "sin", "rope": "RoPE"}
"""Encodings of the figures on biased training."""
NORMALISERS = ("softmax", "off_by_one", "learned_sink", "relu", "sigmoid")
"""What makes rows of attention; the figures have the softmax."""


@value
class Setting:
    """One setting: the network, the items that training asks for (none: all) and the inputs.

    `shared_direction` is λ of a fixed vocabulary, by default the paper's.
    """

    depth: int = 2
    residual: bool = True
    mask: Mask = field(default_factory=Causal)
    positional: str = "none"
    answers: tuple[str, ...] = ()
    inputs: Inputs = "gaussian_mixture"
    normaliser: str = "softmax"
    shared_direction: float = SHARED

    @property
    def network(self) -> "Network":
        """The network to train."""
        from posbias.training.attention import NORMALISERS
        from posbias.training.network import ENCODINGS, Network

        rows = NORMALISERS[self.normaliser]
        return Network(self.depth, self.residual, self.mask, ENCODINGS[self.positional], rows)

    def task(self, middle: int | None = None) -> "RetrievalTask":
        """What it is trained on where this item, from 0, is the middle one (None: the code's, the fifth)."""
        from posbias.training.task import RetrievalTask

        task = RetrievalTask(inputs=self.inputs, middle=middle, shared_direction=self.shared_direction)
        return replace(task, answers=tuple(task.places[name] for name in self.answers) or None)

    @property
    def row(self) -> str:
        """The row of a figure that it stands in."""
        return "with residual" if self.residual else "no residual"

    @property
    def masked(self) -> str:
        """Its mask: 'causal', 'window 5'."""
        size = {SlidingWindow: "width", Prefix: "length"}.get(type(self.mask))
        kind = self.mask.kind.replace("sliding_", "")
        return f"{kind} {getattr(self.mask, size)}" if size else kind

    def __str__(self) -> str:
        residual = "residual" if self.residual else "no residual"
        words = [self.masked, self.positional, f"depth {self.depth}", residual]
        words += [self.normaliser] if self.normaliser != "softmax" else []
        words += [f"trained on {' and '.join(self.answers)}"] if self.answers else []
        words += ["fixed vocabulary"] * (self.inputs == "fixed_vocabulary")
        usual = self.shared_direction == SHARED
        return ", ".join(words if usual else [*words, f"λ = {self.shared_direction:g}"])


@dataclass(frozen=True)
class Effort:
    """How much is spent on a setting: how many networks (seeds from 0 on), iterations by depth, test sequences.

    `vocabulary` are the iterations where inputs are a fixed vocabulary, if these are others; `middle` is the item,
    from 0, that is called the middle one (None: the code's, the fifth); `embedding` how embeddings are drawn,
    `test_direction` which direction a fixed vocabulary shares in tests.
    """

    networks: int
    iterations: Mapping[int, int]
    sequences: int
    vocabulary: Mapping[int, int] | None = None
    middle: int | None = None
    embedding: Embedding = "deviation"
    test_direction: TestDirection = "training"

    @property
    def name(self) -> str:
        """'quick', 'full', '25,000 iterations, 3 networks'."""
        amount = self.iterations, self.networks
        words = [name for name, one in EFFORT.items() if (one.iterations, one.networks) == amount]
        if not words:
            least, most = (f"{pick(self.iterations.values()):,}" for pick in (min, max))
            steps = least if least == most else f"{least} to {most}"
            words = [f"{steps} iterations, {self.networks} networks"]
        words += [] if self.middle is None else [f"middle item {self.middle}"]
        return ", ".join(words)

    def steps(self, setting: Setting) -> int:
        """The iterations that a setting gets."""
        if self.vocabulary is not None and setting.inputs == "fixed_vocabulary":
            return self.vocabulary[setting.depth]
        return self.iterations[setting.depth]

    def amount(self, settings: Iterable[Setting]) -> tuple[int, int, int]:
        """How much it is for some settings, to compare with others: least iterations, networks, sequences."""
        return min(map(self.steps, settings)), self.networks, self.sequences

    def minutes(self, settings: Iterable[Setting]) -> float:
        """What training some settings takes on two cores, about: a step of a network is the dearer the deeper."""
        costs = (self.steps(one) * self.networks * one.depth * (1.0 + 0.08 * one.depth) for one in settings)
        return round(2e-5 * sum(costs), 1)

    def experiment(self, setting: Setting) -> "Experiment":
        """The setting as something that can be trained."""
        from posbias.training.experiments import Experiment

        task = replace(setting.task(self.middle), embedding=self.embedding)
        if setting.inputs == "fixed_vocabulary":
            task = replace(task, test_direction=self.test_direction)
        seeds = tuple(range(self.networks))
        return Experiment(task, setting.network, seeds=seeds, iterations=self.steps(setting))


QUICK = Effort(
    3,
    {2: 5000, 4: 4000, 6: 3000, 8: 2000, 10: 1500},
    2000,
    vocabulary={2: 2000, 4: 2000, 6: 2000, 8: 1200, 10: 1000},
)
"""Twenty minutes for Figure 2 on two cores, an hour and a half for all: most networks have learnt to copy a label
of their context, no more. With a fixed vocabulary they have after fewer iterations."""
FULL = Effort(5, dict.fromkeys(DEEP, 100_000), 10_000)
"""The paper's."""
EFFORT = {"quick": QUICK, "full": FULL}


def effort_of(
    effort: "str | int | Effort",
    networks: int | None = None,
    middle: int | None = None,
    embedding: Embedding = "deviation",
    test_direction: TestDirection = "training",
) -> Effort:
    """An effort by name, or of this many iterations at every depth, with this many networks and this middle item.

    By default the middle item and embeddings are those of the authors' code, tests those of the text: the code's
    test direction is "drawn", the text's middle item 3 (from 0, the code's 4) and embedding variance. Raises
    `InvalidValueError` for another name, for iterations or networks < 1, and for an item outside, the first and
    the last.
    """
    if isinstance(effort, int):
        effort = replace(FULL, iterations=dict.fromkeys(DEEP, whole("effort", effort, 1)))
    elif isinstance(effort, str):
        effort = EFFORT[one_of("effort", effort, EFFORT)]
    if middle is not None:
        from posbias.training.probes import compared
        from posbias.training.task import RetrievalTask

        compared(RetrievalTask(middle=middle))
        effort = replace(effort, middle=None if middle == RetrievalTask().places["middle"] else middle)
    networks = effort.networks if networks is None else whole("networks", networks, 1)
    one_of("embedding", embedding, get_args(Embedding))
    one_of("test_direction", test_direction, get_args(TestDirection))
    return replace(effort, networks=networks, embedding=embedding, test_direction=test_direction)
