"""What the gate keeps between runs is used only where it fits."""

import os
import runpy
import shutil
import subprocess
import sys

import pytest
from project import ROOT


@pytest.fixture
def gate():
    return runpy.run_path(str(ROOT / ".ci" / "compiled.py"))


@pytest.fixture
def checkout(tmp_path):
    """A library of two files: one compiles, and inlines a constant of the other."""
    package = tmp_path / "src" / "posbias"
    shutil.copytree(
        ROOT / "src" / "posbias" / "core", package / "core", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "__init__.py").write_text('__version__ = "0"\n')
    (package / "constants.py").write_text("FACTOR = 2.0\n")
    (package / "work.py").write_text(
        "from posbias.constants import FACTOR\nfrom posbias.core.machine import compiled\n\n\n"
        "@compiled()\ndef times(number):\n    return FACTOR * number\n"
    )
    for name in ("pyproject.toml", "papers/pyproject.toml", "constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def result(checkout, cache):
    """What compiled code gives in a process of its own, with the times of files that the gate sets."""
    for path in [*(checkout / "src").rglob("__pycache__")]:
        shutil.rmtree(path)
    for path in (checkout / "src").rglob("*.py"):
        os.utime(path, (1_577_836_800, 1_577_836_800))
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "NUMBA_CACHE_DIR": str(cache)}
    code = "from posbias.work import times; print(times(3.0), sum(times.stats.cache_hits.values()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    number, hits = done.stdout.split()
    return float(number), int(hits)


def test_a_constant_of_another_file_that_changes_is_compiled_anew(gate, checkout, tmp_path):
    def found():
        return result(checkout, tmp_path / f"compiled-{gate['key'](checkout)}")

    assert found() == (6.0, 0)
    assert found() == (6.0, 1)
    (checkout / "src" / "posbias" / "constants.py").write_text("FACTOR = 5.0\n")
    # numba itself does not see it: that is what the folder's name is for
    assert found() == (15.0, 0)
    assert found() == (15.0, 1)


def test_the_key_is_of_pins_and_place_too(gate, checkout):
    first = gate["key"](checkout)
    (checkout / "src" / "posbias" / "unused.py").write_text("NOTHING = 1\n")
    assert gate["key"](checkout) == first
    with (checkout / "constraints.txt").open("a") as file:
        file.write("# another pin\n")
    assert gate["key"](checkout) != first


def test_every_file_that_compiles_is_among_them(gate):
    files = {path.relative_to(ROOT).as_posix() for path in gate["compiling"](ROOT)}
    assert files >= {
        "src/posbias/theory/rollout/sweep.py",
        "src/posbias/training/philox.py",
        "src/posbias/simulation/gram.py",
    }
