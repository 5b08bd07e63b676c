"""Tasks for the tests of engines. They are called by name in other processes, with this folder on the path."""

import logging
import os
import signal
import time
from pathlib import Path

from posbias.core.errors import InputFileError
from posbias.core.progress import Event
from posbias.core.running import Last, Task

log = logging.getLogger("posbias.piecework")


def add(one, two, *, on_event):
    """A sum, after some words and noise."""
    print("this is not news")
    os.write(1, b"nor is this\n")
    log.info("adding %s to %s", two, one)
    on_event(Event(1, 2))
    on_event(Event(2, 2, "sum"))
    return {"sum": one + two, "both": (one, two), "files": {"one": bytes([one, 0, 255])}}


def refuse(what, *, on_event):
    """Fail in one of several ways."""
    if what == "file":
        raise InputFileError("x.toml: no such file")
    if what == "bug":
        raise ValueError("two\n  lines")
    return (lambda: None) if what == "unpicklable" else None


def die(marks, name, times, seconds=0.0, *, on_event):
    """Note each attempt in a folder; the first `times` of them are killed in the middle."""
    mark = Path(marks) / f"{name}-{len(list(Path(marks).glob(f'{name}-*')))}"
    mark.write_text(str(os.getpid()))
    time.sleep(seconds / 2)
    if len(list(Path(marks).glob(f"{name}-*"))) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds / 2)
    return name


def sleep(seconds, marks=None, *, on_event):
    """Begin, and say nothing for so long; with `marks`, leave one named after the process that begins."""
    on_event(Event(0, 1))
    if marks is not None:
        (Path(marks) / str(os.getpid())).touch()
    time.sleep(seconds)
    return os.getpid()


def train_slowly(experiments, checkpoint, *, on_event):
    """A training to be stopped in time; its checkpoint is written at an interruption alone."""
    from posbias.core import store
    from posbias.training.loop import train

    def slowly(event):
        on_event(event)
        time.sleep(0.05)

    store.LEAST = 1e9
    train(experiments, checkpoint=Path(checkpoint), threads=1, on_event=slowly)


def threads(*, on_event):
    """How many threads numerical libraries are set to use."""
    return {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}


def wait_for(condition, seconds=300):
    """Wait until a condition holds; fail after some minutes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def task(function, label="", /, gpus=0, **arguments):
    """A task of this module, by the name of its function."""
    return Task(globals()[function], arguments, label, gpus=gpus)


def heard_of(engine, tasks, watch=lambda number, news: None):
    """All news by task, once the engine is done; the last of each is its last."""
    heard = [[] for _ in tasks]

    def hear(number, news):
        heard[number].append(news)
        watch(number, news)

    engine.run(tasks, hear)
    for one in heard:
        assert [isinstance(news, Last) for news in one] == [False] * (len(one) - 1) + [True]
    return heard
