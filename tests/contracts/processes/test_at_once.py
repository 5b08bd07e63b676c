"""Equal commands on one folder at once: all end well, each with the same answer, and leave one whole result."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from answers import plain as fields
from command import called

from posbias.core.files import replacing_folder
from posbias.core.formats import JsonCodec
from posbias.profiles.measurements import load_measurement
from posbias.training import Experiment, Network, RetrievalTask
from posbias.training.loop import train
from posbias.training.results import load_cell, measure_cell, save_numbered

STUDY = """
question = "Does recency grow with depth?"
seeds = [0]
base = {kind = "simulate", samples = 50, model = {tokens = 6, dimension = 8}}
sweep = {"model.depth" = [1, 2, 3]}
"""
TRAINING = (
    "--items 4 --dimension 8 --classes 16 --labels 4 --burstiness 2 --batch 16 --networks 2 --effort 150"
)
LINES = {
    "train": f"train {TRAINING} --sequences 50 --threads 1 --out kept",
    "measure": "measure tiny-alibi --tokens 32 --prompts 2 --out kept/m.nc",
    "study": "study run study.toml --workers 1 --out kept",
}
LEFT = {
    "train": ({".nc": 1, ".safetensors": 1}, load_cell),
    "measure": ({".nc": 1}, load_measurement),
    "study": (
        {".json": 4},
        lambda path: path.name == "study.json" or JsonCodec().read(path, "study_cell", 2),
    ),
}
"""How many files of a kind are left, hidden ones too, and what reads one of them."""


def files(folder):
    return [path for path in sorted((folder / "kept").rglob("*")) if path.is_file()]


def at_once(line, folder, count=3):
    """Start so many equal commands, and return what each answered."""
    command = [sys.executable, "-m", "posbias", *shlex.split(line), "--json", "-q"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    started = [
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    ended = [process.communicate(timeout=600) for process in started]
    assert [
        (process.returncode, err)
        for process, (_, err) in zip(started, ended, strict=True)
        if process.returncode
    ] == []
    return [json.loads(out) for out, _ in ended]


def plain(answer):
    """An answer without what differs from run to run."""
    if isinstance(answer, dict):
        changing = {"cost", "seconds", "computed", "digest"}
        return {key: plain(held) for key, held in answer.items() if key not in changing}
    return [plain(held) for held in answer] if isinstance(answer, list) else answer


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=pytest.mark.slow if one in ("measure", "train") else ()) for one in LINES],
)
def test_equal_commands_at_once_leave_one_whole_result(command, rounds, tmp_path):
    counts, load = LEFT[command]
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "study.toml").write_text(STUDY)
        first, *others = map(plain, at_once(LINES[command], folder))
        assert all(other == first for other in others)
        left = files(folder)
        kinds = [path.suffix for path in left]
        assert {kind: kinds.count(kind) for kind in kinds} == counts, left
        assert all(load(path) is not None for path in left if path.suffix != ".safetensors")
        before = {path: path.read_bytes() for path in left}
        again = called(*LINES[command].split(), "--json", "-q", cwd=folder)
        assert plain(json.loads(again.stdout)) == first
        assert {path: path.read_bytes() for path in files(folder)} == before


def test_the_arrays_of_one_training_fit_the_weights_of_an_equal_one(tmp_path):
    """What two equal runs leave that write by turns: weights of one, everything else of the other."""
    task = RetrievalTask(items=4, dimension=8, classes=16, labels=4, burstiness=2)
    experiment = Experiment(task=task, network=Network(), seeds=(0,), iterations=5, batch=16)
    paths = []
    for seconds in (1.0, 2.0):
        trained = train(experiment, threads=1)
        cell = measure_cell(replace(trained, cost=trained.cost | {"seconds": seconds}), 20)
        paths.append(save_numbered(cell, tmp_path / str(seconds)).path)
    one, other = paths
    assert one.with_suffix(".safetensors").read_bytes() != other.with_suffix(".safetensors").read_bytes()
    shutil.copy(other.with_suffix(".safetensors"), one.with_suffix(".safetensors"))
    assert fields(load_cell(one).evaluation) == fields(load_cell(other).evaluation)


def test_folders_that_are_written_at_once_are_whole(tmp_path):
    """Twelve writers of one folder: the last one stays, and nothing else."""
    failures = []

    def write(number):
        try:
            with replacing_folder(tmp_path / "folder") as unfinished:
                for name in "ab":
                    (unfinished / name).write_text(str(number))
        except Exception as error:
            failures.append(error)

    for _ in range(20):
        writers = [threading.Thread(target=write, args=(number,)) for number in range(12)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert not failures
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    first, second = (Path(tmp_path / "folder" / name).read_text() for name in "ab")
    assert first == second
