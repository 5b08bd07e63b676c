"""Many machines: an engine on a Ray cluster, with `pip install 'posbias[cluster]'`.

    from posbias.core.cluster import Cluster

    Cluster("auto").run(tasks, on_message)        # or HOST:PORT, ray://HOST:PORT, local

A task travels as a function and its arguments, its result comes back with the files it made in it: the machines
need posbias, in the same version, and no folder in common. Each task has the cores and GPUs it asks for, and one
thread for each core. When a worker or a whole machine dies, Ray tries its tasks again on others.
"""

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from posbias import __version__
from posbias.core.errors import ClusterError, nearest, shortened, whole, wrong
from posbias.core.packages import need
from posbias.core.progress import KEPT, Event
from posbias.core.running import THREADS, Failed, Last, OnMessage, Task, deliver, perform_remotely

PAUSE = 0.5
"""Least seconds between two messages of a task about its progress, and between two looks at what came."""
PATIENCE = 5.0
"""Seconds in which an address has to answer, and in which cancelled tasks have to end."""
CONNECTIONS = 3
"""Times that a head is asked for a connection from outside."""


class Cluster:
    """An engine on the Ray cluster at `address`: "auto", "HOST:PORT", "ray://HOST:PORT", or "local" (one's own).

    "auto" is what RAY_ADDRESS says, else the cluster this machine is part of. A task whose worker or machine dies
    is tried again `retries` times, then it fails with `WorkerError`. Raises `ClusterError` within seconds when the
    address is malformed or does not answer, `MissingPackageError` without Ray, `InvalidValueError` for
    `retries` that are no number.
    """

    shares_disk = False

    def __init__(self, address: str, retries: int = 3):
        need("ray", work="a cluster", extra="cluster")
        self.retries, self._address = whole("retries", retries, 0), _answering(address)

    def run(self, tasks: Sequence[Task], on_message: OnMessage) -> None:
        """As `posbias.core.running.Engine` says.

        Raises `ClusterError` when no machine has the cores and GPUs that a task asks for, when one has another
        version of posbias, and when the cluster is lost; `InvalidValueError` for more than one GPU and a part of
        another.
        """
        if parts := [task.gpus for task in tasks if task.gpus > 1 and task.gpus != int(task.gpus)]:
            # Ray shares a GPU out in parts, or gives whole ones
            raise wrong("gpus", "a number from 0 to 1 or a whole number", parts[0])
        if not tasks:
            return
        with _connected(self._address) as ray:
            try:
                _need_resources(ray, tasks)
                self._run(ray, tasks, on_message)
            except (ConnectionError, ray.exceptions.RayError) as error:
                said = f"ray: the connection to {self._address} broke ({_tail(error)}); {KEPT}"
                raise ClusterError(said) from error

    def _run(self, ray: Any, tasks: Sequence[Task], on_message: OnMessage) -> None:
        from ray.util.queue import Queue

        messages = Queue(actor_options={"num_cpus": 0})
        level, remote = logging.getLogger("posbias").getEffectiveLevel(), ray.remote(_perform)
        pending: dict[Any, int] = {}
        try:
            for number, task in enumerate(tasks):
                threads = dict.fromkeys(THREADS, str(max(1, int(task.cores))))
                on_a_machine = remote.options(
                    num_cpus=task.cores,
                    num_gpus=task.gpus,
                    max_retries=self.retries,
                    name=task.label or f"task {number}",
                    runtime_env={"env_vars": threads},
                )
                pending[on_a_machine.remote(task, number, level, __version__, messages)] = number
            while pending:
                ready, _ = ray.wait([*pending], num_returns=1, timeout=PAUSE)
                running = set(pending.values())
                with contextlib.suppress(ray.exceptions.RayError):  # the queue may be lost with its machine
                    for number, message in messages.get_nowait_batch(messages.qsize()):
                        if number in running:
                            deliver(tasks, on_message, number, message)
                for one in ready:
                    number = pending.pop(one)
                    on_message(number, _last(ray, one))
        except BaseException:
            _cancel(ray, [*pending])
            raise


def _perform(task: Task, number: int, level: int, version: str, messages: Any) -> Last:
    """A task, on a machine of the cluster."""
    if version != __version__:
        expected = f"posbias {version} on {socket.gethostname()} as here"
        return Failed(f"ray: expected {expected}, got {__version__}", "ClusterError")

    def send(message: Event | logging.LogRecord) -> None:
        with contextlib.suppress(Exception):  # no progress is no harm
            messages.put((number, message), timeout=PATIENCE)

    return perform_remotely(task, level, send, PAUSE)


def _last(ray: Any, one: Any) -> Last:
    """What a task ended with. Raises `ClusterError` where posbias cannot be used on its machine."""
    try:
        last = ray.get(one)
    except ray.exceptions.RayTaskError as error:
        # nothing that the task itself raises: it could not be begun
        expected = f"posbias {__version__} on every machine"
        raise wrong("ray", expected, got=_tail(error), kind=ClusterError) from error
    except ray.exceptions.RayError as error:
        return Failed(f"its worker was lost ({type(error).__name__}); {KEPT}", "WorkerError")
    if isinstance(last, Failed) and last.kind == "ClusterError":
        raise ClusterError(last.message)
    return last


def _cancel(ray: Any, pending: list[Any]) -> None:
    """Interrupt what runs, and end it if that does not help: a task may be in the middle of compiled code."""
    for force in (False, True):
        with contextlib.suppress(Exception):
            for one in pending:
                ray.cancel(one, force=force)
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=PATIENCE, fetch_local=False)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected; if it was so already, it stays so."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # no cluster of its own after the head is lost
    import ray
    import ray.exceptions

    connected = ray.is_initialized()
    with contextlib.redirect_stdout(sys.stderr):  # what Ray thinks of a lost machine is no answer
        try:
            if not connected:
                _connect(ray, address)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise ClusterError(f"ray: cannot connect to {address} ({_tail(error)})") from error
        try:
            yield ray
        finally:
            if not connected:
                ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Connect; on a busy head the interpreter that it starts for a client may end early, once or twice."""
    own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    for attempt in range(CONNECTIONS):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
            return
        except (ConnectionAbortedError, RuntimeError):
            if not address.startswith("ray://") or attempt + 1 == CONNECTIONS:
                raise
            time.sleep(2.0**attempt)


def _answering(address: str) -> str:
    """An address, if something answers there: Ray itself tries for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    if address in ("auto", "local"):
        return address
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:
        expected = "auto, local, HOST:PORT or ray://HOST:PORT of a cluster that answers"
        got = f"{shortened(address)}{nearest(address, ['auto', 'local'])} ({error})"
        raise wrong("ray", expected, got=got, kind=ClusterError) from None
    return address


def _need_resources(ray: Any, tasks: Sequence[Task]) -> None:
    """Refuse what would wait for ever."""
    machines = [one["Resources"] for one in ray.nodes() if one["Alive"]]
    for cores, gpus in {(task.cores, task.gpus) for task in tasks}:
        if not any(one.get("CPU", 0) >= cores and one.get("GPU", 0) >= gpus for one in machines):
            there = ", ".join(f"{one.get('CPU', 0):g} and {one.get('GPU', 0):g}" for one in machines)
            expected = f"a machine with {cores:g} cores and {gpus:g} GPUs"
            raise wrong("ray", expected, got=f"machines with {there}", kind=ClusterError)


def _tail(error: Exception) -> str:
    """The end of Ray's words, which says what was wrong, on one line."""
    return " ".join(str(error).split())[-200:] or type(error).__name__
