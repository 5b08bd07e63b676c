"""Several processes on one measurement: who does which prompts, and how their results become one.

Under `torchrun` every process measures its share of the prompts and holds means and rows of its own; the first
one takes the others' one after another, and tells all. Only finished states travel, as Python objects on the
CPU, so gloo serves machines with and without GPUs. A process that ends early takes the others with it; what was
finished is in the checkpoints, and counts for the next run, however many processes that one has.
"""

import datetime
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

from posbias.core.errors import WorkerError

PATIENCE = datetime.timedelta(hours=24)
"""How long a process waits for the others' results."""

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Group:
    """The processes of one measurement: `rank` of `size`, and `local_rank` on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def share(self, places: list[int]) -> list[int]:
        """Return this process's part of a list that all have in common."""
        return places[self.rank :: self.size]

    def exchange(self, thing: Thing) -> list[Thing]:
        """Return what every process gave, in the order of ranks. Raises `WorkerError` if one is gone."""
        if self.size == 1:
            return [thing]
        everyone: list[Any] = [None] * self.size
        with _missing_the_others():
            dist.all_gather_object(everyone, thing)
        return everyone

    def merged(self, thing: Thing, merge: Callable[[Thing, Thing], Thing]) -> Thing:
        """Return one thing made of every process's, the same to all; two are in memory at a time.

        Raises `WorkerError` if a process is gone.
        """
        if self.size == 1:
            return thing
        with _missing_the_others():
            for rank in range(1, self.size):
                if self.first:
                    received: list[Any] = [None]
                    dist.recv_object_list(received, src=rank)
                    thing = merge(thing, received[0])
                elif self.rank == rank:
                    dist.send_object_list([thing], dst=0)
            told: list[Any] = [thing if self.first else None]
            dist.broadcast_object_list(told, src=0)
        return told[0]


def launched() -> bool:
    """Return whether `torchrun`, or another launcher that sets RANK and WORLD_SIZE, started several processes."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def group() -> Iterator[Group]:
    """The processes that the launcher started together, or this one alone.

    When the launcher asks a process to end, it ends as after Ctrl-C: finished prompts reach the checkpoint.
    """
    if not launched():
        yield Group()
        return
    ours = not dist.is_initialized()
    if ours:
        with _missing_the_others():
            dist.init_process_group("gloo", timeout=PATIENCE)
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
    finally:
        signal.signal(signal.SIGTERM, before)
        if ours and dist.is_initialized():
            dist.destroy_process_group()


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt("the launcher ended this process")


@contextmanager
def _missing_the_others() -> Iterator[None]:
    """Say in a line that another process is gone: gloo speaks of closed connections."""
    try:
        yield
    except RuntimeError as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WorkerError(
            f"torchrun: another process of this measurement is gone ({first}); finished prompts are kept, the "
            "same command goes on from there"
        ) from error
