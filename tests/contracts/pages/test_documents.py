"""Every command line that README and documents show is one that the command understands."""

import re
import shlex

import pytest
from project import ROOT

from posbias.cli import app

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


def test_there_are_some_on_many_pages():
    assert len({page for page, _ in LINES}) > 8


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}" for page, line in LINES])
def test_a_line_is_understood(page, line):
    """Commands and options are there, values are of their kind; nothing is run."""
    words = shlex.split(line)
    app.parse_args(words, exit_on_error=False, print_error=False)
