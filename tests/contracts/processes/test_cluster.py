"""A real Ray cluster of two machines: what it does is what is done here, also when a worker or a machine dies."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import piecework
import pytest
from ray_cluster import RayCluster, free_port
from study_values import results

from posbias.core import cluster as module
from posbias.core.cluster import Cluster, engine_of
from posbias.core.errors import ClusterError, InvalidValueError
from posbias.core.running import Failed, InProcess, Last, Processes, Result, Task
from posbias.study import read_study, run_study

ray = pytest.importorskip("ray", reason="many machines need Ray")
pytestmark = pytest.mark.waits
POSBIAS = Path(sys.executable).with_name("posbias")
STUDY = """
question = "Does the recency bias vanish with the dimension?"
seeds = [0, 1]
[base]
kind = "simulate"
samples = 60_000
model.depth = 2
[sweep]
model.dimension = [16, 64, 256, 384]
"""
CELLS = """
seeds = [0, 1]
iterations = 30
batch = 16
evaluate_every = 10
[task]
items = 4
dimension = 16
classes = 64
labels = 4
burstiness = 2
[sweep]
network.depth = [1, 2]
"""


@pytest.fixture(scope="module")
def here():
    """A cluster of two machines of one core."""
    made = RayCluster(2)
    yield made
    ray.shutdown()
    made.stop()


@pytest.fixture
def connected(here):
    """The cluster with this process connected, which spares every test of that some seconds."""
    here.have(2)
    if not ray.is_initialized():
        ray.init(here.address, log_to_driver=False)
    return here


def task(function, label="", /, gpus=0, **arguments):
    return Task(getattr(piecework, function), arguments, label, gpus=gpus)


def heard_of(engine, tasks, watch=lambda number, news: None):
    """All news by task, once the engine is done; the last of each is its last."""
    heard = [[] for _ in tasks]

    def hear(number, news):
        heard[number].append(news)
        watch(number, news)

    engine.run(tasks, hear)
    for one in heard:
        assert [isinstance(news, Last) for news in one] == [False] * (len(one) - 1) + [True]
    return heard


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ── addresses ──


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("atuo", "did you mean 'auto'"),
        ("head", "ray"),
        ("head:99999", "ray"),
        ("http://head:6379", "ray"),
        ("no.such.host.invalid:6379", "no.such.host.invalid"),
        ("127.0.0.1:FREE", "127.0.0.1"),
        ("ray://127.0.0.1:FREE", "ray://"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused_at_once(address, words):
    with pytest.raises(ClusterError, match=words) as caught:
        engine_of(None, address.replace("FREE", str(free_port())))
    assert "\n" not in str(caught.value)


def test_a_number_of_retries_that_is_none_is_refused():
    with pytest.raises(InvalidValueError, match="retries: -1 given, an integer ≥ 0 needed"):
        Cluster("auto", retries=-1)


# ── tasks ──


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


def test_progress_comes_while_a_task_runs(connected, tmp_path):
    counts = []

    def hear(number, news):
        counts.append(getattr(news, "done", None))
        if len(counts) == 3:
            (tmp_path / "enough").touch()

    (heard,) = heard_of(Cluster(connected.address), [task("wait", path=str(tmp_path / "enough"))], hear)
    assert counts[:-1] == sorted(counts[:-1])
    assert counts[2] <= heard[-1].value < 600


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
def test_tasks_of_a_killed_machine_are_done_by_the_other_and_all_once(connected, tmp_path):
    names = [f"cell{number}" for number in range(8)]
    tasks = [task("die", name, marks=str(tmp_path), name=name, times=0, seconds=1.0) for name in names]
    finished = []

    def kill(number, news):
        finished.extend([number] * isinstance(news, Last))
        if len(finished) == 2 and isinstance(news, Last):
            wait_for(connected.machines[0].busy)
            connected.machines[0].kill()

    heard = heard_of(Cluster(connected.address), tasks, kill)
    assert [one[-1].value for one in heard] == names
    assert sorted(finished) == list(range(8))


@pytest.mark.slow
def test_an_interruption_ends_the_tasks_on_their_machines(connected):
    def interrupt(number, news):
        raise KeyboardInterrupt

    # a machine that has just come may not take tasks yet, and `sleep` alone says nothing
    wait_for(lambda: ray.available_resources().get("CPU", 0) == 2)
    began = [task("sleep", seconds=600), task("count", seconds=600)]
    with pytest.raises(KeyboardInterrupt):
        Cluster(connected.address).run(began, interrupt)
    wait_for(lambda: ray.available_resources().get("CPU", 0) == 2)


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


# ── commands ──


def started(folder, *arguments, **settings):
    """A command in a process of its own, as a user starts it, with environment variables."""
    return subprocess.Popen(
        [POSBIAS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | settings,
    )


@pytest.mark.slow
def test_a_study_survives_a_machine_that_is_killed(here, tmp_path):
    (tmp_path / "dimension.toml").write_text(STUDY)
    run_study(read_study(tmp_path / "dimension.toml"), tmp_path / "whole", engine=Processes(1))
    here.have(2)
    out = tmp_path / "out"
    process = started(
        tmp_path, "study", "run", "dimension.toml", "--ray", here.address, "--out", out, "--json"
    )
    wait_for(lambda: len(list((out / "cells").glob("*"))) >= 1, 120)
    wait_for(here.machines[0].busy)
    here.machines[0].kill()
    answer, errors_out = process.communicate(timeout=300)
    assert process.returncode == 0, errors_out
    assert json.loads(answer)["cells"]
    assert "Traceback" not in errors_out
    assert results(out) == results(tmp_path / "whole")
    sums = Counter(json.loads(path.read_text())["fingerprint"] for path in (out / "cells").iterdir())
    assert set(sums.values()) == {1}
    assert len(sums) == 8


@pytest.mark.slow
def test_cells_are_trained_on_a_cluster_as_they_are_here(here, tmp_path):
    here.have(2)
    (tmp_path / "small.toml").write_text(CELLS)
    common = ("train", "small.toml", "--sequences", "60", "--json")
    answers = []
    for options in (("--ray", f"ray://{here.client}", "--out", "there"), ("--threads", "1", "--out", "here")):
        process = started(tmp_path, *common, *options)
        answer, errors_out = process.communicate(timeout=300)
        assert process.returncode == 0, errors_out
        answers.append(json.loads(answer)["cells"])
    for one, two in zip(*answers, strict=True):
        assert one["gaps"] == two["gaps"]
        assert one["loss"] == two["loss"]
    names = [sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in ("here", "there")]
    assert names[0] == names[1]
    assert len(names[0]) == 4


def test_a_wrong_address_is_one_line_and_nothing_is_made(tmp_path):
    (tmp_path / "small.toml").write_text(CELLS)
    process = started(tmp_path, "train", "small.toml", "--ray", f"127.0.0.1:{free_port()}")
    answer, errors_out = process.communicate(timeout=300)
    assert process.returncode == 2
    assert not answer
    assert errors_out.startswith("posbias: ray: no cluster answers at 127.0.0.1")
    assert errors_out.count("\n") == 1
    process = started(tmp_path, "train", "small.toml", "--ray", "auto", "--threads", "2")
    assert "threads" in process.communicate(timeout=300)[1]
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]
