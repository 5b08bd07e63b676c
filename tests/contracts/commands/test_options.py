"""Options that commands share: their short names, words and progress, the shell's completion."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import called, commands

from posbias.cli import app, main, output
from posbias.cli.output import progress
from posbias.core.errors import InvalidValueError, typed_integer
from posbias.core.progress import Event

POSBIAS = Path(sys.executable).with_name("posbias")
SMALL = ["--d", "4", "--layers", "2", "--threads", "1", "--effort", "1e4"]


def page_of(capsys, command):
    main([*command, "--help"])
    return capsys.readouterr().out


def options_of(page):
    return set(re.findall(r"--[a-z][a-z0-9-]*", page)) | set(re.findall(r" (-[a-z]) ", page))


# --- new names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*commands()], ids=" ".join)
def test_a_page_has_short_names_and_what_goes_with_any_command(command, capsys):
    """--out has its short name, every page says what goes with any command."""
    page = page_of(capsys, command)
    named = options_of(page.partition("╭─ Parameters")[2].partition("With any command")[0])
    assert "With any command: -v more words, -q no progress, --debug" in page
    assert ("--out" in named) == ("-o" in named)


def test_every_command_is_described(capsys):
    """The page of all commands has the first line of each."""
    for group in ((), ("paper",), ("simulate",), ("study",)):
        page = " ".join(page_of(capsys, group).replace("│", " ").split())
        called = app
        for word in group:
            called = called[word]
        for name in called:
            assert name.startswith("-") or re.search(rf" {name} [A-Z]", page), name


def test_o_is_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["predict", "bloom-176b", "--tokens", "8", "-o", "p.json"])
    assert json.loads(Path("p.json").read_text())["tokens"] == 8


@pytest.mark.parametrize("words", ["paper all --effort 5", "paper claims --effort 5"])
def test_a_number_is_refused_where_there_are_several_units(words, capsys):
    with pytest.raises(SystemExit):
        main(words.split())
    assert "effort: expected quick or full, got 5" in capsys.readouterr().err


def test_a_number_is_in_the_study_s_own_unit(tmp_path, monkeypatch, capsys):
    """`paper list` names the unit."""
    monkeypatch.chdir(tmp_path)
    main(["paper", "kim2026", "section3", "--effort", "1e3", "-q"])
    capsys.readouterr()
    held = json.loads(Path("results/kim2026/section3.json").read_text())
    assert {cell["samples"] for cell in held["cells"]} == {1000}
    main(["paper", "list", "kim2026/section3", "--json"])
    (listed,) = json.loads(capsys.readouterr().out)["studies"]
    assert (listed["unit"], listed["state"]["made"]) == ("draws", True)


def test_networks_are_seeds():
    from posbias_papers.wu2025 import FULL, effort_of

    spent = effort_of("full", 2)
    assert spent.seeds == (0, 1)
    assert (spent.iterations, spent.sequences) == (FULL.iterations, FULL.sequences)
    assert spent.name not in ("quick", "full")
    with pytest.raises(InvalidValueError, match="networks: 0 given"):
        effort_of("quick", 0)


def test_the_middle_item_is_the_text_s_or_the_code_s():
    from posbias_papers.wu2025 import QUICK, Setting, effort_of

    text, code = effort_of("quick", None, 3), effort_of("quick", None, 4)
    assert code == QUICK
    assert text.name == "quick, middle item 3"
    setting = Setting(answers=("middle", "last"))
    tasks = [effort.experiment(setting).task for effort in (text, code)]
    assert [task.places["middle"] for task in tasks] == [3, 4]
    assert [task.answers for task in tasks] == [(3, 7), (4, 7)]
    for wrong in (0, 7, 8):
        with pytest.raises(InvalidValueError, match=f"middle: .*{wrong}"):
            effort_of("quick", None, wrong)


# --- words and progress ------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch):
    """Bars are drawn at once."""
    monkeypatch.setattr(output, "DELAY", 0)


def test_q_shows_no_progress_and_v_says_more(at_once, capsys):
    main(["simulate", "layernorm", *SMALL])
    usual = capsys.readouterr()
    assert "sample" in usual.err
    main(["-q", "simulate", "layernorm", *SMALL])
    assert capsys.readouterr() == (usual.out, "")
    main(["simulate", "layernorm", *SMALL, "-v"])
    verbose = capsys.readouterr()
    assert verbose.out == usual.out
    assert re.search(r"^\d+\.\d s, \d+\.\d s of them computing$", verbose.err, re.M)


def test_a_bar_begins_where_work_was_left_and_goes_when_it_is_full(at_once, capsys):
    with progress() as on_event:
        on_event(Event(900, 1000, "prompt"))
        resumed = capsys.readouterr().err
        assert "900/1.00k [" in resumed
        # what was done before is no speed
        assert re.findall(r"\S+prompt/s", resumed) == ["?prompt/s"]
        on_event(Event(1000, 1000, "prompt"))
        assert "0.00/1.00k" not in capsys.readouterr().err
        # the same event comes again with the result
        on_event(Event(1000, 1000, "prompt"))
        assert capsys.readouterr().err == ""
        on_event(Event(0, 1000, "prompt"))
        assert "0.00/1.00k" in capsys.readouterr().err


# --- the shell ---------------------------------------------------------------------------------------------


def test_the_shell_completes_commands_and_options(tmp_path):
    """What --install-completion writes for bash completes an option of a command below a command."""
    subprocess.run(
        [POSBIAS, "--install-completion", "--shell", "bash", "-o", tmp_path / "posbias"],
        check=True,
        capture_output=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    script = (
        f"source {tmp_path}/posbias; COMP_WORDS=(posbias paper kim2026 --eff); COMP_CWORD=3; _posbias; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--effort"]


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("250000", 250_000), ("1e7", 10**7), ("2.5e6", 2_500_000), ("8k", 8000), ("128k", 128_000), ("1M", 10**6),
        ("1.5k", 1500), ("-3", -3), ("2.5", None), ("1.0005k", None), ("k", None), ("128K", 128_000),
        ("1e99", None), ("inf", None), ("nan", None), ("", None), ("many", None),
    ],
)  # fmt: skip
def test_an_integer_is_read_as_people_type_it(word, number):
    assert typed_integer(word) == number


def test_every_whole_number_may_be_typed_so(tmp_path):
    done = called("predict", "tiny-alibi", "--tokens", "1k", "--json")
    assert json.loads(done.stdout)["tokens"] == 1000
    done = called("predict", "tiny-alibi", "--vary", "tokens=64,0.1k", "--json")
    assert json.loads(done.stdout)["values"] == [64, 100]
