"""`posbias design`, `order`, `simulate`, `--critical-distance` and results made elsewhere, by their numbers."""

import csv
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from answers import faults
from command import called
from project import ROOT

import posbias
from posbias.core.formats import undamaged
from posbias.ordering.hits import read_hits


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answered(*words):
    """What a command prints with --json, which is as its schema says."""
    done = called(*words, "--json")
    assert done.returncode in (0, 4), done.stderr
    answer = json.loads(done.stdout)
    assert not faults(answer)
    return answer


DECAY = (
    'depth = 6\nmixing = {kind = "attention_only"}\n[[layers]]\npositional = {kind = "decay", rate = 0.4}\n'
)
PAIR = (
    'depth = 5\nmixing = {kind = "attention_only"}\n[[layers]]\n'
    'positional = {kind = "rope", amplitudes = [20.0], frequencies = [0.05]}\n'
)
TOKENS = 90


def critical(text, *options):
    Path("spec.toml").write_text(text)
    return answered("predict", "spec.toml", "--critical-distance", "--tokens", TOKENS, *options)


def critical(text, *options):
    Path("spec.toml").write_text(text)
    return answered("predict", "spec.toml", "--critical-distance", "--tokens", TOKENS, *options)


def critical(text, *options):
    Path("spec.toml").write_text(text)
    return answered("predict", "spec.toml", "--critical-distance", "--tokens", TOKENS, *options)


def highest(values):
    return max(range(len(values)), key=values.__getitem__)


def peak_of_rollout(logits, depth):
    """Distance at which the last token's rollout is highest, its first token left out; by dense kernels."""
    kernel = np.array(
        [[math.exp(logits[i - j]) if j <= i else 0.0 for j in range(TOKENS)] for i in range(TOKENS)]
    )
    row = np.linalg.matrix_power(kernel / kernel.sum(axis=1, keepdims=True), depth)[-1]
    return highest(row[:0:-1].tolist())


def test_decay_masks_have_the_peak_of_walks_times_envelope():
    found = critical(DECAY, "--vary", "decay=0.3,0.7")
    assert found["schema"] == "predict-critical/1"
    for curve, rate in zip(found["curves"], (0.3, 0.7), strict=True):
        assert curve["depth"] == [1, 2, 3, 4, 5, 6]
        for place, depth in enumerate(curve["depth"]):
            assert curve["predicted"][place] == pytest.approx((depth - 1) / (math.exp(rate) - 1))
            walks = [math.comb(depth - 1 + x, x) * math.exp(-rate * x) for x in range(TOKENS)]
            assert curve["modal"][place] == highest(walks)
            logits = [-rate * x for x in range(TOKENS)]
            assert curve["rollout"][place] == peak_of_rollout(logits, depth)


def test_a_rotary_pair_has_the_root_and_the_peaks():
    found = critical(PAIR, "--vary", "rope_angle=0.03,0.08")
    for curve, angle in zip(found["curves"], (0.03, 0.08), strict=True):
        for place, depth in enumerate(curve["depth"]):
            x = curve["predicted"][place]
            strength = 10.0 * angle**2  # a/2 for c
            if depth > 1:
                assert math.log(1 + (depth - 1) / x) == pytest.approx(2 * strength * x)
            walks = [math.comb(depth - 1 + d, d) * math.exp(-strength * d * d) for d in range(TOKENS)]
            assert curve["modal"][place] == highest(walks)
            logits = [20.0 * math.cos(angle * d) for d in range(TOKENS)]
            assert curve["rollout"][place] == peak_of_rollout(logits, depth)


def test_designs_predict_their_rows_and_the_same_command_writes_the_same_bytes(here):
    Path("base.toml").write_text(
        "depth = 8\nmixing = {kind = 'constant', value = 0.3}\n[[layers]]\npositional = {kind = 'alibi'}"
    )
    words = ("design", "base.toml", "--tokens", 128, "--vary", "window=8,16,32", "--vary", "full_period=1:4")
    answer = answered(*words, "--out", "one", "--threads", 1)
    answered(*words, "--out", "two", "--threads", 2)
    files = [{path.name: path.read_bytes() for path in (here / name).iterdir()} for name in ("one", "two")]
    assert files[0] == files[1]
    assert len(answer["front"]) > 3
    for one in answer["front"]:
        architecture = posbias.load_architecture(f"one/{one['file']}")
        profile = posbias.predict(architecture, tokens=128)
        assert profile.summary.effective_range == one["reach"]
        distance = np.abs(np.cumsum(profile.mass[:-1] - 1 / 128)).sum() / 127
        assert distance == pytest.approx(one["distance"], rel=1e-9)


def test_a_simulation_has_a_probability_with_its_error_for_every_layer():
    words = ("simulate", "layernorm", "--d", 16, "--alpha", 0.5, "--layers", 3, "--effort", 20_001)
    answer, other = (answered(*words, "--threads", threads) for threads in (1, 2))
    assert answer == other
    second = answer["recency_probability"][1]
    assert abs(second["value"] - 0.6382) < 4 * second["se"] + 0.00005
    assert 0 < second["se"] < second["plain"]["se"] < 0.01
    scores = answer["mean_scores"][1]
    assert scores["value"][9][9] == pytest.approx(4.0, abs=1e-12)
    assert scores["value"][0][1] is None
    assert sum(answer["mean_attention"][2]["value"][9]) == pytest.approx(1.0, rel=1e-12)
    assert answered("simulate", "layernorm", "--until-se", "1e-7", "--effort", 5000)["samples"] == 5000


@pytest.mark.waits
def test_ctrl_c_keeps_what_is_counted():
    command = [
        sys.executable,
        "-m",
        "posbias",
        "simulate",
        "layernorm",
        "--effort",
        "1e11",
        "--json",
        "--out",
        "k.json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    seen, deadline = "", time.monotonic() + 300
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


CURVE = [8, 4, 3, 4, 9]
TEXT = "a" * 20
WRITTEN = {
    "llamaindex.jsonl": [
        {"node": {"id_": "0", "text": TEXT, "metadata": {}}, "score": s} for s in (0.9, 0.5)
    ],
    "langchain.jsonl": [{"page_content": TEXT, "metadata": {"relevance_score": s}} for s in (0.9, 0.5)],
    "cohere.json": {
        "id": "x",
        "results": [{"relevance_score": s, "document": {"text": TEXT}} for s in (0.9, 0.5)],
    },
    "pinecone.json": {"matches": [{"id": "0", "score": s, "metadata": {"text": TEXT}} for s in (0.9, 0.5)]},
    "search.json": {
        "hits": {"total": 2, "hits": [{"_score": s, "_source": {"text": TEXT}} for s in (0.9, 0.5)]}
    },
    "plain.csv": f"text,score\n{TEXT},0.9\n{TEXT},0.5\n",
    "bge.jsonl": [{"score": s, "text": TEXT} for s in (-0.3, -4.1)],
    "chroma.jsonl": [{"id": "0", "document": TEXT, "distance": s} for s in (0.1, 0.3)],
    "query.json": {
        "ids": [["0", "1"]],
        "included": ["a", "b"],
        "documents": [[TEXT] * 2],
        "distances": [[0.1, 0.3]],
    },
    "logits.json": [{"logit": s, "text": TEXT} for s in (2.0, 0.0)],
    "alone.jsonl": [{"index": k, "relevance_score": s} for k, s in enumerate((0.9, 0.5))],
}
WEIGHTS = {name: [1, 0.5] for name in ("bge.jsonl", "chroma.jsonl", "query.json")}
WEIGHTS["logits.json"] = [1 / (1 + np.exp(-2)), 0.5]


@pytest.mark.parametrize("name", WRITTEN)
def test_documents_are_read_as_retrievers_write_them(name):
    held = WRITTEN[name]
    lines = "".join(json.dumps(row) + "\n" for row in held) if name.endswith(".jsonl") else json.dumps(held)
    Path(name).write_text(held if isinstance(held, str) else lines, encoding="utf-8")
    found = read_hits(name)
    assert found.scores == pytest.approx(WEIGHTS.get(name, [0.9, 0.5]))
    assert (found.unit, None if found.lengths is None else found.lengths.tolist()) == (
        (None, None) if name == "alone.jsonl" else ("characters", [20.0, 20.0])
    )
    assert bool(found.note) == (name in WEIGHTS)
    Path(f"again-{name}").write_text(found.text([1, 0]), encoding="utf-8")
    assert read_hits(f"again-{name}").scores == pytest.approx(found.scores[::-1])


def test_an_order_that_is_not_shown_to_help_is_not_written():
    """The likeliest document to the highest place; without errors of the curve the gain is not known."""
    Path("curve.json").write_text(json.dumps(CURVE), encoding="utf-8")
    rows = [{"text": "a" * 10, "score": score} for score in (0.1, 0.2, 0.9, 0.3, 0.4)]
    Path("hits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    answer = answered("order", "hits.jsonl", "--profile", "curve.json", "--out", "ordered.jsonl")
    assert answer["permutation"] == [4, 1, 0, 3, 2]
    assert answer["verdict"] == "not known"
    assert Path("ordered.jsonl").read_text() == Path("hits.jsonl").read_text()


HERE = ROOT / "tests" / "elsewhere"
FILES = (
    "needle",
    "liu_kv",
    "ruler_niah_multikey.jsonl",
    "samples_posbias_lists.jsonl",
    "inseq_saliency.json",
)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_compared_ordered_by_and_reported(name):
    """Of needles, the mean over context lengths; the others have one length."""
    Path("hits.jsonl").write_text('{"score": 0.2, "tokens": 9}\n{"score": 0.7, "tokens": 9}\n')
    every = ("--tokens", "all")
    answers = {
        "p": answered("compare", HERE / name, HERE / "liu_kv", "--by-share", *every),
        "profile": answered("order", "hits.jsonl", "--profile", HERE / name, *every),
        "source": answered("report", HERE / name, "--out", "page", *every),
    }
    assert all(answer["read_as"][key] for key, answer in answers.items())
    claims = answers["source"]["claims"]
    assert [one["id"] for one in claims] == ["elsewhere/first-above-middle", "elsewhere/last-above-middle"]
    rows = list(csv.reader(Path("page/profile.csv").read_text().splitlines()))
    profile = posbias.read(HERE / name, tokens="all")
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(profile.mass, rel=1e-5, abs=1e-12)
    for place, claim in zip((0, -1), claims, strict=True):
        gap = profile.samples[:, place] - profile.samples[:, 1:-1].mean(axis=1)
        if profile.kind == "rate" and len(gap) > 1:
            assert claim["number"] == pytest.approx(gap.mean())


def test_every_context_length_has_a_page_of_its_own():
    answer = answered("report", HERE / "needle", "--out", "pages")
    assert [one["page"] for one in answer["lengths"]] == [
        f"pages/{length}-tokens/report.html" for length in (1000, 200000)
    ]
    one = answered("report", HERE / "needle", "--tokens", "200k", "--out", "page")
    assert one["claims"] == answer["lengths"][1]["claims"]
