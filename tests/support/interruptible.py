"""A training to be stopped: python interruptible.py CHECKPOINT. Says each iteration; waits after 40.

Its checkpoint is written after every iteration, as a task of an engine at an interruption alone.
"""

import sys
import time
from pathlib import Path

from posbias.core import store as checkpoints
from posbias.training import loop
from posbias.training.experiments import Experiment
from posbias.training.loop import train
from posbias.training.network import ENCODINGS, Network
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


def task(checkpoint, *, on_event):
    """The same as a task of an engine, slow enough to be stopped in time."""

    def slowly(event):
        on_event(event)
        time.sleep(0.05)

    loop.PATIENCE, checkpoints.LEAST = 100.0, 1e9
    train(JOB, checkpoint=Path(checkpoint), threads=1, on_event=slowly)


def tell(event):
    print(event.done, flush=True)
    if event.done == 40:
        time.sleep(600)


if __name__ == "__main__":
    loop.PATIENCE, checkpoints.LEAST = 0.0, 0.0
    train(JOB, checkpoint=Path(sys.argv[1]), threads=1, on_event=tell)
