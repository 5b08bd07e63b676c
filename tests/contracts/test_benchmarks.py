"""`make bench` finds every benchmark: one file that cannot be imported would stop all of them."""

import subprocess
import sys

from project import ROOT

# pytest-benchmark warns where pytest-xdist is at work
_ALONE = ["-p", "no:xdist"]


def test_all_benchmarks_are_collected():
    asked = [sys.executable, "-m", "pytest", "benchmarks", "--collect-only", "-q", *_ALONE]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    for file in (ROOT / "benchmarks").glob("test_*.py"):
        assert f"benchmarks/{file.name}::" in done.stdout
