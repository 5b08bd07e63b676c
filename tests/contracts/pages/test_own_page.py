"""The page "Your own model, mask, arrays" runs from top to bottom."""

import re

import pytest
from matplotlib import pyplot
from project import ROOT, blocks

from posbias.cli import app

PAGE = ROOT / "docs" / "own.md"


def test_every_block_runs_after_those_before_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place: dict[str, object] = {}
    codes = blocks("python", PAGE)
    assert len(codes) >= 10
    for code in codes:
        exec(compile(code, str(PAGE), "exec"), place)
    printed = capsys.readouterr().out
    for words in (
        "Attention: 4 layers × 8 heads",
        "at 6 shares of contexts",
        "Architecture bloom-176b: 70 layers",
        "energy: Spearman",
    ):
        assert words in printed
    assert (tmp_path / "report" / "report.html").exists()
    assert (tmp_path / "profile.csv").read_text().startswith("position,rollout")
    pyplot.close("all")


def test_its_file_predicts(tmp_path, monkeypatch):
    (text,) = blocks("toml", PAGE)
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    (tmp_path / "mymodule.py").write_text(
        "def mymask(query, key): return key <= query\ndef mylogits(distance): return -0.1 * distance\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        app(["predict", "own.toml", "--tokens", "64", "--json"])
    assert not ended.value.code


def test_the_page_of_questions_names_commands_that_are_there_and_its_blocks_run(capsys):
    page = ROOT / "docs" / "questions.md"
    place: dict[str, object] = {}
    for code in blocks("python", page):
        exec(compile(code, str(page), "exec"), place)
    assert "token 0 holds 2.4 times an even share" in capsys.readouterr().out
    named = set(re.findall(r"`posbias ([a-z]+)", page.read_text(encoding="utf-8")))
    assert named >= {"predict", "measure", "retrieve", "compare", "report", "paper"}
    assert named <= {*app} | {"study"}, "a command that is not there"
