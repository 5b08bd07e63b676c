"""A budget of time: a command stops when it is spent, keeps its work, says what is left, and goes on."""

import re
import subprocess
import sys
import time

import pytest
import torch
from command import called

from posbias.interruption import BudgetSpent, Pace, budget, time_text
from posbias.training import load_cell

TRAINING = (
    "--items 4 --dimension 8 --classes 16 --labels 4 --burstiness 2 --batch 16 --networks 2 --sequences 50"
)
COMMANDS = {
    "train": f"train {TRAINING} --effort 1e6 --out kept",
    "study": "study run long.toml --out kept",
    "study in processes": "study run long.toml --out kept --workers 2",
    "paper study": "study run kim2026/fig1 --effort full --out kept",
    "kim2026": "paper kim2026 fig1 --effort full --out kept",
    "wu2025": "paper wu2025 fig2 --out kept",
    "encodings": "paper encodings --models tiny-alibi --prompts 2000 --tokens 64 --out kept",
    "herasimchyk2026": "paper herasimchyk2026 table3 --models tiny-alibi --effort 300 --out kept",
    "claims": "paper claims --paper kim2026 --instances 100000 --out kept",
    "all": "paper all --models tiny-alibi --out kept",
}
STUDY = """
question = "Is it long?"
seeds = [0, 1, 2, 3]
[base]
kind = "simulate"
samples = 100_000_000
[base.model]
dimension = 16
"""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.slow
def test_a_command_stops_in_time_and_says_what_is_kept(tmp_path, command):
    (tmp_path / "long.toml").write_text(STUDY)
    began = time.monotonic()
    words = [sys.executable, "-m", "posbias", *COMMANDS[command].split(), "--budget", "0.3", "-q"]
    ended = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert time.monotonic() - began < 18 + 30
    assert ended.returncode == 3, ended.stderr
    assert not ended.stdout
    (last,) = (line for line in ended.stderr.splitlines() if line.startswith("posbias: "))
    assert re.fullmatch(r"posbias: out of time: .* kept.*; the same command goes on from there.*", last)


def test_a_training_in_budgets_ends_with_the_same_bits(tmp_path):
    words = f"train {TRAINING} --effort 160 --threads 1 --json --out".split()
    whole = called(*words, tmp_path / "whole")
    assert not whole.returncode, whole.stderr
    codes = []
    while not codes or codes[-1]:
        ended = called(*words, tmp_path / "cut", "--budget", 0.005 * (len(codes) + 1))
        codes.append(ended.returncode)
        assert ended.returncode in (0, 3), ended.stderr
        # the time may be over between the last iteration and what is measured of the network
        assert not codes[-1] or re.search("out of time: .*kept", ended.stderr), ended.stderr
    assert len(codes) > 1
    one, other = (load_cell(next((tmp_path / name).glob("*.nc"))) for name in ("whole", "cut"))
    for name, weights in one.trained.weights.items():
        assert torch.equal(weights, other.trained.weights[name])
    assert one.evaluation.as_dict() == other.evaluation.as_dict()


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "1e99", "soon"])
def test_a_budget_that_is_none_is_refused_in_a_line(tmp_path, minutes):
    ended = called("train", "--effort", "10", "--out", tmp_path, f"--budget={minutes}")
    assert ended.returncode == 2
    assert "budget" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_what_ends_in_time_hears_nothing_of_the_budget():
    with budget(0.002):
        pass
    time.sleep(0.2)


def test_ctrl_c_within_a_budget_stays_ctrl_c():
    with pytest.raises(KeyboardInterrupt, match="enough") as caught, budget(10):
        raise KeyboardInterrupt("enough")
    assert type(caught.value) is KeyboardInterrupt


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (100, "2 min"), (4800, "1 h 20 min"), (86400 * 3 + 3600 * 4, "3 d 4 h")],
)
def test_times_in_words(seconds, text):
    assert time_text(seconds) == text


def test_the_rest_is_told_at_the_pace_seen():
    pace = Pace()
    time.sleep(0.2)
    assert 0.6 <= pace.seconds(1.0, 3.0) < 6.0
    assert pace.goes_on("1 cell is kept", 0.0, 3.0) == "1 cell is kept; the same command goes on from there"


def test_what_says_nothing_at_its_end_is_told_to_be_kept():
    with pytest.raises(BudgetSpent, match=r"^what is finished is kept; the same command goes on from there$"):
        sleep_within(0.002)


def sleep_within(minutes):
    with budget(minutes):
        time.sleep(60)
