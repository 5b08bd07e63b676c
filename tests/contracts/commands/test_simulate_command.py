"""`posbias simulate layernorm` as a user runs it: answers, wrong input, Ctrl-C, memory."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import called

from posbias.core.formats import undamaged

POSBIAS = Path(sys.executable).with_name("posbias")


def run(*arguments):
    return called("simulate", "layernorm", *arguments)


def test_json_has_a_probability_with_its_error_for_every_layer():
    done = run("--d", 16, "--alpha", 0.5, "--layers", 3, "--effort", "1e5", "--json")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert [entry["layer"] for entry in answer["recency_probability"]] == [1, 2, 3]
    second = answer["recency_probability"][1]
    assert abs(second["value"] - 0.6382) < 4 * second["se"] + 0.00005
    assert 0 < second["se"] < second["plain"]["se"] < 0.001
    assert answer["samples"] == 100_000
    scores = answer["mean_scores"][1]
    assert len(scores["value"]) == len(scores["se"]) == 10
    assert scores["value"][9][9] == pytest.approx(4.0, abs=1e-12)
    assert scores["value"][0][1] is None
    assert [entry["verdict"] for entry in answer["definition_1"]] == ["no", "yes", "yes"]
    assert math.isclose(sum(answer["mean_attention"][2]["value"][9]), 1.0, rel_tol=1e-12)
    assert answer["interrupted"] is False


def test_the_number_of_threads_changes_no_byte():
    one, two = (run("--effort", 30_001, "--threads", threads, "--json") for threads in (1, 2))
    assert one.stdout == two.stdout


def test_both_engines_can_be_asked_for():
    answers = [
        json.loads(run("--engine", engine, "--effort", 20_000, "--norm", "none", "--json").stdout)
        for engine in ("gram", "token_space")
    ]
    for one, two in zip(*(answer["recency_probability"] for answer in answers), strict=True):
        assert abs(one["value"] - two["value"]) < 5 * math.hypot(one["se"], two["se"])


def test_until_se_stops_when_it_is_sure_enough():
    answer = json.loads(run("--until-se", "3e-4", "--layers", 2, "--json").stdout)
    errors = [entry["se"] for entry in answer["recency_probability"]]
    assert max(errors) <= 3e-4
    assert answer["samples"] < 1_000_000


def test_samples_limit_until_se():
    answer = json.loads(run("--until-se", "1e-7", "--effort", 10_000, "--json").stdout)
    assert answer["samples"] == 10_000


def test_the_table_speaks_of_each_layer(tmp_path):
    out = tmp_path / "answer.json"
    done = run("--effort", "2e4", "--layers", 2, "--out", out)
    assert "recency probability" in done.stdout
    assert "20,000 samples" in done.stdout
    assert json.loads(out.read_text())["samples"] == 20_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "1"], "anisotropy"),
        (["--alpha", "-0.1"], "anisotropy"),
        (["--alpha", "nan"], "anisotropy"),
        (["--tokens", "2"], "tokens"),
        (["--tokens", "0"], "tokens"),
        (["--d", "2"], "dimension"),
        (["--d", "0"], "dimension"),
        (["--effort", "0"], "effort"),
        (["--effort", "2.5"], "2.5"),
        (["--effort", "many"], "many"),
        (["--seed", "1.5"], "1.5"),
        (["--seed", "-1"], "seed"),
        (["--threads", "0"], "threads"),
        (["--until-se", "0"], "until_se"),
        (["--temperature", "0"], "temperature"),
        (["--norm", "batchnorm"], "batchnorm"),
        (["--layers", "0"], "depth"),
        (["--plot", "x.gif"], "picture"),
        (["--out", "/dev/full"], "cannot write"),
        (["--d", "1e30"], "1e30"),
        (["--tokens", "100000"], "tokens"),
    ],
)
def test_wrong_input_is_one_line(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_fewer_dimensions_than_tokens_are_allowed():
    answer = json.loads(run("--d", 4, "--effort", 10_000, "--json").stdout)
    assert answer["recency_probability"][1]["value"] > 0.5


@pytest.mark.waits
def test_ctrl_c_keeps_what_is_counted_and_says_how_sure_it_is(tmp_path):
    out = tmp_path / "kept.json"
    command = [POSBIAS, "simulate", "layernorm", "--effort", "1e11", "--json", "--out", out]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    seen = ""
    deadline = time.monotonic() + 300
    while "ample/s" not in seen or "?" in seen.rpartition("[")[2]:
        assert time.monotonic() < deadline
        seen += process.stderr.read(1)
    os.killpg(process.pid, signal.SIGINT)
    answer, progress = process.communicate(timeout=300)
    assert process.returncode == 130
    kept = json.loads(answer)
    assert kept["interrupted"] is True
    assert kept["samples"] >= 2048
    assert kept["recency_probability"][1]["se"] > 0
    assert undamaged(json.loads(out.read_text()), out) == kept
    last = progress.strip().rpartition("\n")[2]
    assert f"posbias: interrupted: {kept['samples']:,} samples are counted above" in last
    assert "standard errors at most" in last


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_samples():
    # VmHWM, not ru_maxrss, which a process inherits from the one that started it
    code = (
        "import re; from pathlib import Path; from posbias.simulation import *\n"
        "peak = lambda: re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]\n"
        "simulate_recency(RecencyModel(tokens=32), 20_000); first = peak()\n"
        "simulate_recency(RecencyModel(tokens=32), 200_000); print(first, peak())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = (int(word) / 1024 for word in done.stdout.split())
    assert second < 300
    assert second < first + 60  # 180,000 samples of 528 numbers would be 760 MB
