"""A training to be killed: python interruptible.py CHECKPOINT. Says each written iteration; waits after 40."""

import sys
import time
from pathlib import Path

from posbias.store import checkpoint as checkpoints
from posbias.training import loop
from posbias.training.loop import train
from posbias.training.network import ENCODINGS, Network
from posbias.training.specification import Experiment
from posbias.training.task import RetrievalTask

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
    loop.PATIENCE = checkpoints.LEAST = 0.0


def tell(event):
    print(event.done, flush=True)
    if event.done == 40:
        time.sleep(600)


if __name__ == "__main__":
    often()
    train(JOB, checkpoint=Path(sys.argv[1]), threads=1, on_event=tell)
