"""Several processes of this machine, of one thread each: the parent's side (`__main__` is the other)."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from posbias.errors import InvalidValueError
from posbias.workers.tasks import Hear, News, Task, is_last, read_news, spell

PATIENCE = 60.0
"""Seconds that a worker is given to end when it is asked to."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""The environment variables that say how many threads numerical libraries use."""
KEPT = "what is finished is kept, the same command goes on from there"


class Processes:
    """An engine of so many processes on this machine, of one thread each.

    A process that dies is replaced and its task tried again `retries` times; then it fails with `WorkerError`.
    Raises `InvalidValueError` for numbers that cannot be right.
    """

    shares_disk = True

    def __init__(self, workers: int, retries: int = 1):
        for name, given, least in (("workers", workers, 1), ("retries", retries, 0)):
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                raise InvalidValueError(f"{name}: {given!r} given, an integer ≥ {least} needed")
        self.workers, self.retries = workers, retries

    def run(self, tasks: Sequence[Task], hear: Hear) -> None:
        """As `Engine` says."""
        waiting: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for number, task in enumerate(tasks):
            waiting.put((number, spell(task)))
        news: queue.SimpleQueue[tuple[int, News]] = queue.SimpleQueue()
        crew = [_Worker() for _ in range(min(self.workers, len(tasks)))]
        feeding = [
            threading.Thread(target=self._feed, args=(worker, waiting, news), daemon=True) for worker in crew
        ]
        missing = len(tasks)
        try:
            for thread in feeding:
                thread.start()
            while missing:
                number, told = news.get()
                hear(number, told)
                missing -= is_last(told)
        finally:
            _dismiss(crew)
        for thread in feeding:
            thread.join(PATIENCE)

    def _feed(self, worker: "_Worker", waiting: queue.SimpleQueue, news: queue.SimpleQueue) -> None:
        """Give a worker one task after another and pass on what it says."""
        while True:
            try:
                number, line = waiting.get_nowait()
            except queue.Empty:
                return
            for attempt in range(1, self.retries + 2):
                how = worker.ask(line, lambda told, number=number: news.put((number, told)))
                if how is None:
                    break
                if attempt <= self.retries:
                    said = f"its worker {how}; tried again ({attempt} of {self.retries})"
                    news.put((number, {"say": said}))
                else:
                    times = f", {attempt} times" if attempt > 1 else ""
                    said = f"its worker {how}{times}; {KEPT}"
                    news.put((number, {"failed": said, "kind": "WorkerError"}))


class _Worker:
    """A process that is started when it is needed and again when it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._dismissed = False

    def ask(self, line: str, hear: Callable[[News], None]) -> str | None:
        """Have a task done; returns how the process ended if it died of it, None when the last news came."""
        try:
            process = self._running()
        except OSError as error:
            return f"could not be started ({error.strerror or error})"
        if process is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):  # it is gone: the missing answer below says so
            process.stdin.write(line + "\n")
            process.stdin.flush()
        while (answer := process.stdout.readline()).endswith("\n"):
            told = read_news(answer)
            hear(told)
            if is_last(told):
                return None
        code = process.wait()
        with self._lock:
            if self._dismissed:
                return None
            _close(process)
            self._process = None
        return _how(code)

    def _running(self) -> "subprocess.Popen[str] | None":
        """The process; None when there is to be none any more."""
        with self._lock:
            if self._process is None and not self._dismissed:
                self._process = subprocess.Popen(
                    # -P: files in the folder one works in must not take the place of modules
                    [sys.executable, "-P", "-m", "posbias.workers"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    encoding="utf-8",
                    env=os.environ | dict.fromkeys(THREADS, "1"),
                    start_new_session=True,
                )
            return self._process

    def dismiss(self) -> "subprocess.Popen[str] | None":
        """Ask the process to end and start none any more; returns it."""
        with self._lock:
            self._dismissed = True
            if self._process is not None:
                self._process.terminate()
            return self._process


def _dismiss(crew: Sequence[_Worker]) -> None:
    """End all workers, with time for what they want to keep; without it at a second Ctrl-C."""
    processes = [process for worker in crew if (process := worker.dismiss()) is not None]
    deadline = time.monotonic() + PATIENCE
    try:
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            _close(process)


def _close(process: "subprocess.Popen[str]") -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]


def _how(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with code {code}"
    memory = " (which is how a machine that runs out of memory ends one)" if code == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-code).name}{memory}"
