"""Several processes of this machine, of one thread each: the parent's side (`__main__` is the other).

A worker process is `python -m posbias.core.execution`: tasks come as lines on stdin, news go as lines to stdout.
It has one thread, since two processes finish two pieces in the time of one where a second thread would gain
little, and a session of its own, so that Ctrl-C reaches only the parent, which then asks the workers to stop
(SIGTERM). When the parent dies, stdin ends and so do they.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from posbias.core.arguments import whole
from posbias.core.errors import WorkerError
from posbias.core.execution.tasks import Hear, Last, News, Task, Words, deliver, lost, read_news, spell_task

PATIENCE = 60.0
"""Seconds that a worker is given to end when it is asked to."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""The environment variables that say how many threads numerical libraries use."""


class Processes:
    """An engine of so many processes on this machine, of one thread each.

    A process that dies is replaced and its task tried again `retries` times; then it fails with `WorkerError`.
    Raises `InvalidValueError` for numbers that cannot be right.
    """

    shares_disk = True

    def __init__(self, workers: int, retries: int = 1):
        self.workers, self.retries = whole("workers", workers, 1), whole("retries", retries, 0)

    def run(self, tasks: Sequence[Task], hear: Hear) -> None:
        """As `Engine` says."""
        waiting = deque([_Job(number, 1, spell_task(task)) for number, task in enumerate(tasks)])
        crew = [_Worker() for _ in range(min(self.workers, len(tasks)))]

        def lose(job: _Job, error: WorkerError) -> None:
            told = lost(str(error), job.attempt, self.retries)
            if isinstance(told, Words):
                waiting.appendleft(job._replace(attempt=job.attempt + 1))
            deliver(tasks, hear, job.number, told)

        try:
            while waiting or any(worker.job for worker in crew):
                for worker in crew:
                    if waiting and worker.job is None:
                        job = waiting.popleft()
                        try:
                            worker.begin(job)
                        except WorkerError as error:
                            lose(job, error)
                busy = {worker.fileno(): (worker, worker.job) for worker in crew if worker.job}
                for ready in _ready(busy):
                    worker, job = busy[ready]
                    try:
                        for news in worker.read():
                            deliver(tasks, hear, job.number, news, job.attempt)
                    except WorkerError as error:
                        lose(job, error)
        finally:
            _dismiss([worker.process for worker in crew if worker.process])


class _Job(NamedTuple):
    """An attempt at a task, and the task as a line."""

    number: int
    attempt: int
    line: str


class _Worker:
    """A process that performs one task at a time, started when it is needed and again when it has died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.job: _Job | None = None
        self._read = bytearray()

    def fileno(self) -> int:
        """What to wait for until it tells something or ends."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def begin(self, job: _Job) -> None:
        """Hand a task over. Raises `WorkerError` if the process cannot be started."""
        if self.process is None:
            try:
                self.process = subprocess.Popen(
                    # -P: files in the folder one works in must not take the place of modules
                    [sys.executable, "-P", "-m", "posbias.core.execution"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | dict.fromkeys(THREADS, "1"),
                    # Ctrl-C is not for it; the session stays, or `nice` would not count beside other sessions
                    process_group=0,
                )
            except OSError as error:
                raise WorkerError(f"could not be started ({error.strerror or error})") from None
        assert self.process.stdin is not None
        self.job = job
        with contextlib.suppress(OSError):  # it is gone: reading says so
            self.process.stdin.write(job.line.encode() + b"\n")
            self.process.stdin.flush()

    def read(self) -> list[News]:
        """What it told since; nothing comes after a task's last. Raises `WorkerError`, saying how it ended."""
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            process, self.process, self.job = self.process, None, None
            self._read.clear()
            assert process is not None
            code = process.wait()
            _close(process)
            raise WorkerError(_how(code))
        self._read += chunk
        if b"\n" not in chunk:
            return []
        *lines, self._read = self._read.split(b"\n")
        news = [read_news(line.decode()) for line in lines]
        if isinstance(news[-1], Last):
            self.job = None
        return news


def _ready(descriptors: Collection[int]) -> list[int]:
    """Those with something to read; waits for the first, if there are any."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll()] if descriptors else []


def _dismiss(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """End workers, with time for what they want to keep; without it at a second Ctrl-C."""
    deadline = time.monotonic() + PATIENCE
    try:
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.wait()
            _close(process)


def _close(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]


def _how(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with code {code}"
    memory = " (which is how a machine that runs out of memory ends one)" if code == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-code).name}{memory}"
