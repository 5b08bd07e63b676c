"""Designs, `posbias simulate` interrupted, hits of retrievers."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from answers import answered, folder  # noqa: F401
from command import started

import posbias
from posbias.core.formats import undamaged
from posbias.ordering.hits import read_hits


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
