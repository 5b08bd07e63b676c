"""Work in pieces: performed here one after another, in processes of this machine, or on a Ray cluster.

A piece (`Task`) is a function of a module with its arguments. An engine performs pieces and passes on `Event`s
while they run, and in the end a `Result` or `Failed`; a piece that fails stops no other. What they log is logged
again here, under the task's label. Cells of a folder are computed by `posbias.core.store.compute`, which rests
on this.

    run({key: Task(train, {"job": job}) for key, job in jobs.items()}, save, engine=Processes(2), kept=words)
"""

import contextlib
import functools
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from posbias.core import errors
from posbias.core.errors import PosbiasError, whole
from posbias.core.progress import KEPT, Deferred, Event, OnEvent, Pace, labelled

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""The environment variables that set the number of threads of numerical libraries."""
PATIENCE = 60.0
"""Seconds that a process is given to end when it is asked to."""
ENDED = "its worker ended (a machine that runs out of memory ends one)"
PAUSE = 0.1
"""Least seconds between two events of a task in another process."""
_SPAWN = multiprocessing.get_context("spawn")
log = logging.getLogger(__name__)
_LOG = logging.getLogger("posbias")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Task:
    """A piece of work: `call(**arguments, on_event=)`, where other processes can import `call` and pickle both.

    `cores` and `gpus` are what a cluster sets aside for it; `label` is for people.
    """

    call: Callable[..., Any]
    arguments: dict[str, Any]
    label: str = ""
    cores: float = 1
    gpus: float = 0


@dataclass(frozen=True)
class Result:
    """What a task returned."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """Why a task has no result: the message for people, the type of the error, and where it was raised."""

    message: str
    kind: str
    traceback: str = ""

    @classmethod
    def of(cls, error: Exception) -> "Failed":
        """From an error that is being handled."""
        kind, words = type(error).__name__, " ".join(str(error).split())
        message = words if isinstance(error, PosbiasError) else f"{kind}: {words}"
        return cls(message, kind, traceback.format_exc())

    def error(self) -> Exception:
        """As an error to raise: a `PosbiasError` or `MemoryError` as itself, anything else as `RuntimeError`."""
        kind = MemoryError if self.kind == "MemoryError" else getattr(errors, self.kind, RuntimeError)
        if not (isinstance(kind, type) and issubclass(kind, PosbiasError | MemoryError)):
            kind = RuntimeError
        error = kind(self.message)
        if self.traceback:
            error.add_note(f"in the worker:\n{self.traceback}")
        return error


Last = Result | Failed
"""What comes last of a task, and once."""
Message = Event | logging.LogRecord | Last
OnMessage = Callable[[int, Event | Last], None]
"""Called, in the thread of `Engine.run`, with a task's number and its message."""


class Engine(Protocol):
    """Who performs tasks."""

    @property
    def shares_disk(self) -> bool:
        """Whether tasks can write to the folders of the caller; if not, files travel in their results."""
        ...

    def run(self, tasks: Sequence[Task], on_message: OnMessage) -> None:
        """Perform the tasks; `on_message` is called with a task's number and its messages.

        Returns when each has its `Last`; KeyboardInterrupt, and what `on_message` raises, stop all and are raised.
        """
        ...


class InProcess:
    """An engine that performs tasks here, one by one; an error of `on_message` for an event fails its task."""

    shares_disk = True

    def run(self, tasks: Sequence[Task], on_message: OnMessage) -> None:
        """As `Engine` says."""
        for number, task in enumerate(tasks):
            with labelled(task.label):
                last = perform(task, functools.partial(on_message, number))
            on_message(number, last)


class Processes:
    """An engine of `workers` processes on this machine, of one thread each.

    Two processes finish two tasks in the time of one where a second thread would gain little. A process that dies
    is replaced and its task tried again `retries` times; then it fails with `WorkerError`. Raises
    `InvalidValueError` for numbers that cannot be right.
    """

    shares_disk = True

    def __init__(self, workers: int, retries: int = 1):
        self.workers, self.retries = whole("workers", workers, 1), whole("retries", retries, 0)

    def run(self, tasks: Sequence[Task], on_message: OnMessage) -> None:
        """As `Engine` says. Raises what pickle does for a task that cannot travel, before anything runs."""
        pickle.dumps([*tasks])
        waiting = deque((number, 1) for number in range(len(tasks)))
        workers: list[_Worker] = []
        try:
            while waiting or any(worker.busy for worker in workers):
                workers = [worker for worker in workers if worker.busy or worker.process.is_alive()]
                while waiting and sum(worker.busy for worker in workers) < self.workers:
                    worker = next((worker for worker in workers if not worker.busy), None)
                    if worker is None:
                        workers.append(worker := _Worker())
                    worker.begin(tasks, *waiting.popleft())
                busy = {worker.connection: worker for worker in workers if worker.busy}
                for ready in wait([*busy]):
                    worker = busy[ready]  # type: ignore[index]
                    message, attempt = worker.read(), worker.attempt
                    if message is None and attempt <= self.retries:
                        with labelled(tasks[worker.number].label):
                            log.warning("%s; tried again (%d of %d)", ENDED, attempt, self.retries)
                        waiting.appendleft((worker.number, attempt + 1))
                    else:
                        lost = Failed(f"{ENDED}{f', {attempt} times' * (attempt > 1)}; {KEPT}", "WorkerError")
                        deliver(tasks, on_message, worker.number, message or lost)
        finally:
            _end(workers)


def run(
    tasks: Mapping[Key, Task],
    keep: Callable[[Key, Any], None],
    *,
    engine: Engine | None = None,
    sizes: Mapping[Key, float] | None = None,
    unit: str = "cell",
    on_event: OnEvent | None = None,
    kept: Callable[[], str],
) -> dict[Key, Failed]:
    """Perform tasks on an engine (default: here), `keep` each result as it comes, and return those that failed.

    One that fails is logged and stops no other. `on_event` is called with the progress of all of them together, in
    `unit`: one each, or their `sizes`. A task is not done before its result is kept. Whatever stops it, what was
    kept stays. Raises KeyboardInterrupt on Ctrl-C, saying what is `kept` and how long the rest takes, and what
    `keep` and the engine raise.
    """
    keys = [*tasks]
    size = [1.0 if sizes is None else sizes[key] for key in keys]
    shares, first, failed, pace = [0.0] * len(keys), dict[int, float](), dict[Key, Failed](), Pace()

    def on_message(number: int, message: Event | Last) -> None:
        if isinstance(message, Failed):
            failed[keys[number]] = message
            log.warning("%s: failed: %s", tasks[keys[number]].label, message.message)
        elif isinstance(message, Result):
            with Deferred():  # a result that is there is kept, whatever stops the rest
                keep(keys[number], message.value)
        begun = isinstance(message, Event)
        shares[number] = min(0.99, message.share) if isinstance(message, Event) else 1.0
        # what a checkpoint had is no work of this run
        first.setdefault(number, shares[number] if begun else 0.0)
        if on_event:
            done = sum(each * share for each, share in zip(size, shares, strict=True))
            on_event(Event(round(done, 2), sum(size), unit))

    try:
        (engine or InProcess()).run([*tasks.values()], on_message)
    except KeyboardInterrupt:
        parts = [*zip(size, (first.get(number, 0.0) for number in range(len(keys))), shares, strict=True)]
        done = sum(each * (share - begun) for each, begun, share in parts)
        left = sum(each * (1 - share) for each, _, share in parts)
        raise KeyboardInterrupt(pace.goes_on(kept(), done, left)) from None
    return failed


def perform(task: Task, on_event: Callable[[Event], None]) -> Last:
    """Do a task. Lets only KeyboardInterrupt through."""
    try:
        return Result(task.call(**task.arguments, on_event=on_event))
    except Exception as error:
        return Failed.of(error)


def perform_remotely(
    task: Task, level: int, send: Callable[[Event | logging.LogRecord], None], pause: float
) -> Last:
    """`perform` in another process than the caller's: sends what is logged too, events every `pause` seconds."""
    last = -pause

    def on_event(event: Event) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= pause or event.done == event.total:
            last = now
            send(event)

    handler = QueueHandler(SimpleNamespace(put_nowait=send))  # type: ignore[arg-type]
    _LOG.setLevel(level)
    _LOG.addHandler(handler)
    try:
        return perform(task, on_event)
    finally:
        _LOG.removeHandler(handler)


def deliver(tasks: Sequence[Task], on_message: OnMessage, number: int, message: Message) -> None:
    """Log a task's log records as if they were made here; anything else is for `on_message`."""
    if isinstance(message, logging.LogRecord):
        with labelled(tasks[number].label):
            logging.getLogger(message.name).handle(message)
    else:
        on_message(number, message)


# --- one process: the caller's side ---------------------------------------------------------------------------


class _Worker:
    """A process that performs one task at a time; tasks and messages go through a pipe, which ends with it."""

    def __init__(self) -> None:
        self.busy, self.number, self.attempt = False, -1, 0
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs,))
        with _without_script():
            self.process.start()
        theirs.close()  # the process has its own: when it ends, so does what can be read

    def begin(self, tasks: Sequence[Task], number: int, attempt: int) -> None:
        """Send a task; a process that has just ended is noticed when its messages are read."""
        self.busy, self.number, self.attempt = True, number, attempt
        with contextlib.suppress(OSError):
            self.connection.send((tasks[number], _LOG.getEffectiveLevel()))

    def read(self) -> Message | None:
        """The next message, None when the process has ended."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            message = None
        except Exception as error:  # a result that cannot be unpickled here
            message = Failed.of(error)
        self.busy = isinstance(message, Event | logging.LogRecord)
        return message


def _end(workers: Sequence[_Worker]) -> None:
    """End workers, with time to save their state; without it at a second Ctrl-C."""
    try:
        for worker in workers:
            worker.process.terminate()
            worker.connection.close()  # what it still sends goes nowhere, and does not hold it up
        deadline = time.monotonic() + PATIENCE
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Have a new process import what its tasks need, not the caller's script: that may begin the work anew."""
    main = sys.modules["__main__"]
    hidden = {name: vars(main).pop(name) for name in ("__file__", "__spec__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)


# --- the process's side ---------------------------------------------------------------------------------------


def _serve(connection: Connection) -> None:
    """Perform tasks until there are no more: with one thread, deaf to Ctrl-C, which is the caller's."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    os.dup2(2, 1)  # stdout is the answer's
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock, contextlib.suppress(OSError):  # the caller is gone
            connection.send(message)

    try:
        while True:
            try:
                task, level = connection.recv()
                last = perform_remotely(task, level, send, PAUSE)
            except EOFError:
                return
            except Exception as error:  # a task that cannot be unpickled here
                last = Failed.of(error)
            try:
                send(last)
            except Exception as error:  # a result that cannot be pickled
                send(Failed.of(error))
    except KeyboardInterrupt:
        os._exit(1)


def _end_with_the_caller() -> None:
    """Stop the task, with time to save its state, when the process that asked for it has ended."""
    caller = multiprocessing.parent_process()
    assert caller is not None
    caller.join()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)
