"""Sequences for a trained ensemble, in blocks, and its answers to them.

Every member is tested on sequences of its own: its own world's labels and, drawn from its seed and the number
of the test set, new classes. Its numbers are so the same in any ensemble. A block of `BLOCK` sequences per
member is drawn and run at once, all members together, which bounds memory whatever the number of sequences.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posbias.arguments import whole
from posbias.training.loop import Trained
from posbias.training.network import Wiring, finite_members, forward, wire
from posbias.training.task import Batch, World, make_world, novel_tests

T = TypeVar("T")
BLOCK = 250
"""Sequences per member and block. Another number draws other sequences."""


def draws(
    trained: Trained, draw: Callable[[World, int, int, int], T], sequences: int, seed: int
) -> Iterator[list[T]]:
    """Blocks of what `draw(world, member's seed, number of the block, size)` makes, a list over members.

    Block k of the test set `seed` has the number 2²⁰·(seed + 1) + k: sets share no sequences. Raises
    `InvalidValueError` for sequences < 1 or seed < 0.
    """
    whole("sequences", sequences, 1)
    whole("seed", seed, 0)
    seeds = trained.experiment.seeds
    worlds = [make_world(trained.experiment.task, own) for own in seeds]
    for block, start in enumerate(range(0, sequences, BLOCK)):
        number, size = ((seed + 1) << 20) + block, min(BLOCK, sequences - start)
        yield [draw(world, own, number, size) for world, own in zip(worlds, seeds, strict=True)]


def answers(
    trained: Trained, batches: Sequence[Batch]
) -> tuple[Float[Tensor, "member sequence label"], Int[Tensor, "member sequence"]]:
    """The ensemble's logits for one batch per member, and what would have been right; both on the CPU."""
    with torch.no_grad():
        logits = forward(trained.weights, wiring(trained), _stacked(trained, batches))
    return logits.cpu(), torch.stack([batch.target for batch in batches]).cpu()


def attention_blocks(
    trained: Trained, sequences: int, seed: int, *weights: dict[str, Tensor]
) -> Iterator[tuple[Tensor, list[list[Tensor]]]]:
    """Blocks of tokens [member, sequence, token, dimension] and each layer's attention to them.

    Sequences show new classes and ask for one at a random item, so that they favour no position. Attention is
    [member, sequence, query, key], a list over layers, one such list for each of `weights`.
    """
    task = trained.experiment.task

    def draw(world: World, own: int, number: int, size: int) -> Batch:
        return novel_tests(task, world, own, size, number=number)

    for batches in draws(trained, draw, sequences, seed):
        tokens = _stacked(trained, batches)
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
    """Which members trained to the end: not stopped, every weight finite."""
    going = np.array([seed not in trained.stopped for seed in trained.experiment.seeds])
    return finite_members(trained.weights) & going


def _stacked(trained: Trained, batches: Sequence[Batch]) -> Tensor:
    return torch.stack([batch.tokens for batch in batches]).to(_device(trained))


def _device(trained: Trained) -> torch.device:
    return trained.weights["query"].device
