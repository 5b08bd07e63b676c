"""Every picture of the documents draws."""

import runpy

import pytest
from project import ROOT

SCRIPTS = sorted((ROOT / "docs" / "img").glob("*.py"))


def scripts():
    """The first is drawn in every run, the others are slow."""
    for path in SCRIPTS:
        marks = [pytest.mark.slow] * (path.stem != "masks")
        yield pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("script", list(scripts()))
def test_it_draws(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    (picture,) = tmp_path.iterdir()
    assert picture.name == f"{script.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
