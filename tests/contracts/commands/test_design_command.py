"""`posbias design` as a user runs it: files that predict the numbers of the table; killed, it goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from answers import faults

from posbias.cli import main

BASE = """depth = 8
mixing = { kind = "constant", value = 0.3 }
layers = [ { heads = 2, positional = { kind = "alibi" } } ]
"""
VARY = ("--vary", "window=8,16,32", "--vary", "full_period=1:4")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text(BASE, encoding="utf-8")
    return tmp_path


def designed(capsys, *words):
    main(["design", "base.toml", "--tokens", "128", *VARY, *words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert not faults(answer)
    return answer


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_every_design_predicts_the_numbers_of_its_row(here, capsys):
    answer = designed(capsys, "--out", "found", "--plot", "front.svg")
    assert (here / "front.svg").stat().st_size > 1000
    assert len(answer["front"]) > 3
    uniform = 1 / 128
    for one in answer["front"]:
        main(["predict", f"found/{one['file']}", "--json"])  # at the length that the file names
        prediction = json.loads(capsys.readouterr().out)
        assert prediction["summary"]["effective_range"] == one["reach"]
        sums, total = 0.0, 0.0
        for mass in prediction["profile"][:-1]:
            total += mass - uniform
            sums += abs(total)
        assert sums / 127 == pytest.approx(one["distance"], rel=1e-9)
    assert {path.suffix for path in (here / "found").iterdir()} == {".json", ".toml"}


def test_the_answer_is_a_table_with_the_verdict_first_and_what_is_theory(here, capsys):
    main(["design", "base.toml", "--tokens", "128", *VARY])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("no architecture of the 12 in the space meets the target")
    assert [line.split("  ")[0] for line in lines[3:6]] == ["baseline", "1/(distance + 1)", "design-01.toml"]
    assert any(line.startswith("theory alone") for line in lines)
    assert lines[-1] == f"designs: {Path('results', 'designs', 'base-flat')}"


def test_mixing_is_given_in_the_words_of_predict(here, capsys):
    Path("bare.toml").write_text("depth = 6\n[[layers]]\nheads = 2\n")
    for word, assumed in (("bloom-176b", False), ("init", True), (None, True)):
        main(["design", "bare.toml", "--tokens", "64", "--vary", "window=4,8", "--json", "--out", f"of-{word}",
              *(["--mixing", word] if word else [])])  # fmt: skip
        answer = json.loads(capsys.readouterr().out)
        assert not faults(answer)
        assert {len(one["nearer"]) for one in answer["front"]} == {7 if assumed else 0}
        assert len(answer["baseline"]["under"]) == (7 if assumed else 0)


def test_the_same_command_gives_the_same_bytes_and_another_its_own_folder(here, capsys):
    designed(capsys, "--out", "one", "--evaluations", "6", "--seed", "2", "--threads", "1")
    designed(capsys, "--out", "two", "--evaluations", "6", "--seed", "2", "--threads", "2")
    assert files_of(here / "one") == files_of(here / "two")
    stamp = (here / "one" / "design.json").stat().st_mtime_ns
    designed(capsys, "--out", "one", "--evaluations", "6", "--seed", "2")
    assert (here / "one" / "design.json").stat().st_mtime_ns == stamp
    designed(capsys, "--out", "one", "--evaluations", "6", "--seed", "3")
    assert (here / "one-2" / "design.json").exists()


LONG = (
    *(
        "design",
        "base.toml",
        "--tokens",
        "4096",
        "--evaluations",
        "450",
        "--threads",
        "1",
        "--vary",
        "depth=4:24",
    ),
    *("--vary", "window=16:1024:12", "--vary", "full_period=1:6", "--vary", "mixing=0.1:0.6:6"),
)


def started(*words):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-m", "posbias", *LONG, *words], env=environment, text=True, **pipes
    )


@pytest.mark.waits
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_search_that_was_ended_goes_on_to_the_same_bytes(here, number):
    running = started("--out", "ended")
    while not list(here.glob("ended/.design-*.partial.json")):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.send_signal(number)
    said = running.communicate()[1]
    assert running.returncode == (-9 if number == signal.SIGKILL else 130)
    assert number == signal.SIGKILL or "of 450 architectures are kept" in said
    assert not (here / "ended" / "design.json").exists()
    again = started("--out", "ended")
    assert "resuming after" in again.communicate()[1]
    whole = started("--out", "whole")
    whole.communicate()
    assert again.returncode == whole.returncode == 0
    assert files_of(here / "ended") == files_of(here / "whole")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "vary"),
        (("--vary", "window=8", "--vary", "window=9"), "vary"),
        (("--vary", "windows=8"), "did you mean 'window'"),
        ((*VARY, "--target", "flatt"), "did you mean 'flat'"),
        ((*VARY, "--out", "file.json"), "out"),
        ((*VARY, "--plot", "front.txt"), "picture"),
        ((*VARY, "--evaluations", "0"), "evaluations"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(here, capsys, words, said):
    with pytest.raises(SystemExit) as end:
        main(["design", "base.toml", *words])
    captured = capsys.readouterr()
    assert end.value.code == 2
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not (here / "results").exists()
