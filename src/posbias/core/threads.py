"""Threads of torch: how many, and what those do that have nothing to do.

By default a thread of OpenMP that waits for others spins, for milliseconds. Where every core has its own thread
and nothing else runs, that is fast; where anything else runs, the spinning thread takes the core of the one it
waits for, and two threads are up to ten times slower than one. So posbias has them sleep, unless the environment
says otherwise (OMP_WAIT_POLICY, or GOMP_SPINCOUNT, which goes before it).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from posbias.core.arguments import counted
from posbias.core.memory import cores


def sleep_while_waiting() -> None:
    """Have waiting threads of OpenMP sleep; takes effect where torch is not loaded yet, and in child processes."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """So many threads of torch in the block, as many as before for None.

    Raises `InvalidValueError` as `counted`.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else counted("threads", count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def leaving_a_core() -> int:
    """All cores but one, or fewer where torch has fewer.

    With a thread on every core, anything else that runs stalls them all.
    """
    import torch

    return min(torch.get_num_threads(), max(1, cores() - 1))
