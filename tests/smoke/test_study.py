"""Studies: a question, a sweep, seeds, and claims that are judged; in processes, on Ray."""

import os
import signal
import time
from pathlib import Path

import pytest
from command import started

STUDY = """
question = "Does the recency bias vanish with the dimension?"
seeds = [0, 1]
base = {kind = "simulate", samples = SAMPLES, model = {depth = 2}}
sweep = {"model.dimension" = [16, 256]}
[[claims]]
claim = "At d = 16 the second layer favours recent keys"
quantity = "recency_probability.1"
of = {"model.dimension" = 16}
above = 0.5
[[claims]]
claim = "It does at d = 256"
quantity = "recency_probability.1"
of = {"model.dimension" = 256}
above = 0.6
"""


@pytest.fixture(autouse=True)
def study(folder):
    (folder / "study.toml").write_text(STUDY.replace("SAMPLES", "2000"))


def test_run_status_show_export(answered):
    assert answered("study", "run", "study.toml", "--dry-run")["finished"] == 0
    ran = answered("study", "run", "study.toml")
    assert [claim["verdict"] for claim in ran["claims"]] == ["holds", "fails"]
    assert answered("study", "status", "study.toml")["finished"] == 4
    assert answered("study", "show", "study.toml")["claims"] == ran["claims"]
    rows = answered("study", "export", "study.toml")["rows"]
    assert {row["model.dimension"] for row in rows} == {16, 256}


def test_finished_cells_are_not_computed_again(answered):
    answered("study", "run", "study.toml")
    assert answered("study", "run", "study.toml")["computed"] == 0


def test_a_cell_that_does_not_load_is_computed_again(answered):
    before = answered("study", "run", "study.toml")
    Path(before["cells"][0]["file"]).write_text("{")
    after = answered("study", "run", "study.toml")
    assert after["computed"] == 1
    assert [claim["number"] for claim in after["claims"]] == [claim["number"] for claim in before["claims"]]


@pytest.mark.slow
def test_workers_give_what_one_process_gives(answered):
    one = answered("study", "run", "study.toml", "--out", "one")
    two = answered("study", "run", "study.toml", "--out", "two", "--workers", 2)
    assert [claim["number"] for claim in one["claims"]] == [claim["number"] for claim in two["claims"]]


@pytest.mark.slow
@pytest.mark.waits
def test_a_killed_worker_costs_its_piece_once(folder):
    (folder / "study.toml").write_text(STUDY.replace("SAMPLES", "400_000"))
    process = started("study", "run", "study.toml", "--workers", 2, "--json", cwd=folder)
    deadline, workers = time.monotonic() + 60, []
    while not workers and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
        busy = children(process.pid)
        workers = [pid for pid in busy if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    time.sleep(1.5)
    if workers:
        os.kill(workers[-1], signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert len([*folder.glob("results/studies/study/cells/*.json")]) == 4


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.waits
def test_a_study_on_ray(answered):
    pytest.importorskip("ray")
    one = answered("study", "run", "study.toml", "--out", "one")
    ray = answered("study", "run", "study.toml", "--out", "ray", "--ray", "local")
    assert [claim["number"] for claim in one["claims"]] == [claim["number"] for claim in ray["claims"]]
