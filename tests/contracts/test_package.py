"""What the package says of itself agrees with itself; what it loads and when."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from project import ROOT

import posbias
import posbias_papers
from posbias import __version__
from posbias.profiles.curves import least_stretch

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_both_distributions_have_one_version_and_the_changes_begin_with_it():
    """The version is written once in code; they are installed together, and records serve one version."""
    assert PROJECT["dynamic"] == ["version"]
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert papers["dependencies"] == [f"posbias=={__version__}"]
    assert version("posbias-papers") == version("posbias") == posbias_papers.__version__ == __version__
    changes = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert changes is not None
    assert changes[1] == __version__


def test_every_public_name_is_there_and_documented():
    for name in posbias.__all__:
        public = getattr(posbias, name)
        assert not callable(public) or public.__doc__, name
    with pytest.raises(AttributeError, match="no_such_name"):
        posbias.no_such_name  # noqa: B018
    assert set(posbias.__all__) <= set(dir(posbias))


HEAVY = {"torch", "transformers", "matplotlib", "xarray", "pandas", "netCDF4", "jinja2", "ray"}
COMPUTING = {"numpy", "numba", "pydantic", "scipy"}
HELP = """
from posbias.cli import main
for words in (["--help"], ["train", "--help"], ["paper", "--help"]):
    try: main(words)
    except SystemExit: pass
"""
WORK = """
import posbias, posbias.measurement, posbias.reports.plots, posbias.simulation, posbias.training, posbias.retrieval
import posbias_papers, posbias.study as study
posbias.load_profile
posbias.predict(posbias.Architecture(2), 8)
for kind in study.VERBS: study.verbs.class_of({"kind": kind})
"""
LOADS = {
    "import posbias, posbias.core.running": HEAVY | COMPUTING,
    HELP: HEAVY | COMPUTING | {"yaml", "tqdm"},
    WORK: HEAVY,
}


@pytest.mark.parametrize("code", LOADS, ids=["import", "help", "predict"])
def test_nothing_is_loaded_that_is_not_needed(code):
    """A page of help costs little more than the library that prints it."""
    program = f"{code}\nimport logging, sys\nassert not logging.root.handlers\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "posbias" in loaded
    assert not loaded & LOADS[code]


def test_predicting_loads_no_linear_algebra_and_a_compiled_product_still_finds_it():
    program = """import sys, numpy, posbias, numba; posbias.predict("bloom-176b", 8)
assert not {"scipy.linalg", "scipy.special"} & set(sys.modules)
print(numba.njit(lambda matrix: matrix @ matrix)(numpy.full((2, 2), 2.0)).tolist())"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[[8.0, 8.0], [8.0, 8.0]]\n"


def test_while_tests_run_a_wrong_shape_is_refused():
    for call in (lambda: posbias.Profile(np.eye(2)), lambda: least_stretch(np.eye(2), 1)):
        with pytest.raises(TypeCheckError):
            call()


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(file.name for file in (ROOT / "benchmarks").glob("test_*.py")))
def test_every_benchmark_runs_once(file):
    """But for memory and time of measuring SmolLM2 at length, which are left to `make bench`."""
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    option = "--collect-only" if file == "test_measurement.py" else "--benchmark-disable"
    command = [sys.executable, "-m", "pytest", f"benchmarks/{file}", "-q", option]
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
