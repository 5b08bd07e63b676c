"""What README and documents show is what one gets."""

import contextlib
import io
import re

from project import ROOT, blocks


def test_the_example_prints_what_it_says():
    (code,) = blocks("python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() in blocks("")


def test_the_architecture_file_is_one(tmp_path):
    from posbias.theory.configs import load_architecture

    (text,) = blocks("toml", ROOT / "docs" / "theory.md")
    path = tmp_path / "architecture.toml"
    path.write_text(text, encoding="utf-8")
    architecture = load_architecture(path)
    assert (architecture.depth, architecture.layers[0].heads) == (24, 16)


def test_every_command_it_names_is_a_command():
    from posbias.cli import app

    named = set(re.findall(r"bin/posbias ([a-z]+)", "".join(blocks(""))))
    assert named
    assert named <= set(app)
