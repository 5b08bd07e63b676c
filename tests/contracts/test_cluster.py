"""A real Ray cluster of two machines does what is done here, also when a worker or a machine dies."""

import contextlib
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import piecework
import pytest
from piecework import heard_of, task
from project import ROOT

from posbias.core import cluster as module
from posbias.core.cluster import Cluster
from posbias.core.errors import ClusterError, InvalidValueError
from posbias.core.running import Failed, InProcess, Last, Result

ray = pytest.importorskip("ray", reason="many machines need Ray")
RayCluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def here():
    """A cluster of a head without cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")  # whatever token the person who runs the tests may have
        patch.setenv("PYTHONPATH", str(ROOT / "tests" / "support"), prepend=os.pathsep)
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80_000_000}
        made = RayCluster(initialize_head=True, head_node_args=head)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def machines(here):
    """Two machines of it, of one core each."""
    while len(here.worker_nodes) < 2:
        here.add_node(num_cpus=1, object_store_memory=80_000_000)
    return [*here.worker_nodes]


@pytest.fixture
def connected(here, machines):
    """The cluster with this process connected, which spares every test of that some seconds."""
    if not ray.is_initialized():
        ray.init(here.address, log_to_driver=False)
    return here


def performing(machine):
    """The processes of a machine that perform a task, with its label: Ray titles a worker by what it does."""
    raylet, found = machine.all_processes["raylet"][0].process.pid, {}
    for number in Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split():
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{number}/cmdline").read_text(errors="replace").rstrip("\0")
            if re.match("ray::(?!IDLE|_|DashboardAgent|RuntimeEnvAgent)", title):
                found[int(number)] = title.removeprefix("ray::")
    return found


def test_a_cluster_finds_what_is_found_here(connected, caplog):
    caplog.set_level("INFO", "posbias")
    tasks = [task("add", one=one, two=2) for one in range(4)]
    tasks += [task("refuse", what="file"), task("refuse", what="bug"), task("threads")]
    there, local = (heard_of(engine, tasks) for engine in (Cluster(connected.address), InProcess()))
    assert [one[-1] for one in there[:4]] == [one[-1] for one in local[:4]]
    assert there[0][-1].value["files"] == {"one": b"\x00\x00\xff"}
    for one, other in zip(there[4:6], local[4:6], strict=True):
        assert isinstance(one[-1], Failed)
        assert replace(one[-1], traceback="") == replace(other[-1], traceback="")
    assert caplog.messages.count("adding 2 to 3") == 2
    assert set(there[6][-1].value.values()) == {"1"}


def test_a_killed_worker_process_costs_its_task_one_attempt(connected, tmp_path):
    tasks = [
        task("die", name, marks=str(tmp_path), name=name, times=times)
        for name, times in (("whole", 0), ("once", 1), ("always", 99))
    ]
    whole, once, always = heard_of(Cluster(connected.address, retries=1), tasks)
    assert (whole, once) == ([Result("whole")], [Result("once")])
    assert always[-1].kind == "WorkerError"
    assert "its worker was lost (WorkerCrashedError); what is finished is kept" in always[-1].message
    attempts = Counter(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert attempts == {"whole": 1, "once": 2, "always": 2}


@pytest.mark.slow
def test_tasks_of_a_killed_machine_are_done_by_the_other_and_all_once(connected, machines, tmp_path):
    names = [f"cell{number}" for number in range(8)]
    tasks = [task("die", name, marks=str(tmp_path), name=name, times=0, seconds=1.0) for name in names]
    finished = []

    def kill(number, news):
        finished.extend([number] * isinstance(news, Last))
        if len(finished) == 2 and isinstance(news, Last):
            piecework.wait_for(lambda: performing(machines[0]))
            connected.remove_node(machines[0], allow_graceful=False)

    heard = heard_of(Cluster(connected.address), tasks, kill)
    assert [one[-1].value for one in heard] == names
    assert sorted(finished) == list(range(8))


def test_another_version_of_posbias_is_refused_with_both(connected, monkeypatch):
    own = module.__version__
    monkeypatch.setattr(module, "__version__", "9.9.9")
    with pytest.raises(ClusterError, match=f"expected posbias 9.9.9 on .*, got {own}"):
        Cluster(connected.address).run([task("add", one=1, two=2)] * 3, lambda *news: None)


def test_what_no_machine_has_is_refused_and_not_waited_for(connected):
    with pytest.raises(ClusterError, match="expected a machine with 1 cores and 1 GPUs"):
        Cluster(connected.address).run([task("add", gpus=1, one=1, two=2)], lambda *news: None)
    with pytest.raises(InvalidValueError, match="gpus"):
        Cluster(connected.address).run([task("add", gpus=1.5, one=1, two=2)], lambda *news: None)
