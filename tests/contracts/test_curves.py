"""`posbias simulate` interrupted, documents as retrievers write them, results made elsewhere in every command."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from answers import answered, folder  # noqa: F401
from command import started
from project import ROOT

from posbias.core.formats import undamaged
from posbias.ordering.hits import read_hits


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
