"""A long command that is killed and given again ends with what an uninterrupted one finds."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from posbias.core.files import is_leftover

SPEC = """
seeds = [0, 1]
iterations = 200
batch = 16
[task]
items = 4
dimension = 8
classes = 16
labels = 4
burstiness = 2
[sweep]
network.depth = [1, 2, 3, 4]
"""
LONG = {
    "measure": "measure tiny-alibi --tokens 16 --prompts 12 --out kept/m.nc --json",
    "retrieve": "retrieve tiny-alibi --pairs 4 --positions 3 --prompts 4 --out kept --json",
    "train": "train sweep.toml --sequences 50 --threads 1 --out kept --json",
    "simulate": "paper kim2026 section3 --effort 1e5 --threads 1 --out kept --json",
}
VARYING = {"figures", "files", "pictures", "cost", "seconds", "digest", "versions", "created"}

pytestmark = [pytest.mark.slow, pytest.mark.waits]


def start(line, folder):
    (folder / "sweep.toml").write_text(SPEC)
    return subprocess.Popen(
        [sys.executable, "-m", "posbias", *shlex.split(line)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answered(answer, place=""):
    """Every leaf of an answer by its place, without times and names of files."""
    if isinstance(answer, dict):
        answer = {key: value for key, value in answer.items() if key not in VARYING}.items()
    elif isinstance(answer, list):
        answer = enumerate(answer)
    else:
        return {place: pytest.approx(answer, rel=1e-12, abs=0) if isinstance(answer, float) else answer}
    return {where: leaf for key, value in answer for where, leaf in answered(value, f"{place}/{key}").items()}


def whole(line, folder):
    folder.mkdir(exist_ok=True)
    process = start(line, folder)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(out), err


def kept(folder):
    """What is kept under a folder: files that are written whole, by name and size."""
    return {path for path in (folder / "kept").rglob("*") if path.is_file() and not is_leftover(path)}


def killed(line, folder, what="*"):
    """Kill the command with its workers as soon as it has kept something of this name, and say what it kept."""
    folder.mkdir()
    process = start(line, folder)
    deadline = time.monotonic() + 300
    while process.poll() is None and not any(path.match(what) for path in kept(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    return kept(folder)


@pytest.mark.parametrize("command", LONG)
def test_a_killed_command_ends_as_an_uninterrupted_one(command, tmp_path):
    """SIGKILL to the process and its workers once something is kept; given again it gives the same answer."""
    expected, _ = whole(LONG[command], tmp_path / "whole")
    left = killed(LONG[command], tmp_path / "killed")
    times = {path: path.stat().st_mtime_ns for path in left}
    answer, _ = whole(LONG[command], tmp_path / "killed")
    assert answered(answer) == answered(expected)
    assert left
    # a checkpoint goes at the end; what was finished stays as it was
    assert all(path.stat().st_mtime_ns == when for path, when in times.items() if path.exists())
