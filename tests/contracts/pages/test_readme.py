"""What README and documents show is what one gets."""

import contextlib
import io
import re

import pytest
from project import ROOT, blocks


def test_the_example_prints_what_it_says():
    (code,) = blocks("python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() in blocks("")


def test_the_architecture_file_is_one(tmp_path):
    from posbias.theory.configs import load_architecture

    (text,) = blocks("toml", ROOT / "docs" / "predict.md")
    path = tmp_path / "architecture.toml"
    path.write_text(text, encoding="utf-8")
    architecture = load_architecture(path)
    assert (architecture.depth, architecture.layers[0].heads) == (24, 16)


def test_a_file_that_names_a_mask_and_an_encoding_of_ones_own_predicts(tmp_path, monkeypatch):
    from posbias.cli import app

    (text,) = blocks("toml", ROOT / "docs" / "own.md")
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    (tmp_path / "mymodule.py").write_text(
        "def mymask(query, key): return key <= query\ndef mylogits(distance): return -0.1 * distance\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        app(["predict", "own.toml", "--tokens", "64", "--json"])
    assert not ended.value.code


def test_every_command_that_is_named_is_a_command():
    from posbias.cli import app

    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    named = {
        *re.findall(r"bin/posbias ([a-z]+)", "".join(blocks(""))),
        *re.findall(r"`posbias ([a-z]+)", start),
    }
    assert len(named) >= 12
    assert named <= set(app)
