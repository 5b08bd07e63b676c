"""A real Ray cluster on this machine: a head without cores, and machines of one core that can be killed."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
RAY = Path(sys.executable).with_name("ray")
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",  # whatever token the person who runs the tests may have
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
}


def free_port():
    """A port that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Machine:
    """A Ray node in a session of its own, by which its processes are known."""

    def __init__(self, folder, *options):
        self.log = Path(tempfile.mkstemp(prefix="machine-", suffix=".log", dir=folder)[1])
        # given ports, since a node waits only so long for its agents to choose theirs
        names = ("dashboard-agent-listen", "dashboard-agent-grpc", "metrics-export", "runtime-env-agent")
        ports = [f"--{name}-port={free_port()}" for name in names]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [RAY, "start", "--block", "--object-store-memory=80000000", *options, *ports],
                env=os.environ | SETTINGS,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, seconds=120):
        """Until it runs."""
        deadline = time.monotonic() + seconds
        while "runtime started" not in self.log.read_text():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"a Ray node did not start: {self.log.read_text()}")
            time.sleep(0.1)

    def kill(self):
        """End all its processes at once, as a power cut does."""
        while members(self.process.pid):
            for one in members(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        self.process.wait()

    def performing(self):
        """The processes that perform a task, with its label: Ray titles a worker by what it does."""
        found = {}
        for one in members(self.process.pid):
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{one}/cmdline").read_bytes().decode(errors="replace").rstrip("\0")
                if title.startswith("ray::") and not title.startswith(("ray::IDLE", "ray::_", *AGENTS)):
                    found[one] = title.removeprefix("ray::")
        return found

    def busy(self):
        """Whether it performs a task."""
        return bool(self.performing())


def members(session):
    """The processes of a session that still run."""
    found = []
    # a glob would ask for processes that have just ended
    for number in (path.name for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            state, _, _, its_session = (
                Path("/proc", number, "stat").read_text().rpartition(")")[2].split()[:4]
            )
        except OSError:
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(number))
    return found


def started(folder, *options):
    """A machine that runs; on a busy computer Ray's half minute for that may pass in vain once or twice."""
    for attempt in range(3):
        machine = Machine(folder, *options)
        try:
            machine.wait()
            return machine
        except RuntimeError:
            machine.kill()
            if attempt == 2:
                raise
    raise AssertionError


class RayCluster:
    """A head at `address`, reached from outside at `client`, and `machines`."""

    def __init__(self, machines):
        self.tmpdir = tempfile.mkdtemp(prefix="r", dir="/tmp")  # sockets' paths are short
        self.folder = str(Path(self.tmpdir, "ray"))  # as with RAY_TMPDIR
        Path(self.folder).mkdir()
        self.address, self.client = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.machines = []
        options = ("--head", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self.folder}")
        ports = {"port": self.address, "ray-client-server-port": self.client}
        options += tuple(f"--{name}={where.rpartition(':')[2]}" for name, where in ports.items())
        self.head = None
        try:
            self.head = started(self.folder, *options)
            self.have(machines)
        except BaseException:
            self.stop()
            raise

    def have(self, machines):
        """Start as many machines as are missing."""
        self.machines = [one for one in self.machines if one.process.poll() is None]
        while len(self.machines) < machines:
            # one after another: two that start at once on one host may choose the same socket
            self.machines.append(started(self.folder, f"--address={self.address}", "--num-cpus=1"))

    def stop(self):
        """End everything and leave nothing."""
        for one in (self.head, *self.machines):
            if one is not None:
                one.kill()
        shutil.rmtree(self.tmpdir, ignore_errors=True)
