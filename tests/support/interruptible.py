"""A training to be stopped, as a task of an engine: its checkpoint is written at an interruption alone."""

import time
from pathlib import Path

from posbias.core import store as checkpoints
from posbias.training.experiments import Experiment
from posbias.training.loop import train
from posbias.training.network import ENCODINGS, Network
from posbias.training.task import RetrievalTask

TASK = RetrievalTask(items=4, dimension=8, classes=16, labels=4, burstiness=2)
ROPE = Network(2, True, positional=ENCODINGS["rope"])
JOB = [
    Experiment(TASK, network, seeds, 30, 16, learning_rate=1e-2, evaluate_every=12)
    for network, seeds in ((Network(2), (0, 1)), (ROPE, (0,)))
]


def task(checkpoint, *, on_event):
    """Slow enough to be stopped in time."""

    def slowly(event):
        on_event(event)
        time.sleep(0.05)

    checkpoints.LEAST = 1e9
    train(JOB, checkpoint=Path(checkpoint), threads=1, on_event=slowly)
