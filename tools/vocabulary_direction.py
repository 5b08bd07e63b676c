"""A fixed vocabulary under the shared direction of training and under another: table of docs/depth.md.

python tools/vocabulary_direction.py CELL.safetensors …   weights that `posbias train` left
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from posbias.training.averages import estimate_members
from posbias.training.philox import Draws
from posbias.training.results import load_trained
from posbias.training.trials import answers, blocks

SEQUENCES, SEED = 10_000, 0


def right(trained, batch):
    logits, target = answers(trained, batch)
    return (logits.argmax(dim=2) == target).double().numpy()


def tested(trained, direction):
    """In-context accuracy and the gap first-last of every network, with items shifted along a direction."""
    last = trained.experiment.task.items - 1
    rows = []
    for novel in blocks(trained, SEQUENCES, SEED):
        if direction is not None:
            novel = replace(novel, world=replace(novel.world, direction=direction))
        pair = novel.paired(0, last)
        first, second = right(trained, pair.first), right(trained, pair.second)
        rows.append((right(trained, novel.asking()), first - second))
    return np.concatenate(rows, axis=2).mean(axis=2)


for path in sys.argv[1:]:
    trained = load_trained(Path(path))
    task, seeds = trained.experiment.task, trained.experiment.seeds
    other = Draws(seeds, "gallery/direction").normals(0, 1, task.dimension)[:, 0] * task.deviation
    for name, direction in (("of training", None), ("another", other)):
        accuracy, gap = map(estimate_members, tested(trained, direction))
        print(f"{Path(path).stem}: direction {name}: accuracy {accuracy}, first-last {gap}")
