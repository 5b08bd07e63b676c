"""What the package says of itself agrees with itself; what it loads and when; that it runs no foreign code."""

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import shapes
import yaml
from bibtex import read
from jaxtyping import Float, TypeCheckError
from packaging.requirements import Requirement
from project import ROOT

import posbias
import posbias_papers
from posbias import __version__
from posbias.core.sources import BIBLIOGRAPHY, software

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, GROUPS = SETTINGS["project"], SETTINGS["dependency-groups"]


def test_both_distributions_have_one_version_and_the_changes_begin_with_it():
    """The version is written once in code; they are installed together, and records serve one version."""
    assert PROJECT["dynamic"] == ["version"]
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert papers["dependencies"] == [f"posbias=={__version__}"]
    assert version("posbias-papers") == version("posbias") == posbias_papers.__version__ == __version__
    changes = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert changes is not None
    assert changes[1] == __version__


def test_the_citation_file_says_what_posbias_cite_and_the_bibliography_say():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (own,) = read(software(__version__))
    assert own.fields["title"] == f"{{{citation['title']}}}"
    assert own.fields["version"] == citation["version"] == __version__
    assert [{"name": own.fields["author"].strip("{}")}] == citation["authors"] == PROJECT["authors"]
    assert (citation["license"], citation["keywords"]) == (PROJECT["license"], PROJECT["keywords"])
    for paper, key in zip(citation["references"], ("wu2025", "herasimchyk2026", "kim2026"), strict=True):
        source = BIBLIOGRAPHY[key]
        names = [f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]]
        assert " and ".join(names) == source.authors
        assert (paper["title"], paper["year"]) == (source.title, source.year)
        assert paper["url"] == f"https://arxiv.org/abs/{source.arxiv}"
        assert paper["url"] in PROJECT["urls"].values()


def test_what_is_required_has_a_lowest_version_and_a_pin_that_satisfies_it():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {re.sub(r"[-_.]+", "-", name).lower(): pin for name, pin in pairs}
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values(), *GROUPS.values()]
    wanted = {Requirement(one) for each in lists for one in each if isinstance(one, str)}
    for one in wanted:
        if one.name != "posbias":
            assert [part.operator for part in one.specifier] == [">="], one
            assert one.specifier.contains(pins[re.sub(r"[-_.]+", "-", one.name).lower()]), one


def test_every_public_name_is_there_and_documented():
    for name in posbias.__all__:
        public = getattr(posbias, name)
        assert not callable(public) or public.__doc__, name
    with pytest.raises(AttributeError, match="no_such_name"):
        posbias.no_such_name  # noqa: B018
    assert set(posbias.__all__) <= set(dir(posbias))


HEAVY = {"torch", "transformers", "matplotlib", "xarray", "pandas", "netCDF4", "jinja2", "ray"}
COMPUTING = {"numpy", "numba", "pydantic", "scipy"}
HELP = "from posbias.cli import main\ntry: main({})\nexcept SystemExit: pass"
LOADS = {
    "import posbias": HEAVY | COMPUTING,
    "import posbias.core.running": HEAVY | COMPUTING,
    HELP.format(["--help"]): HEAVY | COMPUTING | {"yaml", "tqdm"},
    HELP.format(["train", "--help"]): HEAVY | COMPUTING | {"yaml", "tqdm"},
    HELP.format(["paper", "--help"]): HEAVY | COMPUTING | {"yaml", "tqdm"},
    HELP.format(["models", "families"]): {"torch", "transformers"},
    "import posbias.measurement, posbias.reports.plots, posbias.simulation, posbias.training": HEAVY,
    "import posbias_papers, posbias.retrieval": HEAVY,
    "import posbias; posbias.load_profile; posbias.predict(posbias.Architecture(2), 8)": HEAVY,
    "import posbias.study as study\nfor kind in study.VERBS: study.verbs.class_of({'kind': kind})": HEAVY,
}


@pytest.mark.parametrize("code", LOADS)
def test_nothing_is_loaded_that_is_not_needed(code):
    """A page of help costs little more than the library that prints it."""
    program = f"{code}\nimport logging, sys\nassert not logging.root.handlers\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "posbias" in loaded
    assert not loaded & LOADS[code]


FORBIDDEN = {
    *(
        "pickle.load",
        "pickle.loads",
        "marshal.loads",
        "shelve.open",
        "joblib.load",
        "torch.load",
        "torch.jit.load",
    ),
    *("yaml.unsafe_load", "yaml.full_load", "eval", "exec", "os.system"),
}
NEEDED = {
    "from_pretrained": "trust_remote_code",
    "from_config": "trust_remote_code",
    "yaml.load": "Loader",
    "np.load": "allow_pickle",
}
"""Functions that may run foreign code → the argument without which they are not called."""


def faults(text):
    """Each call that would run what a file says."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name, given = (
                ast.unparse(node.func),
                {word.arg: ast.unparse(word.value) for word in node.keywords},
            )
            needed = NEEDED.get(name) or NEEDED.get(name.rpartition(".")[2])
            if (
                name in FORBIDDEN
                or (needed and needed not in given)
                or given.get("trust_remote_code", "False") == "True"
                or given.get("weights_only", "True") != "True"
                or "shell" in given
            ):
                yield ast.unparse(node)


def test_no_call_runs_what_a_file_says():
    sources = [path.read_text(encoding="utf-8") for path in Path(posbias.__file__).parent.rglob("*.py")]
    assert [fault for text in sources for fault in faults(text)] == []


@pytest.mark.parametrize(
    "line",
    [
        "AutoModel.from_pretrained(folder)",
        "AutoModel.from_pretrained(folder, trust_remote_code=True)",
        "kind.from_pretrained(folder, trust_remote_code=False, weights_only=False)",
        "torch.load(path)",
        "yaml.load(text)",
        "np.load(path)",
        "subprocess.run(line, shell=True)",
    ],
)
def test_a_call_that_would_is_found(line):
    assert [*faults(line)] == [line]


Row = Float[np.ndarray, "position"]


def product(kernel: Float[np.ndarray, "query key"], row: Row) -> Float[np.ndarray, "key"]:
    return row @ kernel


def named(rows: Mapping[str, Row] | None) -> int:
    return len(rows or ())


def test_while_tests_run_a_wrong_shape_is_refused():
    assert shapes.checked(len) is len
    assert shapes.checked(product)(np.eye(3), np.ones(3)).shape == (3,)
    for call in (
        lambda: shapes.checked(product)(np.ones(3), np.ones(3)),
        lambda: shapes.checked(named)({"a": np.eye(2)}),
        lambda: posbias.Profile(np.eye(2)),
    ):
        with pytest.raises(TypeCheckError):
            call()


def test_the_gate_compiles_anew_what_changes(tmp_path):
    """The key of the compiled code, whose constants numba does not follow, is of sources and pins."""
    gate = runpy.run_path(str(ROOT / ".ci" / "compiled.py"))
    compiling = {path.relative_to(ROOT).as_posix() for path in gate["compiling"](ROOT)}
    assert compiling >= {"src/posbias/theory/rollout/sweep.py", "src/posbias/simulation/gram.py"}
    package = tmp_path / "src" / "posbias"
    shutil.copytree(ROOT / "src" / "posbias" / "core", package / "core")
    for name in ("pyproject.toml", "papers/pyproject.toml", "constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    (package / "__init__.py").write_text('__version__ = "0"\n')
    (package / "work.py").write_text(
        "from posbias.constants import FACTOR\nfrom posbias.core.machine import compiled\n\n\n"
        "@compiled()\ndef times(number):\n    return FACTOR * number\n"
    )
    keys = []
    for name, text in {
        "src/posbias/constants.py": "FACTOR = 2.0\n",
        "src/posbias/unused.py": "NOTHING = 1\n",
        "src/posbias/constants.py ": "FACTOR = 5.0\n",
        "constraints.txt": "# another pin\n",
    }.items():
        (tmp_path / name.strip()).write_text(text)
        keys.append(gate["key"](tmp_path))
    assert keys[0] == keys[1]
    assert len({*keys}) == 3


@pytest.mark.parametrize(
    "options",
    [
        ["--collect-only"],
        # memory and time of measuring SmolLM2 at length are left to `make bench`
        pytest.param(
            ["--benchmark-disable", "--deselect", "benchmarks/test_measurement.py"], marks=pytest.mark.slow
        ),
    ],
)
def test_every_benchmark_is_found_and_runs_once(options):
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "benchmarks", "-v", *options]
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    tried = {f"benchmarks/{file.name}" for file in (ROOT / "benchmarks").glob("test_*.py")} - {*options}
    assert all(file in done.stdout for file in tried)
