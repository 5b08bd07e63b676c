"""A command that is stopped from without (SIGTERM, as `timeout` sends it) keeps its work and says how to go on."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

STUDY = """
question = "Is it long?"
seeds = [0, 1, 2, 3]
base = {kind = "simulate", samples = 3_000_000, model = {dimension = 16}}
"""


@pytest.mark.waits
@pytest.mark.slow
def test_a_study_that_is_terminated_keeps_its_cells_and_goes_on(tmp_path):
    (tmp_path / "long.toml").write_text(STUDY)
    command = [sys.executable, "-m", "posbias", "study", "run", "long.toml", "--out", "kept", "-q"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"NUMBA_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not any(tmp_path.glob("kept/cells/[!.]*.json")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert re.search(r"interrupted: \d of 4 cells .*; the same command goes on from there", said), said
    assert any(tmp_path.glob("kept/cells/[!.]*.json"))
