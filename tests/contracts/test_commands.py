"""Every command with --json: as its schema says, or, without an extra, one line with what is absent and brings it.

Whatever the base distribution does not require is nowhere in the processes that are tried here.
"""

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys

import pytest
from answers import SCHEMAS, faults
from command import called, commands
from jsonschema import Draft202012Validator
from project import ROOT, cases


def named(requirement):
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def closure(names):
    """Distributions with all that they require, extras left out; those that are not installed here too."""
    found, left = set(), [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                left += [
                    named(one) for one in importlib.metadata.requires(name) or [] if "extra ==" not in one
                ]
    return found


def absent():
    """Top-level modules that an installation without extras has not."""
    there = closure(["posbias", "posbias-papers"])
    brought = importlib.metadata.packages_distributions().items()
    return {module for module, names in brought if there.isdisjoint(map(named, names))}


STUDY = 'question = "Does recency grow with depth?"\nseeds = [0, 1]\nbase = {{{}}}\n'
FILES = {
    "list.json": "[1, 2, 3, 4]",
    "list.nc": "no result",
    "hits.jsonl": '{"score": 1, "tokens": 3}\n{"score": 2, "tokens": 3}\n',
    "items.jsonl": '{"question": "Warm?", "options": ["ice", "fire"], "right": "fire"}\n' * 2,
    "study.toml": STUDY.format('kind = "simulate", samples = 20, model = {tokens = 5, dimension = 8}'),
    "measure.toml": STUDY.format('kind = "measure", model = "tiny-alibi", tokens = 8, prompts = 2'),
    "decay.toml": 'depth = 3\nmixing = {kind = "attention_only"}\n'
    '[[layers]]\npositional = {kind = "decay", rate = 1}',
}
LINES = cases("lines")
ABSENT = """
import os, sys
from importlib.machinery import PathFinder

absent = frozenset(os.environ["ABSENT"].split(","))


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname.partition(".")[0] in absent else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
"""The sitecustomize of a Python without these modules, and of its workers."""
PROGRAM = """
import json, sys
from pathlib import Path
from command import called
for line in json.load(sys.stdin):
    before = {*Path().rglob("*")}
    done = called(*line.split(), "--json")
    new = sorted(str(path) for path in {*Path().rglob("*")} - before if path.name != "cache")
    print(json.dumps([line, done.returncode, done.stdout, done.stderr, new]), flush=True)
"""


def answers_without(missing, folder):
    """Each line with what comes of it in a Python that has not these modules."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(ABSENT)
    for name, content in FILES.items():
        (folder / name).write_text(content)
    paths = [folder / "site", ROOT / "tests" / "support", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"ABSENT": ",".join(missing), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment = os.environ | environment | {"POSBIAS_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=environment,
        input=json.dumps([*LINES]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_command_works_or_names_the_package_and_the_extra_in_one_line(tmp_path):
    missing = absent() | {name for needed in LINES.values() for name in needed}
    answers = answers_without(missing, tmp_path)
    assert [line for line, *_ in answers] == [*LINES]
    for line, code, said, errors, new in answers:
        package = next(iter(LINES[line]), None)
        if package is None:
            assert code == 0, (line, errors)
            answer = json.loads(said)
            assert next(iter(answer)) == "schema"
            assert not faults(answer), line
        else:
            assert (code, said, new) == (2, "", []), (line, errors)
            extra = re.search(rf"^posbias: {package}: .* pip install 'posbias\[(\w+)\]'$", errors.strip())
            assert extra, (line, errors)
            brought = [one for one in importlib.metadata.requires("posbias") or [] if f"'{extra[1]}'" in one]
            assert package.lower() in map(named, brought), (line, errors)


def test_every_command_is_tried_and_its_schema_is_one():
    Draft202012Validator.check_schema(SCHEMAS)
    tried = {tuple(line.split()) for line in LINES}
    for command in commands():
        assert any(words[: len(command)] == command for words in tried), command


@pytest.mark.parametrize("command", [*commands()], ids=" ".join)
def test_a_page_of_help_has_json_and_short_names(command):
    done = called(*command, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout
    assert ("--out" in done.stdout) == (" -o" in done.stdout)
