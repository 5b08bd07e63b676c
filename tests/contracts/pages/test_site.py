"""The site that `make docs` builds has every page and every public name; what pages show runs."""

import fnmatch
import re
from pathlib import PurePosixPath

import pytest
from project import ROOT, blocks

import posbias

DOCS = ROOT / "docs"
PAGES = {
    page.relative_to(DOCS).with_suffix("").as_posix(): page
    for page in DOCS.rglob("*.md")
    if page.relative_to(DOCS).parts[0] != "made"
}
SHOWN = sorted(name for name in {*PAGES} - {"theorems", "errata"} if blocks("python", PAGES[name]))
PACKAGES = sorted((ROOT / "src" / "posbias").rglob("__init__.pyi"))


def listed(name):
    """The pages that a page's tables of contents name."""
    folder = PurePosixPath(name).parent
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", PAGES[name].read_text("utf-8"), re.S | re.M):
        for line in block.splitlines():
            if line and not line.startswith((":", "made/")):
                pattern = (folder / line).as_posix()
                yield from fnmatch.filter(PAGES, pattern) or [pattern]


def test_every_page_stands_once_in_a_table_of_contents():
    found = [page for name in PAGES for page in listed(name)]
    assert sorted(found) == sorted({*PAGES} - {"index"})


def documented():
    """What the reference has, by the full name that it is asked by."""
    for page in sorted((DOCS / "reference").glob("*.md")):
        package = ""
        for word, name in re.findall(r"^\.\. (\w+):: (\S+)$", page.read_text("utf-8"), re.M):
            if word == "currentmodule":
                package = name
            elif word.startswith("auto"):
                yield name if name.startswith("posbias.") else f"{package}.{name}"


@pytest.mark.parametrize("stub", PACKAGES, ids=[stub.parent.name for stub in PACKAGES])
def test_the_reference_has_every_public_name(stub):
    package = ".".join(stub.parent.relative_to(ROOT / "src").parts)
    names = re.findall(r"^from (\S+) import (\w+) as \w+$", stub.read_text("utf-8"), re.M)
    known = {*documented()}
    # a name of a package may stand under `posbias`, a module and a constant under the module that has it
    here = {
        name: {f"{package}.{name}", f"posbias.{name}", f"{package}{module}.{name}"} for module, name in names
    }
    assert len(here) >= 8
    assert [name for name, places in here.items() if not places & known] == []


def test_the_reference_has_nothing_twice():
    found = [*documented()]
    assert len(found) == len({*found})


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_runs_from_top_to_bottom(name, make_measurement, tmp_path, monkeypatch):
    """All blocks but those of other frameworks, which `tests/adapters` run."""
    # what the commands of the first page leave behind, and the files that pages read
    posbias.save_measurement(make_measurement("U"), tmp_path / "measured.nc")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    place = {}
    for code in blocks("python", PAGES[name]):
        if "ordering.adapters" not in code:
            exec(compile(code, str(PAGES[name]), "exec"), place)
