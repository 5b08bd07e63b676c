"""What README and documents show is what one gets: blocks run, commands are understood."""

import contextlib
import io
import re
import runpy
import shlex

import pytest
from command import called
from project import ROOT, blocks

import posbias
from posbias.cli import app
from posbias.theory.masks import MASKS
from posbias.theory.positional import POSITIONALS


def test_the_example_prints_what_it_says():
    (code,) = blocks("python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() in blocks("")


@pytest.mark.parametrize("page", ["predict", "own"])
def test_the_architecture_file_of_a_page_predicts(page, tmp_path):
    """Also one that names a mask and an encoding of one's own."""
    (text,) = blocks("toml", ROOT / "docs" / f"{page}.md")
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    (tmp_path / "mymodule.py").write_text(
        "def mymask(query, key): return key <= query\ndef mylogits(distance): return -0.1 * distance\n"
    )
    assert called("predict", "own.toml", "--tokens", 64, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("cls", [*MASKS, *POSITIONALS], ids=lambda cls: cls.__name__)
def test_every_mask_and_encoding_has_its_row(cls):
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| .*`{cls.__name__}\(", page, re.M), f"docs/theory.md: a row for {cls.__name__}"


LINES = [
    (page.relative_to(ROOT).as_posix(), re.split(r" [#|] ", match[1])[0].strip())
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *(ROOT / "papers/src").rglob("README.md"),
    )
    for block in re.findall(r"^```\w*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    for match in re.finditer(r"^(?:\$ )?(?:\.venv/bin/)?posbias (.*)$", block, re.M)
]


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}" for page, line in LINES])
def test_a_line_is_understood(page, line):
    """Commands and options are there, values are of their kind; nothing is run."""
    words = shlex.split(line)
    app.parse_args(words, exit_on_error=False, print_error=False)


DOCS = ROOT / "docs"
PAGES = {
    page.relative_to(DOCS).with_suffix("").as_posix(): page
    for page in DOCS.rglob("*.md")
    if page.relative_to(DOCS).parts[0] != "made"
}
SHOWN = sorted(name for name in {*PAGES} - {"theorems", "errata"} if blocks("python", PAGES[name]))


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_runs_from_top_to_bottom(name, measured, tmp_path, monkeypatch):
    """All blocks but those of other frameworks, which `tests/adapters` run."""
    # what the commands of the first page leave behind, and the files that pages read
    posbias.save_measurement(measured, tmp_path / "measured.nc")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    place = {}
    for code in blocks("python", PAGES[name]):
        if "ordering.adapters" not in code:
            exec(compile(code, str(PAGES[name]), "exec"), place)


SCRIPTS = sorted((ROOT / "docs" / "img").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_draws(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    (picture,) = tmp_path.iterdir()
    assert picture.name == f"{script.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
