"""Designs, `posbias simulate` interrupted."""

import json
import signal
import time
from pathlib import Path

import pytest
from answers import answered, folder  # noqa: F401
from command import started

import posbias
from posbias.core.formats import undamaged


def test_the_same_design_command_writes_the_same_bytes(answered, folder):
    Path("base.toml").write_text(
        "depth = 8\nmixing = {kind = 'constant', value = 0.3}\n[[layers]]\npositional = {kind = 'alibi'}"
    )
    words = ("design", "base.toml", "--tokens", 128, "--vary", "window=8,16,32", "--vary", "full_period=1:4")
    answer = answered(*words, "--out", "one", "--threads", 1)
    answered(*words, "--out", "two", "--threads", 2)
    files = [{path.name: path.read_bytes() for path in (folder / name).iterdir()} for name in ("one", "two")]
    assert files[0] == files[1]
    for one in answer["front"]:
        profile = posbias.predict(posbias.load_architecture(f"one/{one['file']}"), tokens=128)
        assert profile.summary.effective_range == one["reach"]


@pytest.mark.waits
def test_ctrl_c_keeps_what_is_counted():
    words = ("simulate", "layernorm", "--effort", "1e11", "--threads", "1", "--json", "--out", "k.json")
    process, seen, deadline = started(*words), "", time.monotonic() + 300
    while "ample/s" not in seen or "?" in seen.rpartition("[")[2]:
        assert time.monotonic() < deadline
        seen += process.stderr.read(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    answer = json.loads(out)
    assert (process.returncode, answer["interrupted"]) == (130, True)
    assert answer["samples"] >= 2048
    assert answer["recency_probability"][1]["se"] > 0
    assert undamaged(json.loads(Path("k.json").read_text()), "k.json") == answer
