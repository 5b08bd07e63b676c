"""The in-context retrieval task: which label stood beside the item of the query's class?

    x₁, y₁, x₂, y₂, …, x_n, y_n, x_query     →     the label of x_query's class

(Reddy 2024; Wu et al. 2025, Section 5, Appendices J and L.) A sequence shows n/B classes, each in B of its
items. An item of class k is (μ_k + γη)/√(1 + γ²), μ_k and η normal with variance 1/d per component (Gaussian
mixture), or (μ_k + λω)/√(1 + λ²), the same at every occurrence, with one direction ω for all classes (fixed
vocabulary). Training shows K classes whose labels never change; tests show new classes, whose labels can only
be read off the context.

    >>> task = RetrievalTask(items=4, burstiness=2, classes=8, labels=4, dimension=6)
    >>> world = make_world(task, seed=0)
    >>> batch = training_batch(task, world, seed=0, iteration=0, size=3)
    >>> tuple(batch.tokens.shape), tuple(batch.target.shape)      # 2·4 + 1 tokens
    ((3, 9, 6), (3,))
    >>> test = paired_tests(task, world, seed=0, first=0, second=3, size=5)     # [0, 3] and [3, 0]
    >>> bool((test.first.tokens[:, 0] == test.first.tokens[:, 6]).all())        # items 0 and 3 are one vector
    True

A batch is a function of seed and iteration alone: a run can be resumed anywhere, and a member of an ensemble
sees what it would see alone.
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
TESTS = 2**62
"""Added to the number of a test's stream, so that no training iteration shares it."""


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


def training_batch(task: RetrievalTask, world: World, seed: int, iteration: int, size: int) -> Batch:
    """Batch number `iteration`: known classes, the answer at a random allowed item."""
    from posbias.train.feed import Feed

    tokens, target = Feed([task], [world], [seed], size).batch(iteration)
    return Batch(tokens[0], target[0])


def paired_tests(
    task: RetrievalTask, world: World, seed: int, first: int, second: int, size: int, number: int = 0
) -> PairedTests:
    """Tests [first, second] and [second, first] with new classes. `number` tells sets of one seed apart."""
    centres, slots, kind_labels, rng = _novel(task, seed, (first, second, number), size)
    labels = kind_labels.gather(1, slots)
    noise = torch.randn(size, task.items + 1, task.dimension, generator=rng) * task.deviation

    def test(right: int, other: int) -> Batch:
        classes = torch.cat([slots, slots[:, right : right + 1]], dim=1)
        drawn = centres.gather(1, classes[:, :, None].expand(-1, -1, task.dimension))
        items = _mix(task, world, drawn, noise)
        items[:, other] = items[:, right]
        return Batch(_interleave(items, world.label_vectors[labels]), labels[:, right])

    return PairedTests(test(first, second), test(second, first), labels[:, first] != labels[:, second])


def novel_tests(
    task: RetrievalTask, world: World, seed: int, size: int, answer: int | None = None, number: int = 0
) -> Batch:
    """Sequences of new classes that ask for the class of item `answer`; None: of a random item."""
    centres, slots, kind_labels, rng = _novel(task, seed, (task.items, 0, number), size)
    labels = kind_labels.gather(1, slots)
    places = torch.randint(task.items, (size,), generator=rng)
    if answer is not None:
        places = torch.full_like(places, answer)
    classes = torch.cat([slots, slots.gather(1, places[:, None])], dim=1)
    drawn = centres.gather(1, classes[:, :, None].expand(-1, -1, task.dimension))
    items = _vectors(task, world, drawn, rng)
    return Batch(_interleave(items, world.label_vectors[labels]), labels.gather(1, places[:, None])[:, 0])


def _novel(task: RetrievalTask, seed: int, place: tuple[int, ...], size: int):
    """New classes for every sequence: centres [sequence, kind, dimension], who is where, labels of kinds."""
    rng = generator(seed, "train/test", *place)
    centres = torch.randn(size, task.kinds, task.dimension, generator=rng) * task.deviation
    kind_labels = torch.randint(task.labels, (size, task.kinds), generator=rng)
    return centres, slots(task, size, rng), kind_labels, rng


def slots(task: RetrievalTask, size: int, rng: torch.Generator) -> Int[Tensor, "sequence item"]:
    """Which of a sequence's classes stands at which item: each B times, in random order."""
    return torch.rand(size, task.items, generator=rng, device=rng.device).argsort(dim=1) % task.kinds


def _vectors(task: RetrievalTask, world: World, centres: Tensor, rng: torch.Generator) -> Tensor:
    if task.inputs == "fixed_vocabulary":
        return _mix(task, world, centres, None)
    return _mix(task, world, centres, torch.randn(centres.shape, generator=rng) * task.deviation)


def _mix(task: RetrievalTask, world: World, centres: Tensor, noise: Tensor | None) -> Tensor:
    """Items from class centres: (μ + γη)/√(1 + γ²), or (μ + λω)/√(1 + λ²)."""
    kept, other = task.shares
    if task.inputs == "fixed_vocabulary":
        return kept * centres + other * world.direction
    assert noise is not None
    return kept * centres + other * noise


def _interleave(items: Tensor, labels: Tensor) -> Float[Tensor, "sequence token dimension"]:
    """x₁, y₁, …, x_n, y_n, x_query from n + 1 items and n labels."""
    size, n, dimension = labels.shape
    tokens = items.new_empty(size, 2 * n + 1, dimension)
    tokens[:, 0::2] = items
    tokens[:, 1::2] = labels
    return tokens
