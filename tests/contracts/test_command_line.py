"""What all commands share: words and progress on stderr, the shell's completion, full disks, exit codes."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from answers import folder  # noqa: F401
from command import called, full_disk

from posbias.cli import output
from posbias.core.errors import InputFileError, typed_integer
from posbias.core.progress import on_stderr

POSBIAS = Path(sys.executable).with_name("posbias")
log = logging.getLogger("posbias.some.module")


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("250000", 250_000), ("1e7", 10**7), ("8k", 8000), ("128K", 128_000), ("1M", 10**6), ("1.5k", 1500),
        ("-3", -3), ("2.5", None), ("1.0005k", None), ("1e99", None), ("nan", None), ("", None), ("many", None),
    ],
)  # fmt: skip
def test_an_integer_is_read_as_people_type_it(word, number):
    assert typed_integer(word) == number


def test_the_shell_completes_commands_and_options(tmp_path):
    """What --install-completion writes for bash completes an option of a command below a command."""
    subprocess.run(
        [POSBIAS, "--install-completion", "--shell", "bash", "-o", "completion"],
        check=True,
        capture_output=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    script = (
        "source ./completion; COMP_WORDS=(posbias paper kim2026 --eff); COMP_CWORD=3; _posbias; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--effort"]


@pytest.mark.parametrize(
    ("verbosity", "lines"), [(-2, []), (-1, ["b"]), (0, ["a", "b"]), (1, ["detail", "a", "b"])]
)
def test_words_are_lines_on_stderr_and_nothing_is_left_behind(verbosity, lines, capsys):
    with on_stderr(verbosity):
        log.debug("detail")
        log.info("%s", "a")
        log.warning("b")
    log.warning("after it")
    answer, words = capsys.readouterr()
    assert answer == ""
    assert words.split() == lines
    assert logging.getLogger("posbias").handlers == []


def test_q_shows_no_progress_and_v_more_words(monkeypatch):
    monkeypatch.setattr(output, "DELAY", 0)
    words = ("simulate", "layernorm", "--d", 4, "--layers", 2, "--threads", 1, "--effort", "1e4")
    usual, quiet, verbose = called(*words), called("-q", *words), called(*words, "-v")
    assert usual.stdout == quiet.stdout == verbose.stdout
    assert "sample" in usual.stderr
    assert quiet.stderr == ""
    assert re.search(r"^\d+\.\d s, \d+\.\d s of them computing$", verbose.stderr, re.M)


def test_a_full_disk_leaves_the_old_file_and_nothing_half_written():
    assert called("predict", "bloom-7b1", "--tokens", 5, "-o", "p.json").returncode == 0
    old = Path("p.json").read_bytes()
    with full_disk(20_000):
        done = called("predict", "bloom-7b1", "--tokens", 5000, "--out", "p.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "p.json" in done.stderr.splitlines()[-1]
    assert Path("p.json").read_bytes() == old
    assert [path.name for path in Path().iterdir()] == ["p.json"]


def test_debug_shows_where_it_happened():
    with pytest.raises(InputFileError):
        called("predict", "nowhere.toml", "--debug")
