"""What the package says of itself agrees with itself: version, citation, bounds and pins."""

import re
import tomllib
from importlib.metadata import version

import pytest
import yaml
from bibtex import read
from packaging.requirements import Requirement
from project import ROOT

import posbias_papers
from posbias import __version__
from posbias.core.sources import BIBLIOGRAPHY, software

TOLD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, GROUPS = TOLD["project"], TOLD["dependency-groups"]
PAPERS = ("wu2025", "herasimchyk2026", "kim2026")


def requirements():
    """Every requirement that names a package, of the base, the extras and the groups."""
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values(), *GROUPS.values()]
    read = (Requirement(one) for each in lists for one in each if isinstance(one, str))
    return sorted({str(one): one for one in read if one.name != "posbias"}.values(), key=str)


def pins():
    """The version of each package that the tests run with."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    named = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in named}


@pytest.fixture(scope="module")
def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_version_is_written_once_in_code_and_read_from_there():
    assert PROJECT["dynamic"] == ["version"]
    assert TOLD["tool"]["hatch"]["version"] == {"path": "src/posbias/__init__.py"}


def test_both_distributions_have_one_version():
    """They are installed together, and records serve one version."""
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert papers["dependencies"] == [f"posbias=={__version__}"]
    assert version("posbias-papers") == version("posbias") == posbias_papers.__version__ == __version__


def test_the_changes_begin_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", text, re.MULTILINE)[1] == __version__  # type: ignore[index]


def test_the_citation_file_says_what_posbias_cite_says(citation):
    (own,) = read(software(__version__))
    assert own.fields["title"] == f"{{{citation['title']}}}"
    assert own.fields["version"] == citation["version"] == __version__
    assert [{"name": own.fields["author"].strip("{}")}] == citation["authors"] == PROJECT["authors"]
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]


def test_the_citation_file_names_the_three_papers_as_the_bibliography_does(citation):
    for paper, key in zip(citation["references"], PAPERS, strict=True):
        source = BIBLIOGRAPHY[key]
        names = [f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]]
        assert " and ".join(names) == source.authors
        assert (paper["title"], paper["year"]) == (source.title, source.year)
        assert paper.get("collection-title", "") == source.venue
        assert paper["url"] == f"https://arxiv.org/abs/{source.arxiv}"
        assert paper["url"] in PROJECT["urls"].values()


@pytest.mark.parametrize("wanted", requirements(), ids=str)
def test_what_is_required_has_a_lowest_version_and_a_pin_that_satisfies_it(wanted):
    assert [one.operator for one in wanted.specifier] == [">="]
    assert wanted.specifier.contains(pins()[re.sub(r"[-_.]+", "-", wanted.name).lower()])
