"""A killed training goes on from its checkpoint and ends with the same bits."""

import dataclasses
import itertools
import signal
import subprocess
import sys

import interruptible
import numpy as np
import pytest
from interruptible import JOB
from project import ROOT
from setting import logged

from posbias.core import store as checkpoints
from posbias.core.errors import InputFileError, OutputFileError
from posbias.core.progress import Deferred
from posbias.core.running import Processes, Task
from posbias.training import loop
from posbias.training.loop import train


@pytest.fixture(autouse=True)
def _write_at_every_iteration(monkeypatch):
    monkeypatch.setattr(loop, "PATIENCE", 0.0)
    monkeypatch.setattr(checkpoints, "LEAST", 0.0)


@pytest.fixture(scope="module")
def whole():
    """The training without an interruption."""
    return train(JOB, threads=1)


def same(ours, theirs):
    """Equal to the bit in all but what they cost."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.experiment == other.experiment
        assert one.stopped == other.stopped
        for name, weight in one.weights.items():
            assert np.array_equal(weight, other.weights[name], equal_nan=True), name
        assert one.curves.keys() == other.curves.keys()
        for name, curve in one.curves.items():
            assert np.array_equal(curve, other.curves[name], equal_nan=True), name


def interrupted(checkpoint, at, job=JOB):
    """Train until iteration `at`, and stop."""

    def on_event(event):
        if event.done == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, checkpoint=checkpoint, threads=1, on_event=on_event)


def heard():
    """The iterations that were done, and what fills the list."""
    numbers = []
    return numbers, lambda event: numbers.append(event.done)


@pytest.mark.parametrize("at", [1, 24, 25, 40, 60])
def test_resumed_results_are_bit_identical(whole, tmp_path, at):
    checkpoint = tmp_path / "job.safetensors"
    interrupted(checkpoint, at)
    numbers, on_event = heard()
    with logged() as said:
        same(train(JOB, checkpoint=checkpoint, threads=1, on_event=on_event), whole)
    assert numbers == list(range(at + 1, 61))
    assert said == [f"resuming after {at} iterations from {checkpoint}"]
    assert {path.name for path in tmp_path.iterdir()} == {"job.safetensors", "job.log.jsonl"}


def test_a_process_killed_at_any_time_resumes_bit_identically(whole, tmp_path):
    checkpoint = tmp_path / "job.safetensors"
    script = ROOT / "tests" / "support" / "interruptible.py"
    command = [sys.executable, script, checkpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [line.strip() for line in itertools.islice(process.stdout, 13)][-1] == "13"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    numbers, on_event = heard()
    resumed = train(JOB, checkpoint=checkpoint, threads=1, on_event=on_event)
    assert 14 <= numbers[0] <= 60
    assert numbers[-1] == 60
    same(resumed, whole)


@pytest.mark.parametrize("at", [1, *(pytest.param(at, marks=pytest.mark.slow) for at in (13, 37))])
def test_ctrl_c_keeps_the_iteration_that_was_reached(whole, tmp_path, at):
    """Of a process that writes its checkpoint at no other time."""
    checkpoint = tmp_path / "job.safetensors"
    command = [sys.executable, ROOT / "tests" / "support" / "interruptible.py", checkpoint, "never"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reports = [line.strip() for line in itertools.islice(process.stdout, at)]
        process.send_signal(signal.SIGINT)
        rest, error = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in error
    reached = int([*reports, *rest.split()][-1])
    assert at <= reached < 60
    numbers, on_event = heard()
    same(train(JOB, checkpoint=checkpoint, threads=1, on_event=on_event), whole)
    assert numbers == list(range(reached + 1, 61))


def test_a_worker_that_is_asked_to_end_keeps_the_iteration_that_was_reached(whole, tmp_path, monkeypatch):
    """By the SIGTERM that a stopped engine sends."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support"))
    checkpoint, reports = tmp_path / "job.safetensors", []

    def hear(number, news):
        reports.append(news.done)
        if news.done >= 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Processes(1).run([Task(interruptible.task, {"checkpoint": str(checkpoint)})], hear)
    numbers, on_event = heard()
    same(train(JOB, checkpoint=checkpoint, threads=1, on_event=on_event), whole)
    assert numbers[0] > reports[-1]
    assert numbers == list(range(numbers[0], 61))


def test_a_signal_waits_for_the_end_of_the_step():
    ended = []

    def work():
        with Deferred() as interruption:
            for step in range(10):
                if step == 3:
                    signal.raise_signal(signal.SIGINT)
                    signal.raise_signal(signal.SIGINT)
                ended.append(step)
                interruption.check()

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ended == [0, 1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_finished_training_is_not_trained_again(whole, tmp_path):
    train(JOB, checkpoint=tmp_path / "job", threads=1)
    before = (tmp_path / "job").read_bytes()
    numbers, on_event = heard()
    same(train(JOB, checkpoint=tmp_path / "job", threads=1, on_event=on_event), whole)
    assert numbers == []
    assert (tmp_path / "job").read_bytes() == before


def test_a_stopped_member_stays_stopped(tmp_path):
    """A member whose weights were made NaN in the checkpoint is stopped after resuming, as without."""
    job = [dataclasses.replace(JOB[0], learning_rate=1e30)]
    straight = train(job, threads=1)
    assert straight[0].stopped.keys() == {0, 1}
    interrupted(tmp_path / "job", 1, job)
    same(train(job, checkpoint=tmp_path / "job", threads=1), straight)
    same(train(job, checkpoint=tmp_path / "job", threads=1), straight)


def test_the_checkpoint_of_another_training_is_refused_with_both_names(tmp_path):
    interrupted(tmp_path / "job", 2)
    before = (tmp_path / "job").read_bytes()
    others = [
        JOB[:1],
        JOB[::-1],
        [dataclasses.replace(JOB[0], learning_rate=2e-2), dataclasses.replace(JOB[1], learning_rate=2e-2)],
    ]
    names = set()
    for other in others:
        with pytest.raises(InputFileError, match="belongs to another job") as error:
            train(other, checkpoint=tmp_path / "job", threads=1)
        words = str(error.value).replace("(", " ").replace(")", " ").replace(",", " ").split()
        found = [word for word in words if len(word) == 12 and set(word) <= set("0123456789abcdef")]
        assert len(set(found)) == 2
        names |= {tuple(found)}
    assert len({own for own, _ in names}) == 1
    assert len({given for _, given in names}) == 3
    assert (tmp_path / "job").read_bytes() == before


@pytest.mark.parametrize("damage", ["cut", "weights", "header", "garbage", "empty"])
def test_a_damaged_checkpoint_is_said_and_started_over(whole, tmp_path, damage):
    checkpoint = tmp_path / "job"
    interrupted(checkpoint, 3)
    content = bytearray(checkpoint.read_bytes())
    if damage == "weights":
        content[-5] ^= 0x10
    if damage == "header":
        place = content.index(b'iteration\\":')
        content[place + 13] ^= 0x01
    checkpoint.write_bytes(
        {"cut": content[:-100], "garbage": b"not a checkpoint", "empty": b""}.get(damage, content)
    )
    numbers, on_event = heard()
    with logged() as said:
        same(train(JOB, checkpoint=checkpoint, threads=1, on_event=on_event), whole)
    assert numbers[0] == 1
    assert any("damaged: starting over" in line for line in said)


def test_a_checkpoint_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputFileError, match="cannot write"):
        train(JOB, checkpoint=tmp_path / "file" / "job", threads=1)
