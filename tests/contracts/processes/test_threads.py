"""Threads of torch: those that wait sleep, and a command has as many as it is asked for."""

import os
import subprocess
import sys

import pytest
import torch

from posbias.core.errors import InvalidValueError
from posbias.core.machine import leaving_a_core, torch_threads

MULTIPLY = """
import posbias, time, torch
torch.set_num_threads(2)
one, two = torch.randn(64, 512, 64), torch.randn(64, 64, 64)
for step in range(60):
    if step == 10:
        begun = time.process_time()
    torch.bmm(one, two).softmax(-1).sum()
print(time.process_time() - begun)
"""


def called(code, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="torch comes with another OpenMP elsewhere")
@pytest.mark.parametrize(("asked", "spins"), [({}, "'0'"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "'30000000000'")])
def test_torch_hears_that_waiting_threads_sleep_unless_they_were_set_otherwise(asked, spins):
    """What the OpenMP that torch has loaded says of itself."""
    _, errors_out = called("import posbias, torch; torch.ones(2)", OMP_DISPLAY_ENV="VERBOSE", **asked)
    assert f"GOMP_SPINCOUNT = {spins}" in errors_out


@pytest.mark.slow
def test_two_threads_next_to_busy_ones_spend_no_time_on_waiting():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        asleep, spinning = (
            float(called(MULTIPLY, **asked)[0]) for asked in ({}, {"OMP_WAIT_POLICY": "ACTIVE"})
        )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert asleep < 0.7 * spinning


def test_threads_are_as_before_after_the_block():
    before = torch.get_num_threads()
    with torch_threads(before + 2):
        assert torch.get_num_threads() == before + 2
        with torch_threads(None):
            assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
    assert 1 <= leaving_a_core() <= before
    with pytest.raises(InvalidValueError, match="threads: 0 given"), torch_threads(0):
        pass
