"""The training batches of many members, written straight into one tensor.

Batch number i of a member is a function of its seed and i (`philox`): training can go on anywhere, in any company.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.training.philox import Draws, below
from posbias.training.task import Batch, RetrievalTask, labelled, make_world, slots


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

    def batch(
        self, iteration: int | Tensor
    ) -> tuple[Float[Tensor, "member sequence token dimension"], Int[Tensor, "member sequence"]]:
        """Tokens and answers of batch number `iteration`; the next call overwrites them."""
        for place, group in self._groups:
            group.fill(iteration, self._tokens[place], self._target[place])
        return self._tokens, self._target


def training_batch(task: RetrievalTask, seeds: Sequence[int], iteration: int, size: int) -> Batch:
    """Batch number `iteration` of members with `seeds`: known classes, the answer at a random allowed item."""
    return Batch(*Feed([task] * len(seeds), seeds, size).batch(iteration))


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


def _distinct(
    task: RetrievalTask, words: Int[Tensor, "member sequence kind"]
) -> Int[Tensor, "member sequence kind"]:
    """Different classes for each sequence, every set equally likely."""
    chosen = words[..., :0]
    for drawn, word in enumerate(words.split(1, dim=2)):
        new = below(task.classes - drawn, word)
        for earlier in chosen.sort(dim=2).values.unbind(2):
            new = new + (new >= earlier[..., None])
        chosen = torch.cat([chosen, new], dim=2)
    return chosen
