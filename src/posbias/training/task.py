"""The in-context retrieval task: which label followed the item of the query's class?

    x₁, y₁, x₂, y₂, …, x_n, y_n, x_query     →     the label of x_query's class

(Reddy 2024; Wu et al. 2025, Section 5, Appendices J and L.) A sequence shows n/B classes, each in B of its
items. An item of class k is (μ_k + γη)/√(1 + γ²), μ_k and η normal with variance 1/d per component (Gaussian
mixture), or (μ_k + λω)/√(1 + λ²), the same at every occurrence, with one direction ω for all classes (fixed
vocabulary). Training shows K classes whose labels never change; tests show new classes, whose labels can only
be read off the context.

    >>> task = RetrievalTask(items=4, burstiness=2, classes=8, labels=4, dimension=6)
    >>> world = make_world(task, seeds=(0, 1))
    >>> test = novel_sequences(task, world, number=1, rows=5).paired(0, 3)      # [0, 3] and [3, 0]
    >>> tuple(test.first.tokens.shape), tuple(test.first.target.shape)      # 2·4 + 1 tokens
    ((2, 5, 9, 6), (2, 5))
    >>> bool((test.first.tokens[:, :, 0] == test.first.tokens[:, :, 6]).all())      # items 0 and 3 are one vector
    True

All numbers are functions of seed, name, number and row (`philox`): a member's data are the same alone and among
others, here and on another device. A `Feed` writes the training batches of many
members straight into one tensor.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posbias.core.errors import wrong
from posbias.core.spec import Count, NaturalNumber, Naturals, NonNegative, later, value
from posbias.training.philox import Draws, below

Tokens = Float[Tensor, "member sequence token dimension"]
Vectors = Float[Tensor, "member sequence item dimension"]
Items = Int[Tensor, "member sequence item"]
Kinds = Int[Tensor, "member sequence kind"]
Sequences = Int[Tensor, "member sequence"]
PAIRS = (("first", "middle"), ("first", "last"), ("middle", "last"))
"""The pairs of items whose accuracies are compared, as `RetrievalTask.places` names them."""
BLOCK = 250
"""Sequences per member tested at once; their number changes nothing but memory and, by rounding, last digits."""


@value
class RetrievalTask:
    """The data: `items` n of `dimension` d, `classes` K with `labels` L, `burstiness` B, and how they vary.

    `inputs` is "gaussian_mixture" with `within_class_noise` γ or "fixed_vocabulary" with `shared_direction` λ.
    `answers` restricts which items (from 0) training queries ask for, each equally often; None: all.
    `embedding` is "variance" 1/d (the paper) or "deviation" 1/d (the authors' code: shorter by √d). `middle` is
    the item that tests call the middle; None: n/2, the fifth of eight as in the authors' code. `test_direction`
    is the ω of a fixed vocabulary in tests: that of "training", or another, "drawn" for each test (the code).
    Raises `InvalidValueError` for n that B does not divide, a single label, more labels than classes,
    more classes in a sequence than there are, an item outside, or a drawn direction where none is shared.
    """

    items: Count = 8
    dimension: Count = 64
    classes: Count = 2048
    labels: Count = 32
    burstiness: Count = 4
    inputs: Literal["gaussian_mixture", "fixed_vocabulary"] = "gaussian_mixture"
    within_class_noise: NonNegative = 0.75
    shared_direction: NonNegative = 0.75
    answers: Naturals | None = None
    embedding: Literal["variance", "deviation"] = "variance"
    middle: NaturalNumber | None = None
    test_direction: Literal["training", "drawn"] = later(default="training")

    def __post_init__(self):
        if self.items % self.burstiness:
            raise wrong("burstiness", f"a divisor of items = {self.items}", self.burstiness)
        if self.labels < 2:
            raise wrong("labels", "at least 2 to tell apart", self.labels)
        if self.labels > self.classes:
            raise wrong("labels", f"at most classes = {self.classes}", self.labels)
        if self.kinds > self.classes:
            raise wrong("classes", f"at least items / burstiness = {self.kinds}", self.classes)
        if self.answers is not None and len(set(self.answers)) < len(self.answers):
            raise wrong("answers", "different items", list(self.answers))
        if self.test_direction == "drawn" and self.inputs != "fixed_vocabulary":
            raise wrong("test_direction", f"training with inputs {self.inputs!r}", got="'drawn'")
        for name, places in (("answers", self.answers or ()), ("middle", (self.middle or 0,))):
            for place in places:
                if place >= self.items:
                    raise wrong(name, f"an item from 0 to {self.items - 1}", place)

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
    """What the sequences of every member are made of: class centres μ, their labels, the labels' vectors, ω."""

    seeds: tuple[int, ...]
    centres: Float[Tensor, "member label_class dimension"]
    class_labels: Int[Tensor, "member label_class"]
    label_vectors: Float[Tensor, "member label dimension"]
    direction: Float[Tensor, "member dimension"]


@dataclass(frozen=True)
class Batch:
    """Sequences and what is to be answered."""

    tokens: Tokens
    target: Sequences


@dataclass(frozen=True)
class PairedTests:
    """Tests [a, b] (`first`) and [b, a] (`second`) of the same sequences: same classes, labels and noise.

    In [a, b] item b is made the vector of item a, whose class is asked for; `informative` says where the two
    items' labels differ, so that the two answers do.
    """

    first: Batch
    second: Batch
    informative: Bool[Tensor, "member sequence"]


@dataclass(frozen=True)
class Novel:
    """Sequences of classes that training never shows: which stands at which item, labels, noise, a random item."""

    task: RetrievalTask
    world: World
    centres: Float[Tensor, "member sequence kind dimension"]
    slots: Items
    labels: Items
    noise: Float[Tensor, "member sequence shown dimension"]
    anywhere: Sequences

    def asking(self, item: int | None = None) -> Batch:
        """The sequences with a query of the class of `item`; None: of a random item."""
        return self._batch(self.anywhere if item is None else torch.full_like(self.anywhere, item))

    def paired(self, first: int, second: int) -> PairedTests:
        """Tests [first, second] and [second, first]."""
        one, other = (torch.full_like(self.anywhere, item) for item in (first, second))
        informative = self.labels[..., first] != self.labels[..., second]
        return PairedTests(self._batch(one, twin=second), self._batch(other, twin=first), informative)

    def _batch(self, asked: Sequences, twin: int | None = None) -> Batch:
        """x₁, y₁, …, x_n, y_n, x_query with a query of the class of item `asked`; `twin` becomes equal to that.

        Items are (μ + γη)/√(1 + γ²), or (μ + λω)/√(1 + λ²) without noise.
        """
        task, asked = self.task, asked[..., None]
        shown = torch.cat([self.slots, self.slots.gather(2, asked)], dim=2)
        centres = self.centres.gather(2, shown[..., None].expand(-1, -1, -1, task.dimension))
        kept, other = task.shares
        fixed = task.inputs == "fixed_vocabulary"
        items = kept * centres + other * (self.world.direction[:, None, None] if fixed else self.noise)
        if twin is not None:
            place = asked[..., None].expand(-1, -1, -1, task.dimension)
            items[:, :, twin] = items.gather(2, place)[:, :, 0]
        return Batch(
            interleaved(items, labelled(self.world, self.labels)), self.labels.gather(2, asked)[..., 0]
        )


def make_world(task: RetrievalTask, seeds: Sequence[int], device: str = "cpu") -> World:
    """Draw the classes, labels and vectors of every seed."""

    def normals(name: str, rows: int) -> Tensor:
        return Draws(seeds, name, device=device).normals(0, rows, task.dimension) * task.deviation

    class_labels = Draws(seeds, "train/class-labels", device=device).below(task.labels, 0, 1, task.classes)
    return World(
        seeds=tuple(seeds),
        centres=normals("train/centres", task.classes),
        class_labels=class_labels[:, 0],
        label_vectors=normals("train/label-vectors", task.labels),
        direction=normals("train/direction", 1)[:, 0],
    )


def novel_sequences(
    task: RetrievalTask, world: World, number: int, rows: int, start: int = 0, place: tuple[int, ...] = ()
) -> Novel:
    """Sequences `start`, `start` + 1, … of the test set `number`, `rows` of them, for every member.

    `place` tells apart what is drawn for different tests of one set.
    """
    device = str(world.direction.device)

    def drawn(name: str) -> Draws:
        return Draws(world.seeds, f"train/test-{name}", *place, device=device)

    def normals(name: str, count: int) -> Tensor:
        flat = drawn(name).normals(number, rows, count * task.dimension, start)
        return flat.unflatten(2, (count, task.dimension)) * task.deviation

    words = drawn("sequences").words(number, rows, task.kinds + task.items + 1, start)
    by_kind, order, asked = words.split([task.kinds, task.items, 1], dim=2)
    placed = slots(task, order)
    labels = below(task.labels, by_kind).gather(2, placed)
    centres, noise = normals("centres", task.kinds), normals("noise", task.items + 1)
    if task.test_direction == "drawn":
        direction = drawn("direction").normals(number, 1, task.dimension)[:, 0] * task.deviation
        world = replace(world, direction=direction)
    return Novel(task, world, centres, placed, labels, noise, below(task.items, asked)[..., 0])


def blocks_of(sequences: int) -> Iterator[tuple[int, int]]:
    """First sequence and size of the blocks of `BLOCK` in which so many sequences are drawn and answered."""
    for start in range(0, sequences, BLOCK):
        yield start, min(BLOCK, sequences - start)


def slots(task: RetrievalTask, words: Items) -> Items:
    """Which of a sequence's classes stands at which item: each B times, in the order of random words."""
    return words.argsort(dim=2, stable=True) % task.kinds


def labelled(world: World, labels: Items) -> Vectors:
    """The vectors of labels."""
    member = torch.arange(len(labels), device=labels.device)[:, None, None]
    flat = (labels + member * world.label_vectors.shape[1]).flatten()
    return world.label_vectors.flatten(0, 1).index_select(0, flat).view(*labels.shape, -1)


def interleaved(items: Float[Tensor, "member sequence shown dimension"], labels: Vectors) -> Tokens:
    """x₁, y₁, …, x_n, y_n, x_query of items, the query last, and label vectors."""
    members, size, shown, dimension = items.shape
    tokens = items.new_empty(members, size, 2 * shown - 1, dimension)
    tokens[:, :, 0::2], tokens[:, :, 1::2] = items, labels
    return tokens


class Feed:
    """Batches of `size` sequences for members with `tasks` and `seeds`, on `device`."""

    def __init__(self, tasks: Sequence[RetrievalTask], seeds: Sequence[int], size: int, device: str = "cpu"):
        task = tasks[0]
        self._tokens = torch.empty(len(tasks), size, task.tokens, task.dimension, device=device)
        self._target = torch.empty(len(tasks), size, dtype=torch.long, device=device)
        self._groups = []
        for own, members in itertools.groupby(range(len(tasks)), key=lambda member: tasks[member]):
            first, *others = members
            place = slice(first, first + 1 + len(others))
            self._groups.append((place, _Group(own, seeds[place], size, device)))

    def batch(self, iteration: int | Tensor) -> tuple[Tokens, Sequences]:
        """Tokens and answers of batch number `iteration`; the next call overwrites them."""
        for place, group in self._groups:
            group.fill(iteration, self._tokens[place], self._target[place])
        return self._tokens, self._target


class _Group:
    """Neighbouring members of one task."""

    def __init__(self, task: RetrievalTask, seeds: Sequence[int], size: int, device: str):
        self.task, self.size = task, size
        self.world = world = make_world(task, seeds, device)
        centre, self.noise = task.shares
        vectors = world.centres * centre
        if task.inputs == "fixed_vocabulary":
            vectors += self.noise * world.direction[:, None]
        self.vectors, self.labels = vectors.flatten(0, 1), world.class_labels.flatten()
        self.member = torch.arange(len(seeds), device=device)[:, None, None]
        self.allowed = torch.tensor(task.answers or range(task.items), device=device)
        self.sequences = Draws(seeds, "train/sequences", device=device)
        self.noises = Draws(seeds, "train/noise", device=device)

    def fill(self, iteration: int | Tensor, tokens: Tensor, target: Tensor) -> None:
        """Write the group's batch into `tokens` [member, sequence, token, dimension] and `target`."""
        task = self.task
        classes = self._classes(iteration) + self.member * task.classes
        items = self.vectors.index_select(0, classes.flatten()).view(*classes.shape, task.dimension)
        if task.inputs == "fixed_vocabulary":
            tokens[:, :, 0::2] = items
        else:
            noise = self.noises.normals(iteration, self.size, (task.items + 1) * task.dimension)
            torch.add(items, noise.view_as(items), alpha=self.noise * task.deviation, out=tokens[:, :, 0::2])
        labels = self.labels[classes]
        target.copy_(labels[..., -1])
        tokens[:, :, 1::2] = labelled(self.world, labels[..., :-1])

    def _classes(self, iteration: int | Tensor) -> Int[Tensor, "member sequence shown"]:
        """The class at each item and, at the end, the one that is asked for."""
        task = self.task
        words = self.sequences.words(iteration, self.size, task.kinds + task.items + 1)
        chosen, order, asked = words.split([task.kinds, task.items, 1], dim=2)
        placed = _distinct(task, chosen).gather(2, slots(task, order))
        return torch.cat([placed, placed.gather(2, self.allowed[below(len(self.allowed), asked)])], dim=2)


def _distinct(task: RetrievalTask, words: Kinds) -> Kinds:
    """Different classes for each sequence, every set equally likely."""
    chosen = words[..., :0]
    for drawn, word in enumerate(words.split(1, dim=2)):
        new = below(task.classes - drawn, word)
        for earlier in chosen.sort(dim=2).values.unbind(2):
            new = new + (new >= earlier[..., None])
        chosen = torch.cat([chosen, new], dim=2)
    return chosen
