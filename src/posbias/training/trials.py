"""Sequences for a trained ensemble, in blocks, and its answers to them.

Every member is tested on sequences of its own: its own world's labels and, drawn from its seed and the number
of the test set, new classes. Its numbers are so the same in any ensemble. A block of `BLOCK` sequences per
member is drawn and run at once, all members together, which bounds memory whatever the number of sequences.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posbias.core.errors import whole
from posbias.training.loop import Trained
from posbias.training.network import Wiring, finite_members, forward, wire
from posbias.training.task import Batch, Novel, RetrievalTask, blocks_of, make_world, novel_sequences


def blocks(
    trained: Trained,
    sequences: int,
    seed: int,
    *,
    task: RetrievalTask | None = None,
    place: tuple[int, ...] = (),
) -> Iterator[Novel]:
    """The test set `seed` of `sequences` sequences per member, in blocks, on the device of the weights.

    `task` is what is shown, by default what was trained on; `place` tells tests apart that share no sequences.
    Raises `InvalidValueError` for sequences < 1, seed < 0, and networks of posbias 0.1, whose labels' vectors are
    drawn no more.
    """
    whole("sequences", sequences, 1)
    whole("seed", seed, 0)
    experiment = trained.experiment
    task = task or experiment.task
    world = make_world(task, experiment.seeds, str(_device(trained)))
    for start, rows in blocks_of(sequences):
        yield novel_sequences(task, world, seed + 1, rows, start, place)


def answers(
    trained: Trained, batch: Batch
) -> tuple[Float[Tensor, "member sequence label"], Int[Tensor, "member sequence"]]:
    """The ensemble's logits for a batch, and what would have been right; both on the CPU."""
    with torch.no_grad():
        logits = forward(trained.weights, wiring(trained), batch.tokens)
    return logits.cpu(), batch.target.cpu()


def attention_blocks(
    trained: Trained, sequences: int, seed: int, *weights: dict[str, Tensor]
) -> Iterator[tuple[Tensor, list[list[Tensor]]]]:
    """Blocks of tokens [member, sequence, token, dimension] and each layer's attention to them.

    Sequences show new classes and ask for one at a random item, so that they favour no position. Attention is
    [member, sequence, query, key], a list over layers, one such list for each of `weights`.
    """
    for novel in blocks(trained, sequences, seed):
        tokens = novel.asking().tokens
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
    """Which members trained to the end: not stopped, every weight finite where weights were kept."""
    going = np.array([seed not in trained.stopped for seed in trained.experiment.seeds])
    return finite_members(trained.weights) & going if trained.weights else going


def _device(trained: Trained) -> torch.device:
    return trained.weights["query"].device
