"""Critical distances, designs, `posbias simulate` interrupted, hits of retrievers, results made elsewhere."""

import json
import math
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from answers import answered, folder  # noqa: F401
from command import started
from project import ROOT

import posbias
from posbias.core.formats import undamaged
from posbias.ordering.hits import read_hits

SPEC = 'depth = 5\nmixing = {kind = "attention_only"}\n[[layers]]\npositional = '
CRITICAL = {
    "decay": ('{kind = "decay", rate = 0.4}', (0.3, 0.7), lambda at, x: -at * x, lambda at, x: -at * x),
    "rope_angle": (
        '{kind = "rope", amplitudes = [20.0], frequencies = [0.05]}',
        (0.03, 0.08),
        lambda at, x: 20.0 * math.cos(at * x),
        lambda at, x: -10.0 * at**2 * x**2,  # a/2 for c
    ),
}
"""By quantity: the encoding, two values, its logits by distance, and what the envelope of walks takes for them."""
TOKENS = 90


def highest(values):
    return max(range(len(values)), key=values.__getitem__)


def peak_of_rollout(logits, depth):
    """Distance at which the last token's rollout is highest, its first token left out; by dense kernels."""
    kernel = np.array(
        [[math.exp(logits[i - j]) if j <= i else 0.0 for j in range(TOKENS)] for i in range(TOKENS)]
    )
    row = np.linalg.matrix_power(kernel / kernel.sum(axis=1, keepdims=True), depth)[-1]
    return highest(row[:0:-1].tolist())


@pytest.mark.parametrize("quantity", CRITICAL)
def test_the_critical_distance_is_that_of_walks_and_of_dense_kernels(quantity, answered):
    """The predicted one of the paper's formulas: a quotient for a decay, the root of an equation for a pair."""
    encoding, values, logit, envelope = CRITICAL[quantity]
    Path("spec.toml").write_text(SPEC + encoding)
    varied = f"{quantity}={values[0]},{values[1]}"
    words = ("predict", "spec.toml", "--critical-distance", "--tokens", TOKENS, "--vary", varied)
    for curve, value in zip(answered(*words)["curves"], values, strict=True):
        assert curve["depth"] == [1, 2, 3, 4, 5]
        for place, depth in enumerate(curve["depth"]):
            x = curve["predicted"][place]
            if quantity == "decay":
                assert x == pytest.approx((depth - 1) / (math.exp(value) - 1))
            elif depth > 1:
                assert math.log(1 + (depth - 1) / x) == pytest.approx(20.0 * value**2 * x)
            walks = [math.comb(depth - 1 + d, d) * math.exp(envelope(value, d)) for d in range(TOKENS)]
            assert curve["modal"][place] == highest(walks)
            assert curve["rollout"][place] == peak_of_rollout([logit(value, d) for d in range(TOKENS)], depth)


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


CURVE = [8, 4, 3, 4, 9]
TEXT = "a" * 20
BOTH = (0.9, 0.5)
WRITTEN = {
    "llamaindex.jsonl": [{"node": {"id_": "0", "text": TEXT, "metadata": {}}, "score": s} for s in BOTH],
    "langchain.jsonl": [{"page_content": TEXT, "metadata": {"relevance_score": s}} for s in BOTH],
    "cohere.json": {"results": [{"relevance_score": s, "document": {"text": TEXT}} for s in BOTH]},
    "pinecone.json": {"matches": [{"id": "0", "score": s, "metadata": {"text": TEXT}} for s in BOTH]},
    "search.json": {"hits": {"total": 2, "hits": [{"_score": s, "_source": {"text": TEXT}} for s in BOTH]}},
    "plain.csv": f"text,score\n{TEXT},0.9\n{TEXT},0.5\n",
    "bge.jsonl": [{"score": s, "text": TEXT} for s in (-0.3, -4.1)],
    "chroma.jsonl": [{"id": "0", "document": TEXT, "distance": s} for s in (0.1, 0.3)],
    "query.json": {"ids": [["0", "1"]], "documents": [[TEXT] * 2], "distances": [[0.1, 0.3]]},
    "logits.json": [{"logit": s, "text": TEXT} for s in (2.0, 0.0)],
    "alone.jsonl": [{"index": k, "relevance_score": s} for k, s in enumerate(BOTH)],
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


HERE = ROOT / "tests" / "elsewhere"


@pytest.mark.parametrize("name", ["needle", "inseq_saliency.json"])
def test_every_file_is_compared_ordered_by_and_reported(name, answered):
    """Rates, of needles the mean over context lengths, and signed numbers of one length."""
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
