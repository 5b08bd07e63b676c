"""`make bench` finds every benchmark, and each runs: one file that cannot be imported would stop all of them."""

import os
import subprocess
import sys

import pytest
from project import ROOT


def ran(*options):
    """pytest on the benchmarks, in a process of its own without this run's options."""
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "benchmarks", "-q", *options]
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_all_benchmarks_are_collected():
    said = ran("--collect-only")
    for file in (ROOT / "benchmarks").glob("test_*.py"):
        assert f"benchmarks/{file.name}::" in said


@pytest.mark.slow
def test_each_benchmark_runs_once():
    """Memory and time of measuring SmolLM2 at length are left to `make bench`."""
    ran("--benchmark-disable", "--deselect", "benchmarks/test_measurement.py")
