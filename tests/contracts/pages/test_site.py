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


def test_the_reference_has_every_package_and_every_module_of_the_root():
    lines = re.findall(r"^{public-names} (\S+)(.*)$", PAGES["reference"].read_text("utf-8"), re.M)
    assert {package for package, _ in lines} == {
        ".".join(stub.parent.relative_to(ROOT / "src").parts) for stub in PACKAGES
    }
    root = (ROOT / "src" / "posbias" / "__init__.pyi").read_text("utf-8")
    named = tuple(f"{room}." for package, rooms in lines if package == "posbias" for room in rooms.split())
    modules = {*re.findall(r"^from \.(\S+) import", root, re.M)} - {"theory"}  # its modules, no names
    assert [module for module in modules if sum(f"{module}.".startswith(room) for room in named) != 1] == []


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
