"""Without an extra, each command either works or says in one line which package is absent and what brings it.

Whatever the distribution does not require is nowhere in the processes that are tried here (`base_install`).
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import commands

HERE = Path(__file__).parent
TESTS = HERE.parents[1]


def named(requirement):
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def closure(names):
    """Distributions with all that they require, extras left out; those that are not here too."""
    found, left = set(), [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            try:
                wanted = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            left += [named(one) for one in wanted if "extra ==" not in one]
    return found


REQUIRED = importlib.metadata.requires("posbias") or []
EXTRAS = {
    extra: [named(one) for one in REQUIRED if re.search(rf"extra == ['\"]{extra}['\"]", one)]
    for extra in ("measure", "train", "report", "texts", "cluster")
}
BROUGHT_BY = {
    "torch": "torch",
    "netCDF4": "netcdf4",
    "xarray": "xarray",
    "safetensors": "safetensors",
    "pandas": "pandas",
    "datasets": "datasets",
    "matplotlib": "matplotlib",
    "jinja2": "jinja2",
    "ray": "ray",
}
"""What is named, by its import name → its distribution."""
INSTALLS = {
    "base": [],
    "without report": ["measure", "train", "texts", "cluster"],
    "report alone": ["report"],
}


def absent(extras):
    """Top-level modules that an installation with these extras has not."""
    there = closure(["posbias", "posbias-papers", *(name for extra in extras for name in EXTRAS[extra])])
    brought = importlib.metadata.packages_distributions()
    ours = {
        module
        for module, names in brought.items()
        if there.isdisjoint(one.lower().replace("_", "-") for one in names)
    }
    return {*ours, *(name for name, brings in BROUGHT_BY.items() if brings not in there)}


STUDY = """
question = "Does recency grow with depth?"
seeds = [0, 1]
base = {{{}}}
"""
FILES = {
    "list.json": "[1, 2, 3, 4]",
    "list.nc": "no result",
    "hits.jsonl": '{"score": 1, "tokens": 3}\n{"score": 2, "tokens": 3}\n',
    "study.toml": STUDY.format('kind = "simulate", samples = 20, model = {tokens = 5, dimension = 8}'),
    "measure.toml": STUDY.format('kind = "measure", model = "tiny-alibi", tokens = 8, prompts = 2'),
    "train.toml": STUDY.format('kind = "train"'),
    "cells/cell.nc": "no result",
    "old/old-e8f09c36.nc": "no result",
    "old/old-e8f09c36.safetensors": "no result",
}
# a command of every kind, in this order, with what it needs beyond the base, in the order in which it is said
LINES = {
    "predict bloom-7b1 --tokens 16": (),
    "predict bloom-7b1 --tokens 16 --plot p.png": ("matplotlib",),
    "predict bloom-7b1 --tokens 16 --calibrate list.nc": ("netCDF4",),
    "predict bloom-7b1 --tokens 16 --mixing list.nc": ("netCDF4",),
    "predict smollm2-135m --tokens 64 --calibrate smollm2-135m": ("netCDF4",),
    "design bloom-7b1 --tokens 16 --vary depth=1:3": (),
    "design bloom-7b1 --tokens 16 --vary depth=1:3 --plot p.png": ("matplotlib",),
    "order hits.jsonl --profile smollm2-135m": (),
    "order hits.jsonl --profile list.nc": ("netCDF4",),
    "measure tiny-alibi": ("torch",),
    "measure tiny-alibi --dry-run": ("torch",),
    "retrieve tiny-alibi": ("torch", "matplotlib"),
    "retrieve --write-prompts p.jsonl --prompts 2": (),
    "retrieve --write-prompts p.jsonl --prompts 2 --task needle": (),
    "retrieve --answers list.json --prompts 2": ("matplotlib",),
    "compare list.json list.json": (),
    "compare list.json list.json --plot p.png": ("matplotlib",),
    "compare list.nc list.json": ("netCDF4",),
    "report tiny-alibi": ("jinja2", "torch"),
    "report list.nc": ("jinja2", "netCDF4"),
    "explore bloom-7b1 --no-open": (),
    "explore list.nc --no-open": ("netCDF4",),
    "simulate layernorm --tokens 5 --dimension 8 --effort 100": (),
    "simulate layernorm --tokens 5 --dimension 8 --effort 100 --plot p.png": ("matplotlib",),
    "paper variants tied --networks 2 --inputs 2": (),
    "paper variants tied --plot p.png": ("matplotlib",),
    "train": ("torch",),
    "train --ray local": ("ray", "torch"),
    "study run study.toml": (),
    "study run study.toml --workers 2 --rerun": (),
    "study run study.toml --ray local": ("ray",),
    "study run measure.toml": ("torch",),
    "study run measure.toml --workers 2": ("torch",),
    "study run train.toml": ("torch",),
    "study status study.toml": (),
    "study show study.toml": (),
    "study show study.toml --plot p.png": ("matplotlib",),
    "study export study.toml --out table.csv": (),
    "paper all --ray local": ("ray", "matplotlib"),
    "paper all": ("matplotlib",),
    "paper all --report": ("jinja2", "matplotlib"),
    "paper list": (),
    "paper claims --paper wu2025 --effort quick": ("matplotlib",),
    "paper claims --paper wu2025 --instances 1": (),
    "paper extensions": (),
    "paper extensions ordering": ("matplotlib",),
    "paper herasimchyk2026": ("matplotlib", "torch"),
    "paper kim2026 fig1": ("matplotlib",),
    "paper wu2025": ("matplotlib", "torch"),
    "verify kim-theorem-1 --effort 2": (),
    "presets": (),
    "models": (),
    "models families": (),
    "models --fetch smollm2-135m": ("torch",),
    "cite bloom-7b1": (),
    "cite kim2026/fig1": (),
}
PROGRAM = """
import json, sys
from pathlib import Path
from command import called
for line in json.load(sys.stdin):
    before = {*Path().rglob("*")}
    done = called(*line.split())
    new = sorted(str(path) for path in {*Path().rglob("*")} - before if path.name != "cache")
    print(json.dumps([line, done.returncode, done.stdout, done.stderr, new]), flush=True)
"""


@pytest.mark.parametrize(
    "install", ["base", *(pytest.param(one, marks=pytest.mark.slow) for one in INSTALLS if one != "base")]
)
def test_a_command_works_or_names_the_package_and_the_extra_in_one_line(install, tmp_path):
    missing = absent(INSTALLS[install])
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    # beyond the base, what would work is not run: other tests do
    lines = [line for line, needs in LINES.items() if install == "base" or missing & {*needs}]
    for line, code, said, errors, new in tried(lines, tmp_path, missing):
        package = next((name for name in LINES[line] if name in missing), None)
        if package is None:
            assert (code, "Traceback" in errors) == (0, False), (line, errors)
            assert said, line
            continue
        assert (code, said, new) == (2, "", []), (line, errors)
        (last, *more) = reversed(errors.splitlines())
        assert not more, (line, errors)
        extra = re.fullmatch(
            rf"posbias: {package}: not installed, .*; run: pip install 'posbias\[(\w+)\]'", last
        )
        assert extra is not None, (line, last)
        assert BROUGHT_BY[package] in closure(EXTRAS[extra[1]]), (line, last)


def tried(lines, folder, missing):
    """What the lines do in one process, one after another: code, stdout, stderr, and new files."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=surroundings(missing, folder),
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line, *_ in answers] == lines
    return answers


def surroundings(missing, folder):
    paths = [HERE / "base_install", TESTS / "support", *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "ABSENT": ",".join(sorted(missing)),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "POSBIAS_CACHE": str(folder / "cache"),
    }


def test_every_command_is_tried():
    tried = {tuple(line.split()) for line in LINES}
    for command in commands():
        assert any(words[: len(command)] == command for words in tried), command


NAMES = """
import json
import posbias
from posbias.core.errors import MissingPackageError

for name in posbias.__all__:
    try:
        getattr(posbias, name)
    except MissingPackageError as error:
        print(json.dumps([name, str(error)]))
profile = posbias.predict(posbias.Architecture(2), tokens=8)
for name, use in {
    "measure": lambda: posbias.measure("tiny-alibi"),
    "retrieve": lambda: posbias.retrieve("tiny-alibi"),
    "train": lambda: posbias.train(),
    "report": lambda: posbias.report(posbias.load_measurement("list.nc"), "report"),
    "load_measurement": lambda: posbias.load_measurement("list.nc"),
    "load_profile": lambda: posbias.load_profile("list.nc"),
    "Profile.plot": lambda: profile.plot(),
    "Comparison.plot": lambda: posbias.compare(profile, profile).plot(),
}.items():
    try:
        use()
    except MissingPackageError as error:
        print(json.dumps([name, str(error)]))
    else:
        raise AssertionError(name)
"""


def test_every_public_name_is_there_or_names_its_package(tmp_path):
    (tmp_path / "list.nc").write_text("no result")
    environment = surroundings(absent([]), tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", NAMES],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        name, message = json.loads(line)
        package, _, rest = message.partition(": not installed, ")
        extra = re.search(r"; run: pip install 'posbias\[(\w+)\]'$", rest)
        assert extra is not None, (name, message)
        assert BROUGHT_BY[package] in closure(EXTRAS[extra[1]]), (name, message)


def test_the_base_is_without_what_extras_bring():
    """Else the tests above would try nothing."""
    assert {"torch", "transformers", "xarray", "netCDF4", "matplotlib", "jinja2", "markupsafe"} <= absent([])
    assert absent([]).isdisjoint({"numpy", "numba", "pydantic", "yaml", "cyclopts", "posbias"})
    assert "torch" not in absent(["measure"])
