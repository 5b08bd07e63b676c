"""`make bench` finds every benchmark: one file that cannot be imported would stop all of them."""

import os
import subprocess
import sys

from project import ROOT


def test_all_benchmarks_are_collected():
    asked = [sys.executable, "-m", "pytest", "benchmarks", "--collect-only", "-q"]
    # this run's options are not for that one, and pytest-benchmark warns in a worker of pytest-xdist
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(asked, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    for file in (ROOT / "benchmarks").glob("test_*.py"):
        assert f"benchmarks/{file.name}::" in done.stdout
