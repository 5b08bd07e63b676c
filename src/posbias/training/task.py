"""The in-context retrieval task: which label stood beside the item of the query's class?

    x₁, y₁, x₂, y₂, …, x_n, y_n, x_query     →     the label of x_query's class

(Reddy 2024; Wu et al. 2025, Section 5, Appendices J and L.) A sequence shows n/B classes, each in B of its
items. An item of class k is (μ_k + γη)/√(1 + γ²), μ_k and η normal with variance 1/d per component (Gaussian
mixture), or (μ_k + λω)/√(1 + λ²), the same at every occurrence, with one direction ω for all classes (fixed
vocabulary). Training shows K classes whose labels never change; tests show new classes, whose labels can only
be read off the context.

    >>> task = RetrievalTask(items=4, burstiness=2, classes=8, labels=4, dimension=6)
    >>> world = make_world(task, seed=0)
    >>> test = paired_tests(task, world, seed=0, first=0, second=3, size=5)     # [0, 3] and [3, 0]
    >>> tuple(test.first.tokens.shape), tuple(test.first.target.shape)      # 2·4 + 1 tokens
    ((5, 9, 6), (5,))
    >>> bool((test.first.tokens[:, 0] == test.first.tokens[:, 6]).all())        # items 0 and 3 are one vector
    True

Training batches are made by `feed`.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BeforeValidator
from torch import Tensor

from posbias.errors import InvalidValueError
from posbias.seeds import sequence
from posbias.spec import Count, NaturalNumber, NonNegative, value


def _listed(given: Any) -> Any:
    """A list as a tuple. Raises `ValueError` for anything else, and for an empty one."""
    if not isinstance(given, list | tuple):
        raise ValueError(f"{given!r} given, a list of integers from 0, such as [0, 1, 2], needed")
    if not given:
        raise ValueError("an empty list given, one integer from 0 or more needed")
    return tuple(given)


Places = Annotated[tuple[NaturalNumber, ...], BeforeValidator(_listed)]
"""One or more integers from 0."""
PAIRS = (("first", "middle"), ("first", "last"), ("middle", "last"))
"""The pairs of items whose accuracies are compared, as `RetrievalTask.places` names them."""


@value
class RetrievalTask:
    """The data: `items` n of `dimension` d, `classes` K with `labels` L, `burstiness` B, and how they vary.

    `inputs` is "gaussian_mixture" with `within_class_noise` γ or "fixed_vocabulary" with `shared_direction` λ.
    `answers` restricts which items (from 0) training queries ask for, each equally often; None: all.
    `embedding` is "variance" 1/d (the paper) or "deviation" 1/d (the authors' code: shorter by √d). `middle` is
    the item that tests call the middle; None: n/2, the fifth of eight as in the authors' code.
    Raises `InvalidValueError` for n that B does not divide, more labels than classes, more classes in a
    sequence than there are, or an item outside.
    """

    items: Count = 8
    dimension: Count = 64
    classes: Count = 2048
    labels: Count = 32
    burstiness: Count = 4
    inputs: Literal["gaussian_mixture", "fixed_vocabulary"] = "gaussian_mixture"
    within_class_noise: NonNegative = 0.75
    shared_direction: NonNegative = 0.75
    answers: Places | None = None
    embedding: Literal["variance", "deviation"] = "variance"
    middle: NaturalNumber | None = None

    def __post_init__(self):
        if self.items % self.burstiness:
            raise InvalidValueError(
                f"burstiness: {self.burstiness} given, a divisor of items = {self.items} needed"
            )
        if self.labels > self.classes:
            raise InvalidValueError(f"labels: {self.labels} given, at most classes = {self.classes} needed")
        if self.kinds > self.classes:
            raise InvalidValueError(
                f"classes: {self.classes} given, at least items / burstiness = {self.kinds} needed"
            )
        if self.answers is not None and len(set(self.answers)) < len(self.answers):
            raise InvalidValueError(f"answers: {list(self.answers)} given, different items needed")
        for name, places in (("answers", self.answers or ()), ("middle", (self.middle or 0,))):
            for place in places:
                if place >= self.items:
                    raise InvalidValueError(
                        f"{name}: {place} given, an item from 0 to {self.items - 1} needed"
                    )

    @property
    def kinds(self) -> int:
        """Classes per sequence, n/B."""
        return self.items // self.burstiness

    @property
    def tokens(self) -> int:
        """Tokens per sequence, 2n + 1."""
        return 2 * self.items + 1

    @property
    def deviation(self) -> float:
        """Standard deviation of a component of an embedding."""
        return 1.0 / self.dimension if self.embedding == "deviation" else 1.0 / math.sqrt(self.dimension)

    @property
    def shares(self) -> tuple[float, float]:
        """What centre and noise (or shared direction) are multiplied by: 1/√(1 + γ²) and γ/√(1 + γ²)."""
        fixed = self.inputs == "fixed_vocabulary"
        weight = self.shared_direction if fixed else self.within_class_noise
        return 1.0 / math.hypot(1.0, weight), weight / math.hypot(1.0, weight)

    @property
    def places(self) -> dict[str, int]:
        """The items that tests call first, middle and last."""
        middle = self.items // 2 if self.middle is None else self.middle
        return {"first": 0, "middle": middle, "last": self.items - 1}


@dataclass(frozen=True)
class World:
    """What a run's sequences are made of: class centres μ, their labels, the labels' vectors, ω."""

    centres: Float[Tensor, "label_class dimension"]
    class_labels: Int[Tensor, "label_class"]
    label_vectors: Float[Tensor, "label dimension"]
    direction: Float[Tensor, "dimension"]


@dataclass(frozen=True)
class Batch:
    """Sequences and what is to be answered."""

    tokens: Float[Tensor, "sequence token dimension"]
    target: Int[Tensor, "sequence"]


@dataclass(frozen=True)
class PairedTests:
    """Tests [a, b] (`first`) and [b, a] (`second`) of the same sequences: same classes, labels and noise.

    In [a, b] item b is made the vector of item a, whose class is asked for; `informative` says where the two
    items' labels differ, so that the two answers do.
    """

    first: Batch
    second: Batch
    informative: Bool[Tensor, "sequence"]


def generator(seed: int, name: str, *place: int, device: str = "cpu") -> torch.Generator:
    """A torch generator for part `place` of the stream `name`."""
    state = sequence(seed, name, *place).generate_state(2, "uint32")
    return torch.Generator(device).manual_seed((int(state[0]) << 32 | int(state[1])) >> 1)


def make_world(task: RetrievalTask, seed: int) -> World:
    """Draw the classes, labels and vectors of one run."""
    rng = generator(seed, "train/world")
    shape, spread = (task.dimension,), task.deviation
    return World(
        centres=torch.randn(task.classes, *shape, generator=rng) * spread,
        class_labels=torch.randint(task.labels, (task.classes,), generator=rng),
        label_vectors=torch.randn(task.labels, *shape, generator=rng) * spread,
        direction=torch.randn(*shape, generator=rng) * spread,
    )


def paired_tests(
    task: RetrievalTask, world: World, seed: int, first: int, second: int, size: int, number: int = 0
) -> PairedTests:
    """Tests [first, second] and [second, first] with new classes. `number` tells sets of one seed apart."""
    classes = _new_classes(task, seed, (first, second, number), size)
    noise = torch.randn(size, task.items + 1, task.dimension, generator=classes.rng) * task.deviation

    def test(right: int, other: int) -> Batch:
        asked = torch.full((size, 1), right)
        return _sequences(task, world, classes, asked, noise, twin=other)

    labels = classes.labels
    return PairedTests(test(first, second), test(second, first), labels[:, first] != labels[:, second])


def novel_tests(
    task: RetrievalTask, world: World, seed: int, size: int, answer: int | None = None, number: int = 0
) -> Batch:
    """Sequences of new classes that ask for the class of item `answer`; None: of a random item."""
    classes = _new_classes(task, seed, (task.items, 0, number), size)
    asked = torch.randint(task.items, (size, 1), generator=classes.rng)
    if answer is not None:
        asked = torch.full_like(asked, answer)
    noise = torch.randn(size, task.items + 1, task.dimension, generator=classes.rng) * task.deviation
    return _sequences(task, world, classes, asked, noise)


def slots(task: RetrievalTask, size: int, rng: torch.Generator) -> Int[Tensor, "sequence item"]:
    """Which of a sequence's classes stands at which item: each B times, in random order."""
    return torch.rand(size, task.items, generator=rng, device=rng.device).argsort(dim=1) % task.kinds


@dataclass(frozen=True)
class _NewClasses:
    """New classes of every sequence, which of them stands at which item, the items' labels, and what draws on."""

    centres: Float[Tensor, "sequence kind dimension"]
    slots: Int[Tensor, "sequence item"]
    labels: Int[Tensor, "sequence item"]
    rng: torch.Generator


def _new_classes(task: RetrievalTask, seed: int, place: tuple[int, ...], size: int) -> _NewClasses:
    rng = generator(seed, "train/test", *place)
    centres = torch.randn(size, task.kinds, task.dimension, generator=rng) * task.deviation
    kind_labels = torch.randint(task.labels, (size, task.kinds), generator=rng)
    placed = slots(task, size, rng)
    return _NewClasses(centres, placed, kind_labels.gather(1, placed), rng)


def _sequences(
    task: RetrievalTask,
    world: World,
    classes: _NewClasses,
    asked: Int[Tensor, "sequence 1"],
    noise: Float[Tensor, "sequence shown dimension"],
    twin: int | None = None,
) -> Batch:
    """x₁, y₁, …, x_n, y_n, x_query with a query of the class of item `asked`.

    Items are (μ + γη)/√(1 + γ²), or (μ + λω)/√(1 + λ²) without noise; item `twin` becomes equal to `asked`.
    """
    shown = torch.cat([classes.slots, classes.slots.gather(1, asked)], dim=1)
    centres = classes.centres.gather(1, shown[:, :, None].expand(-1, -1, task.dimension))
    kept, other = task.shares
    items = kept * centres + other * (world.direction if task.inputs == "fixed_vocabulary" else noise)
    if twin is not None:
        items[:, twin] = items[torch.arange(len(items)), asked[:, 0]]
    tokens = items.new_empty(len(items), task.tokens, task.dimension)
    tokens[:, 0::2] = items
    tokens[:, 1::2] = world.label_vectors[classes.labels]
    return Batch(tokens, classes.labels.gather(1, asked)[:, 0])
