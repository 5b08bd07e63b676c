"""Engines: every task has one last news, whoever does it; nothing outlives the caller; threads of torch."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import piecework
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from piecework import heard_of, task
from project import ROOT
from setting import logged

from posbias.core import progress
from posbias.core.errors import InputFileError, InvalidValueError, WorkerError
from posbias.core.machine import leaving_a_core, torch_threads
from posbias.core.progress import Event
from posbias.core.running import THREADS, InProcess, Processes, Result

HERE = ROOT / "tests" / "support"
numbers = st.lists(st.tuples(st.integers(0, 255), st.integers(-9, 9)), max_size=6)


@pytest.fixture(autouse=True)
def path_of_the_tasks(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)


def lasts(engine, tasks):
    return [one[-1] for one in heard_of(engine, tasks)]


@pytest.fixture
def others():
    """The processes that tests before this one have started: a server that forks stays to the end."""
    return children()


def children():
    """The processes that this one has started and that still run."""
    listed = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(word) for words in listed for word in words.split()}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@settings(max_examples=4)
@given(numbers, st.integers(1, 3))
def test_processes_find_what_is_found_here(pairs, processes):
    tasks = [task("add", one=one, two=two) for one, two in pairs]
    with logged() as words_here:
        here = heard_of(InProcess(), tasks)
    with logged() as words_there:
        there = heard_of(Processes(processes), tasks)
    assert words_here == [f"adding {two} to {one}" for one, two in pairs]
    assert sorted(words_here) == sorted(words_there)
    assert [one[-1] for one in here] == [one[-1] for one in there]
    for number, (one, two) in enumerate(pairs):
        files = {"one": bytes([one, 0, 255])}
        assert here[number][-1].value == {"sum": one + two, "both": (one, two), "files": files}
        assert Event(2, 2, "sum") in here[number]
        assert Event(2, 2, "sum") in there[number]


@pytest.mark.parametrize("engine", [InProcess(), Processes(2)], ids=["here", "processes"])
def test_a_task_that_fails_says_why_and_stops_no_other(engine):
    tasks = [task("refuse", what="file"), task("refuse", what="bug"), task("refuse", what="", unknown=1)]
    events = lasts(engine, [*tasks, task("add", one=1, two=2)])
    assert (events[0].message, events[0].kind) == ("x.toml: no such file", "InputFileError")
    assert (events[1].message, events[1].kind) == ("ValueError: two lines", "ValueError")
    assert "unexpected keyword argument 'unknown'" in events[2].message
    assert events[3].value["sum"] == 3
    with pytest.raises(InputFileError, match=r"x\.toml") as caught:
        raise events[0].error()
    assert "piecework" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="ValueError: two lines"):
        raise events[1].error()


def test_a_killed_worker_is_replaced_and_its_task_tried_again(tmp_path, capsys, others):
    names = [f"cell{number}" for number in range(5)]
    tasks = [task("die", name, marks=str(tmp_path), name=name, times=int(name == "cell1")) for name in names]
    with progress.on_stderr():
        heard = heard_of(Processes(2), tasks)
    assert heard == [[Result(name)] for name in names]
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {*(f"{name}-0" for name in names), "cell1-1"}
    assert not children() - others


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3)])
def test_what_keeps_killing_its_worker_fails_in_the_end(tmp_path, retries, attempts):
    hungry = task("die", "hungry", marks=str(tmp_path), name="hungry", times=99)
    events = lasts(Processes(1, retries=retries), [hungry, *[task("add", one=1, two=2)] * 2])
    assert [one.value["sum"] for one in events[1:]] == [3, 3]
    assert len(list(tmp_path.iterdir())) == attempts
    with pytest.raises(WorkerError):
        raise events[0].error()


def test_what_cannot_travel_is_refused_or_fails_alone():
    with pytest.raises(Exception, match="pickle"):
        Processes(1).run([task("refuse", what=lambda: None)], lambda number, message: None)
    events = lasts(Processes(1), [task("refuse", what="unpicklable"), task("add", one=1, two=2)])
    assert "pickle" in events[0].message
    assert events[1].value["sum"] == 3


def test_a_worker_has_one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (events,) = lasts(Processes(1), [task("threads")])
    assert events.value.items() >= dict.fromkeys(THREADS, "1").items()


@pytest.mark.parametrize(
    ("engine", "error"),
    [(InProcess(), KeyboardInterrupt), (Processes(2), KeyboardInterrupt), (Processes(2), OSError)],
)
def test_what_is_raised_here_stops_all_work(engine, error, others):
    heard = []

    def hear(number, news):
        heard.append(news)
        raise error("enough")

    with pytest.raises(error, match="enough"):
        engine.run([task("sleep", seconds=600)] * 4, hear)
    assert len(heard) == 1
    assert not children() - others


CALLER = """
import sys
import piecework
from posbias.core.running import Processes, Task

tasks = [Task(piecework.sleep, {"seconds": 600, "marks": sys.argv[1]})] * 3
try:
    Processes(2).run(tasks, lambda number, news: None)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("with_what", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent_even_in_a_quiet_task(tmp_path, with_what):
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        piecework.wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        parent.send_signal(with_what)
        answer, events = parent.communicate(timeout=300)
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 2
    piecework.wait_for(lambda: not any(map(alive, started)))
    assert answer == ("interrupted\n" if with_what == signal.SIGINT else "")
    # Python's own, of a caller that was killed
    assert not events or "resource_tracker" in events.splitlines()[0]


def test_threads_are_as_before_after_the_block():
    before = torch.get_num_threads()
    with torch_threads(before + 2):
        assert torch.get_num_threads() == before + 2
        with torch_threads(None):
            assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
    assert 1 <= leaving_a_core() <= before
    with pytest.raises(InvalidValueError, match="threads: expected"), torch_threads(0):
        pass
