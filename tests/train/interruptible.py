"""A training to be killed: python interruptible.py CHECKPOINT. Says each iteration after a writing on stdout."""

import sys
from pathlib import Path

from posbias.train import checkpoints
from posbias.train.loop import train
from posbias.train.network import ENCODINGS, Network
from posbias.train.specification import Experiment
from posbias.train.task import RetrievalTask

TASK = RetrievalTask(items=4, dimension=8, classes=16, labels=4, burstiness=2)
JOB = [
    Experiment(TASK, Network(2), (0, 1), iterations=60, batch=16, learning_rate=1e-2, evaluate_every=25),
    Experiment(
        TASK,
        Network(2, True, positional=ENCODINGS["rope"]),
        (0,),
        60,
        16,
        learning_rate=1e-2,
        evaluate_every=25,
    ),
]


def often():
    """Write the checkpoint after every iteration."""
    checkpoints._PATIENCE = checkpoints._LEAST = 0


if __name__ == "__main__":
    often()
    train(JOB, checkpoint=Path(sys.argv[1]), threads=1, progress=lambda done, total: print(done, flush=True))
