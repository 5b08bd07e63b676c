"""Work in pieces, and who does it: here one after another, in several processes, or on a Ray cluster.

A piece (`Task`) names a function and its arguments in JSON's terms. An engine performs pieces and passes on what
they tell: `Event`s while they run, and in the end a `Result` or `Failed`; one that fails stops no other. What they
log is logged again where the engine runs, under the task's label.

    engine = engine_of(workers=2, ray=None)
    engine.run([Task("posbias.study.performing:perform", {...})], lambda number, news: print(number, news))
"""

from collections.abc import Sequence
from typing import Protocol

from posbias.core.errors import InvalidValueError
from posbias.core.events import Event
from posbias.core.execution.cluster import Cluster
from posbias.core.execution.processes import THREADS, Processes
from posbias.core.execution.tasks import (
    Failed,
    Hear,
    Last,
    Result,
    Task,
    deliver,
    perform,
    read_news,
    spell_task,
)
from posbias.core.logs import labelled

__all__ = [
    "THREADS",
    "Cluster",
    "Engine",
    "Failed",
    "InProcess",
    "Last",
    "Processes",
    "Result",
    "Task",
    "engine_of",
]


class Engine(Protocol):
    """Who performs tasks."""

    @property
    def shares_disk(self) -> bool:
        """Whether tasks can write to the folders of the caller; if not, files travel in their results."""
        ...

    def run(self, tasks: Sequence[Task], hear: Hear) -> None:
        """Perform the tasks; `hear` is called, in this thread, with a task's number and what it tells.

        Returns when each has its `Last`; KeyboardInterrupt, and what `hear` raises, stop all and are raised.
        """
        ...


class InProcess:
    """An engine that performs tasks here, one after another."""

    shares_disk = True

    def run(self, tasks: Sequence[Task], hear: Hear) -> None:
        """As `Engine` says."""
        refused: list[BaseException] = []
        for number, line in enumerate([spell_task(task) for task in tasks]):

            def on_event(event: Event, number: int = number) -> None:
                try:
                    hear(number, event)
                except BaseException as error:
                    refused.append(error)
                    raise

            with labelled(tasks[number].label):
                last = perform(line, on_event)
            if refused:
                raise refused[0]
            deliver(tasks, hear, number, read_news(last))


def engine_of(workers: int | None, ray: str | None) -> Engine:
    """The engine a command asks for: so many local processes, a Ray cluster's address, or by neither in process.

    Raises `InvalidValueError` for both or for a wrong number, and as `Cluster` does.
    """
    if ray is not None and workers is not None:
        raise InvalidValueError(f"workers: {workers} given together with ray {ray!r}, one of the two needed")
    if ray is not None:
        return Cluster(ray)
    return InProcess() if workers is None else Processes(workers)
