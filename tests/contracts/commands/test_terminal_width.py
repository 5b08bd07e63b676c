"""On a terminal prose is wrapped and wide tables go on in further lines; nothing is cut, pipes get whole lines."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.cli import main
from posbias.core import text_tables as tables

HEAD = ["study", "what it shows", "cost"]
ROWS = [["a/fig1", "The gap by depth without and with residual connections", "18 cells, 17 hours"]]


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 40 columns."""
    monkeypatch.setattr(tables, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setenv("COLUMNS", "40")


def test_a_pipe_gets_whole_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert len(tables.table(HEAD, ROWS)) == 2
    assert tables.fitted(["word " * 40]) == ["word " * 40]


def test_a_terminal_gets_lines_of_its_width(narrow):
    lines = tables.table(HEAD, ROWS)
    assert max(map(len, lines)) <= 40
    columns = [
        " ".join(line[start:end].strip() for line in lines[1:]).split() for start, end in _places(lines)
    ]
    assert columns == [cell.split() for cell in ROWS[0]]
    prose = "it is said in many words that " * 5
    wrapped = tables.fitted([prose, "", "    indented " + "x" * 60, *lines])
    assert wrapped[-len(lines) - 2 :] == ["", "    indented " + "x" * 60, *lines]
    assert max(map(len, wrapped[: -len(lines) - 2])) <= 40
    assert " ".join(wrapped[: -len(lines) - 2]).split() == prose.split()


def _places(lines):
    """Where the columns of `HEAD` begin and end."""
    starts = [lines[0].index(name.split()[0]) for name in HEAD]
    return zip(starts, [*starts[1:], None], strict=True)


@given(
    st.lists(st.lists(st.text("ab -", max_size=30), min_size=2, max_size=2), min_size=1), st.integers(1, 60)
)
def test_no_word_is_lost_whatever_the_width(rows, width):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "terminal_width", lambda: width)
        lines = tables.table(["a", "b"], rows)
        assert sorted(" ".join(lines).split()) == sorted(
            " ".join(" ".join(row) for row in [["a", "b"], *rows]).split()
        )
        patch.setattr(tables, "terminal_width", lambda: None)
        whole = tables.table(["a", "b"], rows)
    assert len(lines) >= len(whole) or max(map(len, whole)) <= width


def test_an_answer_is_fitted(narrow, capsys):
    """A command of the command line, as it is on a terminal of 40 columns."""
    main(["predict", "bloom-176b", "--tokens", "64"])
    prose = [line for line in capsys.readouterr().out.splitlines() if " : " not in line]
    assert max(map(len, prose)) <= 64  # the profile in blocks has 64
    assert all(len(line) <= 40 for line in prose if " " in line)
