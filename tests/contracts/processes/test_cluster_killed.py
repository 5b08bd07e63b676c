"""Workers of a real Ray cluster killed under a study: it leaves what an uninterrupted run does."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from ray_cluster import RayCluster
from study_values import results

from posbias.core.running import Processes
from posbias.study import read_study, run_study

pytest.importorskip("ray", reason="many machines need Ray")
pytestmark = [pytest.mark.waits, pytest.mark.slow]
STUDY = """
question = "Does the recency bias vanish with the dimension?"
seeds = [0, 1, 2]
base = {kind = "simulate", samples = 60_000, model = {depth = 2}}
sweep = {"model.dimension" = [16, 64, 256, 384]}
"""
CELLS, MOST = 12, 2
"""Cells of the study, and how often one is killed: three times it is tried again."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What an uninterrupted run without a cluster leaves."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "study.toml").write_text(STUDY)
    run_study(read_study(folder / "study.toml"), folder / "kept", engine=Processes(2))
    return results(folder / "kept"), manifest(folder)


def manifest(folder):
    return json.loads((folder / "kept/study.json").read_text())


def started(folder, *options):
    (folder / "study.toml").write_text(STUDY)
    words = ["study", "run", "study.toml", "--out", "kept", "--json", *options]
    return subprocess.Popen(
        [sys.executable, "-m", "posbias", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={name: held for name, held in os.environ.items() if name != "RAY_ADDRESS"},
    )


def cells(folder):
    return [path for path in Path(folder, "kept/cells").glob("*.json") if not path.name.startswith(".")]


def test_workers_killed_again_and_again_change_nothing(whole, tmp_path):
    cluster, chance, killed = RayCluster(2), random.Random(3), Counter()
    try:
        process = started(tmp_path, "--ray", cluster.address)
        while process.poll() is None:
            workers = {
                one: label for machine in cluster.machines for one, label in machine.performing().items()
            }
            for one, label in workers.items():
                if killed[label] < MOST:
                    time.sleep(chance.uniform(0, 0.3))
                    os.kill(one, signal.SIGKILL)
                    killed[label] += 1
            time.sleep(0.05)
        answer, errors_out = process.communicate(timeout=300)
    finally:
        cluster.stop()
    print(f"{killed.total()} workers killed")
    assert process.returncode == 0, errors_out
    assert len(json.loads(answer)["cells"]) == CELLS
    assert "Traceback" not in errors_out
    assert killed.total() >= 20
    assert (results(tmp_path / "kept"), manifest(tmp_path)) == whole
