"""Work in pieces: performed here one after another, in processes of this machine, or on a Ray cluster.

A piece (`Task`) is a function of a module with its arguments. An engine performs pieces and passes on `Event`s
while they run, and in the end a `Result` or `Failed`; a piece that fails stops no other. What they log is logged
again here, under the task's label.

    run({cell: Task(perform, {"spec": cell.spec}) for cell in missing}, save, engine=Processes(2))
"""

import contextlib
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
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as readable
from typing import Any, Protocol, TypeVar

from posbias.core import errors
from posbias.core.arguments import whole
from posbias.core.errors import PosbiasError
from posbias.core.events import Event, OnEvent
from posbias.core.interruption import KEPT, Deferred, Pace
from posbias.core.logs import labelled

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""The environment variables that say how many threads numerical libraries use."""
PATIENCE = 60.0
"""Seconds that a process is given to end when it is asked to."""
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
class LogLine:
    """A log record of another process."""

    logger: str
    level: int
    text: str


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
OnMessage = Callable[[int, Event | Last], None]
"""Called, in the thread of `Engine.run`, with a task's number and its message."""
Send = Callable[[Event | LogLine], None]


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
    """An engine that performs tasks here, one after another."""

    shares_disk = True

    def run(self, tasks: Sequence[Task], on_message: OnMessage) -> None:
        """As `Engine` says."""
        refused: list[BaseException] = []
        for number, task in enumerate(tasks):

            def on_event(event: Event, number: int = number) -> None:
                try:
                    on_message(number, event)
                except BaseException as error:
                    refused.append(error)
                    raise

            with labelled(task.label):
                last = perform(task, on_event)
            if refused:
                raise refused[0]
            on_message(number, last)


class Processes:
    """An engine of so many processes on this machine, of one thread each.

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
        workers = [_Worker() for _ in range(min(self.workers, len(tasks)))]
        try:
            while waiting or any(worker.task for worker in workers):
                for worker in workers:
                    if waiting and worker.task is None:
                        worker.begin(tasks, *waiting.popleft())
                busy = {worker.reader: worker for worker in workers if worker.task and worker.reader}
                for ready in readable([*busy]):
                    worker = busy[ready]  # type: ignore[index]
                    number, attempt = worker.number, worker.attempt
                    try:
                        for message in worker.read():
                            deliver(tasks, on_message, number, message)
                    except BrokenExecutor:
                        if attempt <= self.retries:
                            waiting.appendleft((number, attempt + 1))
                        deliver(tasks, on_message, number, _lost(attempt, self.retries))
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

    One that fails is logged and stops no other. `on_event` hears of all of them together, in `unit`: one each, or
    their `sizes`. A task is not done before its result is kept. Whatever stops it, what was kept stays. Raises
    KeyboardInterrupt on Ctrl-C, saying what is `kept` and how long the rest takes, and what `keep` and the engine
    raise.
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
            done = sum(one * share for one, share in zip(size, shares, strict=True))
            on_event(Event(round(done, 2), sum(size), unit))

    try:
        (engine or InProcess()).run([*tasks.values()], on_message)
    except KeyboardInterrupt:
        parts = [*zip(size, (first.get(number, 0.0) for number in range(len(keys))), shares, strict=True)]
        done = sum(one * (share - begun) for one, begun, share in parts)
        left = sum(one * (1 - share) for one, _, share in parts)
        raise KeyboardInterrupt(pace.goes_on(kept(), done, left)) from None
    return failed


def perform(task: Task, on_event: Callable[[Event], None]) -> Last:
    """Do a task. Lets only KeyboardInterrupt through."""
    try:
        return Result(task.call(**task.arguments, on_event=on_event))
    except Exception as error:
        kind, said = type(error).__name__, " ".join(str(error).split())
        message = said if isinstance(error, PosbiasError) else f"{kind}: {said}"
        return Failed(message, kind, traceback.format_exc())


def perform_remotely(task: Task, level: int, send: Send, pause: float) -> Last:
    """`perform` in another process than the caller's: sends what is logged too, events every `pause` seconds."""
    last = -pause

    def on_event(event: Event) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= pause or event.done == event.total:
            last = now
            send(event)

    handler = logging.Handler()
    handler.emit = lambda record: send(LogLine(record.name, record.levelno, record.getMessage()))
    _LOG.setLevel(level)
    _LOG.addHandler(handler)
    try:
        return perform(task, on_event)
    finally:
        _LOG.removeHandler(handler)


def deliver(
    tasks: Sequence[Task], on_message: OnMessage, number: int, message: Event | LogLine | Last
) -> None:
    """Log a task's words as if they were said here; anything else is for `on_message`."""
    if isinstance(message, LogLine):
        with labelled(tasks[number].label):
            logging.getLogger(message.logger).log(message.level, "%s", message.text)
    else:
        on_message(number, message)


def _lost(attempt: int, retries: int) -> LogLine | Failed:
    """What is said when a process ended in the middle of a task: it is tried again, or has failed."""
    how = "its worker ended (a machine that runs out of memory ends one)"
    if attempt <= retries:
        return LogLine(__name__, logging.WARNING, f"{how}; tried again ({attempt} of {retries})")
    return Failed(f"{how}{f', {attempt} times' if attempt > 1 else ''}; {KEPT}", "WorkerError")


# --- one process: the caller's side ---------------------------------------------------------------------------


class _Worker:
    """A pool of one process, so that one that is killed takes no other with it; messages come through a pipe."""

    def __init__(self) -> None:
        self.reader: Connection | None = None
        self.task: Future[Last] | None = None
        self.number, self.attempt = -1, 0
        self._pool: ProcessPoolExecutor | None = None
        self._process = 0

    def begin(self, tasks: Sequence[Task], number: int, attempt: int) -> None:
        """Hand a task over, to a new process where there is none."""
        self.number, self.attempt, writer = number, attempt, None
        if self._pool is None:
            self.reader, writer = _SPAWN.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(1, _SPAWN, _prepare, (writer,))
        try:
            with _without_script():
                self.task = self._pool.submit(_work, tasks[number], _LOG.getEffectiveLevel())
        except BrokenExecutor:  # it was ended between two tasks
            self.close()
            self.begin(tasks, number, attempt)
            return
        if writer is not None:
            writer.close()  # the process has its own: when that ends, so does what can be read

    def read(self) -> Iterator[Event | LogLine | Last]:
        """What has come since. Raises `BrokenExecutor` when the process has ended."""
        assert self.reader is not None
        assert self.task is not None
        message = None
        with contextlib.suppress(EOFError):
            message = self.reader.recv()
        if isinstance(message, int):
            self._process = message
        elif message is not None:
            yield message
        else:
            task, self.task = self.task, None
            try:
                result = task.result()
            except BrokenExecutor:
                self.close()
                raise
            except Exception as error:  # what cannot travel back
                result = Failed(f"{type(error).__name__}: {error}", type(error).__name__)
            yield result

    def stop(self) -> None:
        """Ask the process to end what it does."""
        if self.task is not None and not self.task.done():
            if not self._process and self.reader is not None and self.reader.poll(PATIENCE):
                self._process = self.reader.recv()
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process whatever it does."""
        if self.task is not None and not self.task.done():
            self._signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Wait for the process to end, and forget it."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self.reader is not None:
            self.reader.close()
        self._pool, self.reader, self._process = None, None, 0

    def _signal(self, number: int) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, number)


def _end(workers: Sequence[_Worker]) -> None:
    """End workers, with time for what they want to keep; without it at a second Ctrl-C."""
    try:
        for worker in workers:
            with contextlib.suppress(EOFError, OSError):
                worker.stop()
        deadline, left = time.monotonic() + PATIENCE, [one.task for one in workers if one.task is not None]
        while left and time.monotonic() < deadline:
            for worker in workers:  # a process that cannot tell what it has to say does not end
                with contextlib.suppress(Exception):  # whatever is in the pipe of one that was interrupted
                    while worker.task in left and worker.reader is not None and worker.reader.poll():
                        worker.reader.recv()
            left = [*wait(left, PAUSE).not_done]
    finally:
        for worker in workers:
            worker.kill()


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


@dataclass
class _WorkerState:
    """What a worker process knows of itself."""

    writer: Connection | None = None
    busy: bool = False
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self, *_: Any) -> None:
        self.stopped = True
        if self.busy:
            raise KeyboardInterrupt

    def send(self, message: Any) -> None:
        assert self.writer is not None
        with self.lock, contextlib.suppress(OSError):  # a caller that is gone hears nothing
            self.writer.send(message)


_STATE = _WorkerState()


def _prepare(writer: Connection) -> None:
    """Begin a worker's life: one thread, deaf to Ctrl-C, which is the caller's; it ends with its caller."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    os.dup2(2, 1)  # stdout is the answer's
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _STATE.stop)
    _STATE.writer = writer
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    _STATE.send(os.getpid())


def _end_with_the_caller() -> None:
    caller = multiprocessing.parent_process()
    assert caller is not None
    caller.join()
    if _STATE.busy:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while _STATE.busy and time.monotonic() < deadline:
        time.sleep(PAUSE)
    os._exit(1)


def _work(task: Task, level: int) -> Last:
    """Perform a task in a worker process; None comes last through the pipe."""
    _STATE.busy = True
    try:
        if _STATE.stopped:
            raise KeyboardInterrupt
        return perform_remotely(task, level, _STATE.send, PAUSE)
    except KeyboardInterrupt:
        os._exit(1)
    finally:
        _STATE.busy = False
        _STATE.send(None)
