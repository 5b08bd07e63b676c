"""The training batches of many members, written straight into one tensor.

A batch is a function of seed and iteration alone: a run can be resumed anywhere.
Who stands where (classes, their order, the item asked for) is drawn for `BLOCK` iterations at once, the noise
for each. Both are functions of seed and number alone. On the CPU every member has its own stream, so that it
sees what it would see alone; on a GPU, where drawing for one at a time would take longer than training,
neighbouring members of equal tasks share a stream, which is a function of all their seeds.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posbias.training.task import Batch, RetrievalTask, World, generator, slots

BLOCK = 16
"""Iterations whose classes and order are drawn together. Another number makes other batches."""


class Feed:
    """Batches of `size` sequences for members with `tasks`, `worlds` and `seeds`, on `device`.

    `shared` says whether neighbours with equal tasks draw from one stream; None: not on the CPU.
    """

    def __init__(
        self,
        tasks: Sequence[RetrievalTask],
        worlds: Sequence[World],
        seeds: Sequence[int],
        size: int,
        device: str = "cpu",
        shared: bool | None = None,
    ):
        task = tasks[0]
        self._tokens = torch.empty(len(tasks), size, task.tokens, task.dimension, device=device)
        self._target = torch.empty(len(tasks), size, dtype=torch.long, device=device)
        alone = not (torch.device(device).type != "cpu" if shared is None else shared)
        runs = itertools.groupby(range(len(tasks)), key=lambda member: member if alone else tasks[member])
        self._groups = []
        for _, run in runs:
            first, *others = run
            place = slice(first, first + 1 + len(others))
            self._groups.append((place, _Group(tasks[first], worlds[place], seeds[place], size, device)))

    def batch(
        self, iteration: int
    ) -> tuple[Float[Tensor, "member sequence token dimension"], Int[Tensor, "member sequence"]]:
        """Tokens and answers of batch number `iteration`; the next call overwrites them."""
        for place, group in self._groups:
            group.fill(iteration, self._tokens[place], self._target[place])
        return self._tokens, self._target


def training_batch(task: RetrievalTask, world: World, seed: int, iteration: int, size: int) -> Batch:
    """Batch number `iteration` of a member alone: known classes, the answer at a random allowed item."""
    tokens, target = Feed([task], [world], [seed], size).batch(iteration)
    return Batch(tokens[0], target[0])


class _Group:
    """Members of one task that share a stream."""

    def __init__(
        self,
        task: RetrievalTask,
        worlds: Sequence[World],
        seeds: Sequence[int],
        size: int,
        device: str,
    ):
        self.task, self.size, self.device = task, size, device
        self.seeds, self.count = seeds, len(seeds)
        centre, self.noise = task.shares
        vectors = torch.stack([world.centres for world in worlds]) * centre
        if task.inputs == "fixed_vocabulary":
            vectors += self.noise * torch.stack([world.direction for world in worlds])[:, None]
        self.vectors = vectors.flatten(0, 1).to(device)
        self.labels = torch.stack([world.class_labels for world in worlds]).flatten().to(device)
        self.label_vectors = torch.cat([world.label_vectors for world in worlds]).to(device)
        self.allowed = torch.tensor(
            task.answers if task.answers is not None else range(task.items), device=device
        )
        self.block, self.classes = -1, torch.empty(0, dtype=torch.long)

    def fill(self, iteration: int, tokens: Tensor, target: Tensor) -> None:
        """Write the group's batch into `tokens` [member, sequence, token, dimension] and `target`."""
        if iteration // BLOCK != self.block:
            self.block = iteration // BLOCK
            self.classes = self._classes(self._generator("train/classes", self.block))
        classes, task = self.classes[:, iteration % BLOCK], self.task
        member = torch.arange(self.count, device=self.device)[:, None, None]
        items = self.vectors.index_select(0, (classes + member * task.classes).flatten())
        items = items.view(self.count, self.size, task.items + 1, task.dimension)
        if task.inputs == "fixed_vocabulary":
            tokens[:, :, 0::2] = items
        else:
            rng = self._generator("train/noise", iteration)
            noise = torch.randn(items.shape, generator=rng, device=self.device)
            torch.add(items, noise, alpha=self.noise * task.deviation, out=tokens[:, :, 0::2])
        labels = self.labels[classes + member * task.classes]
        target.copy_(labels[:, :, -1])
        shown = (labels[:, :, :-1] + member * task.labels).flatten()
        tokens[:, :, 1::2] = self.label_vectors.index_select(0, shown).view(
            self.count, self.size, task.items, task.dimension
        )

    def _classes(self, rng: torch.Generator) -> Int[Tensor, "member iteration sequence item"]:
        """The class at each item and, at the end, the one that is asked for."""
        task, rows = self.task, self.count * BLOCK * self.size
        placed = _distinct(task, rows, rng).gather(1, slots(task, rows, rng))
        answer = self.allowed[torch.randint(len(self.allowed), (rows, 1), generator=rng, device=rng.device)]
        classes = torch.cat([placed, placed.gather(1, answer)], dim=1)
        return classes.view(self.count, BLOCK, self.size, -1)

    def _generator(self, name: str, number: int) -> torch.Generator:
        return generator(self.seeds[0], name, number, *self.seeds[1:], device=self.device)


def _distinct(task: RetrievalTask, rows: int, rng: torch.Generator) -> Int[Tensor, "sequence kind"]:
    """Different classes for each sequence, every set equally likely."""
    chosen = torch.empty(rows, 0, dtype=torch.long, device=rng.device)
    for drawn in range(task.kinds):
        new = torch.randint(task.classes - drawn, (rows, 1), generator=rng, device=rng.device)
        for earlier in chosen.sort(dim=1).values.unbind(1):
            new += new >= earlier[:, None]
        chosen = torch.cat([chosen, new], dim=1)
    return chosen
