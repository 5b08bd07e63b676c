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


def test_a_stopped_member_stays_stopped(tmp_path):
    """A member whose weights were made NaN in the checkpoint is stopped after resuming, as without."""
    job = [dataclasses.replace(JOB[0], learning_rate=1e30)]
    straight = train(job, threads=1)
    assert straight[0].stopped.keys() == {0, 1}
    interrupted(tmp_path / "job", 1, job)
    same(train(job, checkpoint=tmp_path / "job", threads=1), straight)
    same(train(job, checkpoint=tmp_path / "job", threads=1), straight)


@pytest.mark.parametrize("damage", ["cut", "weights"])
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
