"""Progress is reported as events, words go through logging; the command line writes both on stderr."""

import io
import logging
import re
import subprocess
import sys

import pytest
from tqdm import tqdm

from posbias.core.progress import labelled, on_stderr

log = logging.getLogger("posbias.some.module")


def test_words_are_lines_on_stderr_and_nothing_is_left_behind(capsys):
    with on_stderr():
        log.info("loading %s", "a model")
        log.warning("damaged")
        log.debug("a detail")
    log.warning("after it")
    answer, words = capsys.readouterr()
    assert answer == ""
    assert words == "loading a model\ndamaged\n"
    assert logging.getLogger("posbias").handlers == []


@pytest.mark.parametrize(
    ("verbosity", "lines"), [(-2, []), (-1, ["b"]), (0, ["a", "b"]), (1, ["detail", "a", "b"])]
)
def test_verbosity_says_which_words(verbosity, lines, capsys):
    with on_stderr(verbosity):
        log.debug("detail")
        log.info("a")
        log.warning("b")
    assert capsys.readouterr().err.split() == lines


def test_a_label_begins_lines_that_do_not_name_it(capsys):
    with on_stderr(), labelled("cell 3"):
        log.info("resuming")
        log.info("cell 3: failed")
    with on_stderr():
        log.info("done")
    assert capsys.readouterr().err.splitlines() == ["cell 3: resuming", "cell 3: failed", "done"]


def test_words_stand_above_a_bar(monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with on_stderr(), tqdm(total=10, file=stderr) as bar:
        bar.update(5)
        log.info("a checkpoint was used")
    # the bar is wiped, the line ends, the bar is drawn again below it
    assert re.search(r"\r +\ra checkpoint was used\n\r.*5/10", stderr.getvalue())


def test_importing_installs_nothing():
    code = (
        "import logging, posbias, posbias.core.progress, posbias.cli; "
        "assert not logging.root.handlers and not logging.getLogger('posbias').handlers"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
