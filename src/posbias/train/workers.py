"""Cells on several cores: one process of one thread per core, fed cell by cell.

Small networks gain little from a second thread, but two processes finish two cells in the time of one. A worker
is `python -m posbias.train.workers`: it reads jobs as lines of JSON and answers with lines of JSON, {"done",
"total"} as it trains, {"say"}, and at the end {"finished"} or {"failed"}. It runs in a session of its own, so that
Ctrl-C reaches only the parent, which then asks the workers to stop (SIGTERM); what they leave is their last
checkpoint, a few seconds old. When the parent dies, a worker stops at its next line.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from posbias import errors
from posbias.errors import PosbiasError

PATIENCE = 60.0
"""Seconds that a worker is given to end when it is asked to."""
PAUSE = 0.1
"""Least seconds between two lines of a worker about its progress."""


def share_out(jobs: list[dict[str, Any]], workers: int, hear: Callable[[int, dict[str, Any]], None]) -> None:
    """Do the jobs in so many processes; `hear` is called, in this thread, with a job's number and its news.

    A job is the keyword arguments of `posbias.train.cells.finish` in JSON's terms. Raises what a job raised (a
    `PosbiasError` as itself, anything else as `RuntimeError` with its traceback's last line), `WorkerError` for
    a process that was ended from without, after the other workers have stopped; so does KeyboardInterrupt.
    """
    waiting: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
    for numbered in enumerate(jobs):
        waiting.put(numbered)
    news: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
    with _processes(min(workers, len(jobs))) as processes:
        for process in processes:
            threading.Thread(target=_feed, args=(process, waiting, news), daemon=True).start()
        finished = 0
        while finished < len(jobs):
            number, told = news.get()
            if "failed" in told:
                raise getattr(errors, told["kind"], RuntimeError)(told["failed"])
            hear(number, told)
            finished += "finished" in told


@contextmanager
def _processes(count: int) -> Iterator[list[subprocess.Popen]]:
    """So many workers, stopped at the end, with time for their checkpoints."""
    # -P: files in the folder one works in must not take the place of modules
    command = [sys.executable, "-P", "-m", "posbias.train.workers"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = []
    try:
        while len(processes) < count:
            processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=one_thread,
                    start_new_session=True,
                )
            )
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]


def _feed(process: subprocess.Popen, waiting: queue.SimpleQueue, news: queue.SimpleQueue) -> None:
    """Give a worker one job after another and pass on what it says."""
    while True:
        try:
            number, job = waiting.get_nowait()
        except queue.Empty:
            break
        try:
            process.stdin.write(json.dumps(job) + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        except OSError:
            pass  # it is gone; the missing answer below says so
        told: dict[str, Any] = {}
        while not {"finished", "failed"} & set(told):
            line = process.stdout.readline()  # type: ignore[union-attr]
            told = json.loads(line) if line else {"failed": _lost(process), "kind": "WorkerError"}
            news.put((number, told))
        if "failed" in told:
            return


def _lost(process: subprocess.Popen) -> str:
    """What to say of a process that hung up."""
    code = process.wait(PATIENCE)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    memory = " (which is how a machine that runs out of memory ends one)" if code == -signal.SIGKILL else ""
    return f"workers: one of them {how}{memory}; finished cells are kept, the same command goes on from there"


def main() -> None:
    """A worker's life: jobs from stdin, news to stdout, until there are no more or it is told to stop."""
    from posbias.train.cells import Job, finish

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    to_parent = sys.stdout
    sys.stdout = sys.stderr

    last = 0.0

    def tell(**news: Any) -> None:
        to_parent.write(json.dumps(news) + "\n")
        to_parent.flush()

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            last = time.monotonic()
            tell(done=done, total=total)

    try:
        for line in sys.stdin:
            try:
                given = json.loads(line)
                finish(
                    Job.from_dict(given.pop("job")),
                    **given,
                    progress=progress,
                    say=lambda line: tell(say=line),
                )
                tell(finished=True)
            except PosbiasError as error:
                tell(failed=str(error), kind=type(error).__name__)
            except Exception as error:
                tell(failed=f"{type(error).__name__}: {error}", kind="RuntimeError")
                raise
    except (KeyboardInterrupt, BrokenPipeError):
        pass  # the parent asked, or is gone


if __name__ == "__main__":
    main()
