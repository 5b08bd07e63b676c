"""Many machines: an engine on a Ray cluster, with `pip install 'posbias[cluster]'`.

    from posbias.core.execution import Cluster

    Cluster("auto").run(tasks, hear)        # or HOST:PORT, ray://HOST:PORT, local

A task goes out as the name of a function and its arguments, its result comes back as JSON, with the files it made
in it: the machines need posbias, in the same version, and no folder in common. Each task has the cores and GPUs it
asks for, and one thread for each core. When a worker or a whole machine dies, its tasks are tried again on
others; what they tell of their progress travels through an actor that may die without harm.
"""

import contextlib
import logging
import math
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posbias import __version__
from posbias.core.arguments import whole
from posbias.core.errors import ClusterError, InvalidValueError
from posbias.core.execution.address import Head, find_cluster
from posbias.core.execution.processes import THREADS
from posbias.core.execution.tasks import (
    Event,
    Failed,
    Hear,
    Task,
    Words,
    deliver,
    lost,
    perform_remotely,
    read_news,
    spell_news,
    spell_task,
)
from posbias.core.interruption import KEPT

VERSION = __version__
PAUSE = 0.5
"""Least seconds between two messages of a task about its progress, and between two looks at what came."""
CONNECTIONS = 4
"""Times that a head is asked for a connection: on a busy one the interpreter it starts for that may end early."""
PATIENCE = 3.0
"""Seconds that tasks are given to end when they are cancelled, and a line of theirs to be posted."""


class Cluster:
    """An engine on the Ray cluster at `address`: "auto", "HOST:PORT", "ray://HOST:PORT", or "local" (one's own).

    "auto" is what RAY_ADDRESS says, else the cluster this machine is part of. A task whose worker or machine dies
    is tried again `retries` times, then it fails with `WorkerError`. Raises `ClusterError` within seconds when the
    address is spelt wrongly or no cluster answers, `MissingPackageError` without Ray, `InvalidValueError` for
    `retries` that are no number.
    """

    shares_disk = False

    def __init__(self, address: str, retries: int = 3):
        self.retries, self._address = whole("retries", retries, 0), find_cluster(address)

    def run(self, tasks: Sequence[Task], hear: Hear) -> None:
        """As `posbias.core.execution.Engine` says.

        Raises `ClusterError` when no machine has the cores and GPUs that a task asks for, when one has another
        version of posbias, and when the head is gone; `InvalidValueError` for more than one GPU and a part of
        another.
        """
        lines = [spell_task(task) for task in tasks]
        _check_shares(tasks)
        if not tasks:
            return
        with _connected(self._address) as ray:
            client = self._address.startswith("ray://")
            where = self._address if client else ray.get_runtime_context().gcs_address
            head = Head(where.removeprefix("ray://"))
            try:
                _need_resources(ray, tasks)
                _Run(ray, tasks, lines, self.retries, hear, head).finish()
            except (ConnectionError, ray.exceptions.RayError) as error:
                if head.answers():
                    raise ClusterError(
                        f"ray: the connection to {self._address} broke ({last_line(str(error))}); {KEPT}"
                    ) from error
                raise head.lost() from error


class _Run:
    """Tasks on their way: which attempt of which is pending, and who hears of it."""

    def __init__(
        self, ray: Any, tasks: Sequence[Task], lines: Sequence[str], retries: int, hear: Hear, head: Head
    ):
        self._ray, self._tasks, self._lines, self._retries, self._hear = ray, tasks, lines, retries, hear
        self._head = head
        self._pending: dict[Any, tuple[int, int]] = {}
        self._mailbox = _mailbox(ray)
        self._looked = time.monotonic()

    def finish(self) -> None:
        """Perform all tasks; whatever is raised cancels them."""
        ray = self._ray
        try:
            for number in range(len(self._tasks)):
                self._send(number, 1)
            while self._pending:
                ready, _ = ray.wait([*self._pending], num_returns=1, timeout=PAUSE, fetch_local=False)
                if ready or time.monotonic() - self._looked >= PAUSE:
                    self._look()
                for one in ready:
                    self._receive(one, *self._pending.pop(one))
                self._head.need()
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        """Interrupt what runs, and end it if that does not help: a task may be in the middle of compiled code."""
        for force in (False, True):
            for one in self._pending:
                with contextlib.suppress(Exception):
                    self._ray.cancel(one, force=force)
            with contextlib.suppress(Exception):
                left = [*self._pending]
                _, left = self._ray.wait(left, num_returns=len(left), timeout=PATIENCE, fetch_local=False)
                self._pending = {one: self._pending[one] for one in left}

    def _send(self, number: int, attempt: int) -> None:
        """Hand a task to Ray, which is to try it once: retries are counted here, and told."""
        task = self._tasks[number]
        threads = dict.fromkeys(THREADS, str(max(1, int(task.cores))))
        remote = self._ray.remote(_perform).options(
            num_cpus=task.cores,
            num_gpus=task.gpus,
            max_retries=0,
            name=task.label or f"task {number}",
            runtime_env={"env_vars": threads},
        )
        sent = remote.remote(self._lines[number], VERSION, number, attempt, self._mailbox)
        self._pending[sent] = number, attempt

    def _receive(self, one: Any, number: int, attempt: int) -> None:
        """Pass on a task's last news, or try it again."""
        from ray import exceptions

        try:
            told = read_news(self._ray.get(one))
        except exceptions.RayTaskError as error:
            # nothing that the task itself raises: it could not be begun
            raise ClusterError(
                f"ray: posbias cannot be used on a machine of the cluster ({last_line(str(error))}); posbias "
                f"{VERSION} needed on all"
            ) from error
        except exceptions.RayError as error:
            how = _HOW.get(type(error).__name__, f"was lost ({type(error).__name__})")
            told = lost(how, attempt, self._retries)
            if isinstance(told, Words):
                self._send(number, attempt + 1)
        if isinstance(told, Failed) and told.kind == "ClusterError":
            raise ClusterError(told.message)
        deliver(self._tasks, self._hear, number, told, attempt)

    def _look(self) -> None:
        """Pass on what running tasks tell of themselves."""
        self._looked = time.monotonic()
        news: list[tuple[int, int, Event | Words]] = []
        with contextlib.suppress(self._ray.exceptions.RayError):
            # not shorter: what a late answer holds would be lost, the mailbox has given it away
            news = self._ray.get(self._mailbox.take.remote(), timeout=PATIENCE)
        running = set(self._pending.values())
        for number, attempt, told in news:
            if (number, attempt) in running:
                deliver(self._tasks, self._hear, number, told)


_HOW = {
    "NodeDiedError": "was lost with its machine",
    "OutOfMemoryError": "was ended because its machine ran out of memory",
    "WorkerCrashedError": "died",
}


def _perform(line: str, version: str, number: int, attempt: int, mailbox: Any) -> str:
    """A task, on a machine of the cluster."""
    import ray
    import ray.exceptions

    if version != VERSION:
        told = f"ray: posbias {VERSION} given on {socket.gethostname()}, {version} as on this machine needed"
        return spell_news(Failed(told, "ClusterError"))

    def tell(news: Event | Words) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            put = mailbox.put.remote(number, attempt, news)
            if isinstance(news, Words):
                ray.get(put, timeout=PATIENCE)

    return perform_remotely(line, tell, PAUSE)


class _Mailbox:
    """News on their way; of a task's events only the last is worth keeping."""

    def __init__(self) -> None:
        self._words: list[tuple[int, int, Words]] = []
        self._events: dict[tuple[int, int], Event] = {}

    def put(self, number: int, attempt: int, news: Event | Words) -> None:
        if isinstance(news, Event):
            self._events[number, attempt] = news
        else:
            self._words.append((number, attempt, news))

    def take(self) -> list[tuple[int, int, Event | Words]]:
        taken = [*self._words, *((*key, event) for key, event in self._events.items())]
        self._words, self._events = [], {}
        return taken


def _mailbox(ray: Any) -> Any:
    """The actor that news go through, beside the driver where that is possible, elsewhere again if it dies."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(_Mailbox).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected; if it was so already, it stays so."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    import ray.exceptions
    from ray._private import auto_init_hook, worker

    connected = ray.is_initialized()
    # Ray prints what it thinks of a lost machine on stdout, which is the answer's
    before, worker._worker_logs_enabled = worker._worker_logs_enabled, False
    # and begins a cluster of its own on this machine at the first call after the head is lost
    begins, auto_init_hook.enable_auto_connect = auto_init_hook.enable_auto_connect, False
    try:
        if not connected:
            _connect(ray, address)
        yield ray
    finally:
        if not connected:
            ray.shutdown()
        worker._worker_logs_enabled = before
        auto_init_hook.enable_auto_connect = begins


def _connect(ray: Any, address: str) -> None:
    """Connect, or say in one line why that cannot be."""
    own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    for attempt in range(CONNECTIONS):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
            return
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            if isinstance(error, ConnectionAbortedError) and attempt + 1 < CONNECTIONS:
                time.sleep(PAUSE * 2**attempt)
                continue
            inside = not address.startswith("ray://") and address != "local"
            hint = (
                "; this machine has to be one of the cluster (`ray start --address HOST:PORT` joins it), or "
                "ray://HOST:10001 given"
            )
            why = last_line(str(error)) + _head_log(address, str(error))
            raise ClusterError(f"ray: cannot connect to {address} ({why}){hint if inside else ''}") from error


def _head_log(address: str, message: str) -> str:
    """The last line of the error file that Ray's message names, if the head is this machine."""
    from ray._common.utils import get_default_ray_temp_dir

    named = re.search(r"ray_client_server_\d+(?=\.err)", message)
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]")
    if named is None or host not in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        return ""
    logs = Path(get_default_ray_temp_dir(), "session_latest", "logs").glob(f"{named[0]}*.err")
    for path in sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True):
        return f" It ends: {last_line(path.read_text(errors='replace'))}"
    return ""


def _check_shares(tasks: Sequence[Task]) -> None:
    """Ray shares a GPU out in parts, or gives whole ones."""
    for task in tasks:
        for name, given in (("cores", task.cores), ("gpus", task.gpus)):
            if not 0 <= given < math.inf or (name == "gpus" and given > 1 and given != int(given)):
                raise InvalidValueError(
                    f"{name}: {given} given, a number from 0 to 1 or a whole number needed"
                )


def _need_resources(ray: Any, tasks: Sequence[Task]) -> None:
    """Refuse what would wait for ever."""
    machines = [one["Resources"] for one in ray.nodes() if one["Alive"]]
    for cores, gpus in {(task.cores, task.gpus) for task in tasks}:
        if not any(one.get("CPU", 0) >= cores and one.get("GPU", 0) >= gpus for one in machines):
            there = ", ".join(f"{one.get('CPU', 0):g} and {one.get('GPU', 0):g}" for one in machines)
            raise ClusterError(
                f"ray: a machine with {cores:g} cores and {gpus:g} GPUs needed, those of the cluster have {there}"
            )


def last_line(text: str) -> str:
    """The last line of Ray's words; of what gRPC tells over several lines, its details."""
    details = re.search(r'^\s*details = "(.+)"$', text, re.MULTILINE)
    if details:
        return details[1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was said"
