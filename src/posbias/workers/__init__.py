"""Work in pieces, and who does it: here one after another, or several processes of this machine.

A piece (`Task`) names a function and its arguments in JSON's terms. An engine performs pieces and passes on what
they tell of themselves; the last news of each is its result or why it failed, and one that fails stops no other.

    engine = engine_of(workers=2, ray=None)
    engine.run([Task("posbias.train.jobs:finish_here", {...})], lambda number, news: print(number, news))

A worker process is `python -m posbias.workers`: tasks come as lines on stdin, news go as lines to stdout. It has
one thread, since two processes finish two pieces in the time of one where a second thread would gain little, and
a session of its own, so that Ctrl-C reaches only the parent, which then asks the workers to stop (SIGTERM). When
the parent dies, stdin ends and so do they. `posbias.cluster` is the engine for many machines.
"""

import importlib
from collections.abc import Sequence
from typing import Protocol

from posbias.errors import InvalidValueError
from posbias.workers.processes import KEPT, THREADS, Processes
from posbias.workers.tasks import Hear, News, Task, error_of, is_last, perform, read_news, spell

__all__ = [
    "KEPT",
    "THREADS",
    "Engine",
    "Hear",
    "InProcess",
    "News",
    "Processes",
    "Task",
    "engine_of",
    "error_of",
    "is_last",
    "perform",
    "read_news",
    "spell",
]


class Engine(Protocol):
    """Who performs tasks."""

    @property
    def shares_disk(self) -> bool:
        """Whether tasks can write to the folders of the caller; if not, files travel in their results."""
        ...

    def run(self, tasks: Sequence[Task], hear: Hear) -> None:
        """Perform the tasks; `hear` is called, in this thread, with a task's number and its news.

        Returns when each has its last news; KeyboardInterrupt, and what `hear` raises, stop all and are raised.
        """
        ...


class InProcess:
    """An engine that performs tasks here, one after another."""

    shares_disk = True

    def run(self, tasks: Sequence[Task], hear: Hear) -> None:
        """As `Engine` says."""
        for number, line in enumerate([spell(task) for task in tasks]):
            refused: list[BaseException] = []

            def tell(news: News, number: int = number, refused: list[BaseException] = refused) -> None:
                try:
                    hear(number, news)
                except BaseException as error:
                    refused.append(error)
                    raise

            last = perform(line, tell)
            if refused:
                raise refused[0]
            hear(number, read_news(last))


def engine_of(workers: int | None, ray: str | None) -> Engine:
    """The engine a command asks for: so many local processes, a Ray cluster's address, or by neither in process.

    Raises `InvalidValueError` for both or for a wrong number, and as `posbias.cluster.Cluster` does.
    """
    if ray is not None and workers is not None:
        raise InvalidValueError(f"workers: {workers} given together with ray {ray!r}, one of the two needed")
    if ray is not None:
        return importlib.import_module("posbias.cluster").Cluster(ray)
    return InProcess() if workers is None else Processes(workers)
