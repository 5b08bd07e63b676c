"""Studies: a question, a sweep, seeds, and claims that are judged; in processes, on Ray."""

import os
import signal
import time
from pathlib import Path

import pytest
from command import started
from piecework import wait_for

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
    assert answered("study", "run", "study.toml")["computed"] == 0
    assert [claim["verdict"] for claim in ran["claims"]] == ["holds", "fails"]
    assert answered("study", "status", "study.toml")["finished"] == 4
    assert answered("study", "show", "study.toml")["claims"] == ran["claims"]
    rows = answered("study", "export", "study.toml")["rows"]
    assert {row["model.dimension"] for row in rows} == {16, 256}


def test_a_cell_that_does_not_load_is_computed_again(answered):
    before = answered("study", "run", "study.toml")
    Path(before["cells"][0]["file"]).write_text("{")
    after = answered("study", "run", "study.toml")
    assert after["computed"] == 1
    assert [claim["number"] for claim in after["claims"]] == [claim["number"] for claim in before["claims"]]


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize("engine", [("--workers", 2), ("--ray", "local")], ids=["workers", "ray"])
def test_workers_and_ray_give_what_one_process_gives(engine, answered):
    if "--ray" in engine:
        pytest.importorskip("ray")
    one = answered("study", "run", "study.toml", "--out", "one")
    two = answered("study", "run", "study.toml", "--out", "two", *engine)
    assert [claim["number"] for claim in one["claims"]] == [claim["number"] for claim in two["claims"]]


@pytest.mark.slow
@pytest.mark.waits
def test_a_killed_worker_costs_its_piece_once(folder):
    (folder / "study.toml").write_text(STUDY.replace("SAMPLES", "400_000"))
    process = started("study", "run", "study.toml", "--workers", 2, "--json", cwd=folder)

    def workers():
        busy = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return [pid for pid in busy if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    wait_for(workers)
    time.sleep(1.5)  # into its piece
    os.kill(int(workers()[-1]), signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert len([*folder.glob("results/studies/study/cells/*.json")]) == 4
