"""`posbias train` as a user runs it: answers, spec files, wrong input, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from answers import faults

from posbias.cli import main

POSBIAS = Path(sys.executable).with_name("posbias")
TINY = [
    *("--items", "4", "--dimension", "16", "--classes", "64", "--labels", "4", "--burstiness", "2"),
    *("--networks", "2", "--batch", "16", "--effort", "30", "--sequences", "60", "--threads", "1"),
]
SPEC = """
seeds = [0, 1]
iterations = {iterations}
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


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    main(["train", *map(str, arguments)])
    return capsys.readouterr()


def test_json_has_gaps_with_their_errors_and_accuracy_by_position(here, capsys):
    answer = json.loads(run(capsys, *TINY, "--residual", "--json").out)
    assert list(answer)[:3] == ["schema", "gaps", "accuracy_by_position"]
    assert list(answer["gaps"]) == ["first-middle", "first-last", "middle-last"]
    for gap in answer["gaps"].values():
        assert gap["value"] == pytest.approx(np.mean(gap["members"]))
        assert gap["se"] == pytest.approx(np.std(gap["members"], ddof=1) / 2**0.5)
        assert {"value", "se", "share"} <= set(gap["informative"])
    assert len(answer["accuracy_by_position"]["value"]) == 4
    assert answer["experiment"]["network"] == {
        "depth": 2, "residual": True, "mask": {"kind": "causal"}, "positional": {"kind": "nope"},
    }  # fmt: skip
    assert answer["experiment"]["seeds"] == [0, 1]
    assert answer["experiment"]["iterations"] == 30
    assert Path(answer["file"]).parent == Path("results/train/causal-none-depth2-residual")
    assert (here / answer["file"]).exists()
    assert answer["cost"]["seconds"] > 0
    assert set(answer["agreement"]) == {"attention", "residual", "theory", "theory_measured"}


def test_every_option_reaches_the_experiment(here, capsys):
    options = {
        "mask": "window=5", "positional": "rope", "depth": 1, "inputs": "fixed_vocabulary",
        "answers": "first,last", "embedding": "deviation", "items": 6, "dimension": 12, "classes": 50,
        "labels": 5, "burstiness": 3,
        "within-class-noise": 0.5, "shared-direction": 0.25, "middle": 2, "batch": 8, "learning-rate": 0.002,
        "weight-decay": 0.01, "precision": "float32",
        "networks": 1, "effort": "2e1", "sequences": 30, "threads": 1,
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    answer = json.loads(run(capsys, *words, "--no-residual", "--out", here / "o", "--json").out)
    experiment = answer["experiment"]
    task, network = experiment.pop("task"), experiment.pop("network")
    assert task == {
        "items": 6, "dimension": 12, "classes": 50, "labels": 5, "burstiness": 3, "inputs": "fixed_vocabulary",
        "within_class_noise": 0.5, "shared_direction": 0.25, "answers": [0, 5], "embedding": "deviation",
        "middle": 2,
    }  # fmt: skip
    assert network == {
        "depth": 1, "residual": False, "mask": {"kind": "sliding_window", "width": 5, "sinks": 0},
        "positional": {"kind": "rotary", "base": 10_000.0},
    }  # fmt: skip
    assert experiment == {
        "seeds": [0], "iterations": 20, "batch": 8, "learning_rate": 0.002, "weight_decay": 0.01,
        "evaluate_every": None, "precision": "float32", "draws": "philox",
    }  # fmt: skip
    assert answer["gaps"]["first-middle"]["items"] == [0, 2]
    assert Path(answer["file"]).parent == here / "o"


def test_the_table_speaks_of_every_gap_and_says_what_it_means(here, capsys):
    printed = run(capsys, *TINY)
    assert printed.out.splitlines()[0].split() == [
        *("gap", "all", "sequences", "informative", "own", "kernels", "say", "theory", "says")
    ]
    for words in ("first-middle", "middle-last", "in-context accuracy", "loss", "by position of the answer"):
        assert words in printed.out
    again = run(capsys, *TINY)
    assert again.out == printed.out
    assert "iteration" not in again.err


def test_a_sweep_is_a_table_of_cells(here, capsys):
    (here / "depths.toml").write_text(SPEC.format(iterations=30))
    printed = run(capsys, "depths.toml", "--sequences", 60, "--threads", 1)
    assert "gaps on all sequences" in printed.out
    assert "gaps on informative sequences" in printed.out
    assert printed.out.count("causal-none-depth2  ") == 2
    assert len(list((here / "results/train/depths").glob("*.nc"))) == 2
    cells = json.loads(run(capsys, "depths.toml", "--sequences", 60, "--threads", 1, "--json").out)["cells"]
    assert [cell["experiment"]["network"]["depth"] for cell in cells] == [1, 2]
    single = SPEC.format(iterations=30).replace("[sweep]\nnetwork.depth = [1, 2]", "[network]\ndepth = 1")
    (here / "one.toml").write_text(single)
    one = json.loads(
        run(capsys, "one.toml", "--sequences", 60, "--out", "results/train/depths", "--json").out
    )
    assert one == {"schema": "train/1"} | cells[0]


def test_weights_are_tested_later(here, capsys):
    whole = run(capsys, *TINY, "--out", "whole", "--json").out
    untested = json.loads(run(capsys, *TINY, "--no-tests", "--json").out)
    assert not faults(untested)
    assert untested["tested"] == 0
    (weights,) = map(Path, untested["untested"])
    assert weights.exists()
    assert "1 cells trained, 0 tested already" in run(capsys, *TINY, "--no-tests").out
    cell = json.loads(run(capsys, *TINY, "--json").out)
    assert {name: held for name, held in cell.items() if name not in ("cost", "file")} == {
        name: held for name, held in json.loads(whole).items() if name not in ("cost", "file")
    }
    assert not weights.exists()
    assert json.loads(run(capsys, *TINY, "--no-tests", "--json").out)["tested"] == 1


BAD = """
--items 8 --burstiness 3 | burstiness
--answers 9 | answers
--answers middel | 'middle'
--middle 8 | middle
--mask window=18 | mask.width
--mask prefx=3 | 'prefix'
--positional rotary | none, sinusoidal, rope, decay
--depth 1.5 | --depth
--networks 0 | networks
--effort medium | --effort
--learning-rate nan | learning_rate
--sequences 0 | sequences
--threads 0 | threads
--device cuda:99 | device
--effort quick --sequences 10 | sequences
spec.toml --depth 2 | depth
spc.toml | spc.toml
key.toml | key.toml
--out spec.toml | spec.toml
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_wrong_input_is_one_line(here, capsys, line):
    words, named = line.split(" | ")
    (here / "spec.toml").write_text(SPEC.format(iterations=30))
    (here / "key.toml").write_text("iteration = 3\n")
    with pytest.raises(SystemExit) as end:
        main(["train", *words.split()])
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert named in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert not list(here.rglob("*.nc"))


def alive(pid):
    """Whether a process of ours still runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def workers_of(process):
    """Its processes that work: Python keeps one more, which watches resources."""
    listed = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(word) for path in listed for word in path.read_text().split()]
    return [one for one in children if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text()]


def started(folder, iterations):
    """A sweep of two cells on two cores, once both train."""
    (folder / "long.toml").write_text(SPEC.format(iterations=iterations))
    command = [POSBIAS, "train", "long.toml", "--sequences", "60", "--threads", "2", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
    )
    assert process.stderr is not None
    seen, deadline = "", time.monotonic() + 300
    while "iteration/s" not in seen or "?" in seen.rpartition("[")[2]:
        assert time.monotonic() < deadline
        seen += process.stderr.read(1)
    return process, workers_of(process), seen


@pytest.mark.slow
@pytest.mark.waits
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    process, workers, _ = started(tmp_path, 100_000)
    assert len(workers) == 2
    folder, deadline = tmp_path / "results/train/long", time.monotonic() + 300
    while len(list(folder.glob(".*.checkpoint"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    answer, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert not answer
    last = errors.strip().rpartition("\n")[2]
    assert "posbias: interrupted: 0 of 2 cells and the running ones' checkpoints are kept in" in last
    assert "Traceback" not in errors
    assert not any(map(alive, workers))
    assert len(list(folder.glob(".*.checkpoint"))) == 2
    resumed, _, seen = started(tmp_path, 100_000)
    assert resumed.stderr is not None
    deadline = time.monotonic() + 300
    while seen.count("resuming after") < 2:  # one line of each worker
        assert time.monotonic() < deadline
        seen += resumed.stderr.read(1)
    os.kill(resumed.pid, signal.SIGINT)
    resumed.communicate(timeout=300)


@pytest.mark.slow
def test_files_that_lie_around_take_no_modules_place(tmp_path):
    (tmp_path / "fractions.py").write_text("raise RuntimeError('taken for the module of that name')\n")
    (tmp_path / "short.toml").write_text(SPEC.format(iterations=2))
    command = [POSBIAS, "train", "short.toml", "--sequences", "20", "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.waits
def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    process, workers, _ = started(tmp_path, 100_000)
    process.kill()
    process.communicate(timeout=300)
    deadline = time.monotonic() + 300
    while any(map(alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
