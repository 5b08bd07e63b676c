"""The settings that have to be trained for Figures 2 to 24, and what is spent on each.

A setting belongs to no figure: those that figures share are trained once. The paper does not print which depths
its residual networks have beyond 6, nor which networks its sinks are measured on: `DEEP` and, for Figures 9 to
12, depth 2 without and with residual connections are ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from posbias.core.errors import whole
from posbias.core.spec import decode
from posbias.theory.masks import Causal, Mask, Prefix, SlidingWindow

if TYPE_CHECKING:
    from posbias.training.experiments import Experiment
    from posbias.training.network import Network
    from posbias.training.task import RetrievalTask

Inputs = Literal["gaussian_mixture", "fixed_vocabulary"]
DEPTHS = (2, 4, 6)
DEEP = (2, 4, 6, 8, 10)
"""Depths of Figures 5 and 14."""
RELATIVE = {"none": "no encoding", "decay": "decay mask", "rope": "RoPE"}
"""Encodings of the depth figures, and what panels call them."""
SHARED = 0.75
"""λ of the fixed vocabulary."""
ABSOLUTE = {"none": "none", "sinusoidal": "sin", "rope": "RoPE"}
"""Encodings of the figures on biased training."""
NORMALISERS = {
    "softmax": "Softmax",
    "off_by_one": "Softmax with a sink of logit 0",
    "learned_sink": "Softmax with a learned sink",
    "relu": "ReLU",
    "sigmoid": "Sigmoid",
}
"""What makes rows of attention, and how claims begin; the figures have the softmax."""


@dataclass(frozen=True)
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

    @property
    def task(self) -> "RetrievalTask":
        """What it is trained on, the middle item being the code's."""
        return self.task_of(None)

    def task_of(self, middle: int | None) -> "RetrievalTask":
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


def setting_of(specification: Mapping[str, Any]) -> Setting:
    """The setting of an experiment by its specification, as a record has it; torch need not be there."""
    network, task = specification["network"], specification["task"]
    rows, encoding = network.get("normaliser", {"kind": "softmax"}), network["positional"]["kind"]
    sink = "learned_sink" if rows.get("learned") else "off_by_one"
    return Setting(
        network["depth"],
        network["residual"],
        decode(Mask, network["mask"]),  # type: ignore[arg-type]
        str({"nope": "none", "rotary": "rope"}.get(encoding, encoding)),
        tuple({0: "first", 4: "middle", 7: "last"}[item] for item in task["answers"] or ()),
        task["inputs"],
        sink if rows["kind"] == "sink_softmax" else rows["kind"],
        task["shared_direction"],
    )


@dataclass(frozen=True)
class Effort:
    """How much is spent on a setting: seeds, iterations by depth, test sequences.

    `vocabulary` are the iterations where inputs are a fixed vocabulary, if these are others; `middle` is the item,
    from 0, that is called the middle one (None: the code's, the fifth).
    """

    name: str
    seeds: tuple[int, ...]
    iterations: Mapping[int, int]
    sequences: int
    vocabulary: Mapping[int, int] | None = None
    middle: int | None = None

    def steps(self, setting: Setting) -> int:
        """The iterations that a setting gets."""
        if self.vocabulary is not None and setting.inputs == "fixed_vocabulary":
            return self.vocabulary[setting.depth]
        return self.iterations[setting.depth]

    def amount(self, settings: Iterable[Setting]) -> tuple[int, int, int]:
        """How much it is for some settings, to compare with others: least iterations, networks, sequences."""
        return min(map(self.steps, settings)), len(self.seeds), self.sequences

    def experiment(self, setting: Setting) -> "Experiment":
        """The setting as something that can be trained."""
        from posbias.training.experiments import Experiment

        task, iterations = setting.task_of(self.middle), self.steps(setting)
        return Experiment(task, setting.network, seeds=self.seeds, iterations=iterations)

    def with_middle(self, middle: int) -> "Effort":
        """The same where another item, from 0, is the middle one: the text's is 3, the fourth.

        Its name says so. Raises `InvalidValueError` for an item outside, and for the first and the last.
        """
        from posbias.training.probes import compared
        from posbias.training.task import RetrievalTask

        compared(RetrievalTask(middle=middle))
        if middle == RetrievalTask().places["middle"]:
            return replace(self, middle=None)
        return replace(self, name=f"{self.name}, middle item {middle}", middle=middle)


QUICK = Effort(
    "quick",
    (0, 1, 2),
    {2: 2500, 4: 2000, 6: 1500, 8: 1000, 10: 750},
    2000,
    vocabulary={2: 1000, 4: 1000, 6: 1000, 8: 600, 10: 500},
)
"""Fifteen minutes for Figure 2 on two cores, less than an hour for all: networks have learnt to copy a label of
their context, no more. With a fixed vocabulary they have after fewer iterations."""
FULL = Effort("full", (0, 1, 2, 3, 4), dict.fromkeys(DEEP, 100_000), 10_000)
"""The paper's."""
EFFORT = {"quick": QUICK, "full": FULL}


def effort_of(iterations: int, networks: int | None = None, sequences: int = FULL.sequences) -> Effort:
    """The effort of this many iterations at every depth; networks (default: 5) and sequences as at the full one.

    Raises `InvalidValueError` for iterations or networks < 1.
    """
    steps: Mapping[int, int] = dict.fromkeys(DEEP, whole("effort", iterations, 1))
    seeds = FULL.seeds if networks is None else tuple(range(whole("networks", networks, 1)))
    if (steps, seeds, sequences) == (FULL.iterations, FULL.seeds, FULL.sequences):
        return FULL
    return Effort(f"{iterations:,} iterations, {len(seeds)} networks", seeds, steps, sequences)
