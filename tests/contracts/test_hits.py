"""Hits of retrievers: what stores and rerankers write is read by what its fields are called, or asked about."""

import json
from pathlib import Path

import numpy as np
import pytest
from answers import folder  # noqa: F401

from posbias.core.errors import InputFileError
from posbias.ordering.hits import read_hits

pytestmark = pytest.mark.usefixtures("folder")
TEXT = "a" * 20
BOTH = (0.9, 0.5)
THREE = (0.9, 0.5, 0.2)


def documents(scores=THREE, **keys):
    """Documents with a text, and a number of each of these names (by default a score)."""
    keys = keys or {"score": scores}
    return [
        {"text": TEXT} | dict(zip(keys, numbers, strict=True)) for numbers in zip(*keys.values(), strict=True)
    ]


def written(name, held):
    """A file: a text as it is, JSON lines of a list, else JSON."""
    lines = isinstance(held, list) and name.endswith(".jsonl")
    text = "".join(json.dumps(row) + "\n" for row in held) if lines else json.dumps(held)
    Path(name).write_text(held if isinstance(held, str) else text, encoding="utf-8")
    return name


PAIRS = [[{"page_content": TEXT, "metadata": {"source": "a"}}, s] for s in BOTH]
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
    "pairs.json": PAIRS,
    "pairs.jsonl": PAIRS,
    "pairs_within.json": {"results": PAIRS},
    "texts.json": [[TEXT, s] for s in BOTH],
    "ids.json": [["0", TEXT, s] for s in BOTH],
    "solr.json": {
        "responseHeader": {"status": 0},
        "response": {"numFound": 2, "maxScore": 9.0, "docs": [{"text": [TEXT], "score": s} for s in BOTH]},
    },
    "meilisearch.json": {"hits": [{"text": TEXT, "_rankingScore": s} for s in BOTH], "query": "q"},
    "typesense.json": {
        "found": 2,
        "hits": [{"document": {"text": TEXT}, "highlights": [], "text_match": s} for s in (578730, 578650)],
    },
    "redis.jsonl": [{"id": "doc:1", "vector_distance": s, "content": TEXT} for s in ("0.1", "0.4")],
    "weaviate.json": {
        "data": {"Get": {"Doc": [{"text": TEXT, "_additional": {"certainty": s}} for s in BOTH]}}
    },
    "parts.json": {"data": [{"score": s, "content": [{"type": "text", "text": TEXT}]} for s in BOTH]},
    "rank.jsonl": [{"text": TEXT, "rank": k} for k in (1, 2)],
    "opensearch.json": {"hits": {"hits": [{"_score": s, "_source": {"passage_text": TEXT}} for s in BOTH]}},
    "mongodb.json": [{"text": TEXT, "vectorSearchScore": s} for s in BOTH],
    "null.json": [{"text": TEXT, "score": s, "distance": None, "rerank_score": None} for s in BOTH],
    "fused.json": [{"text": TEXT, "text_match": 1 / s, "rank_fusion_score": s} for s in BOTH],
    "matched.json": [{"text": TEXT, "text_match": s, "text_match_info": {"score": s}} for s in (578, 577)],
}
WEIGHTS = {
    name: [1, 0.5]
    for name in (
        *("bge.jsonl", "chroma.jsonl", "query.json", "typesense.json", "redis.jsonl", "rank.jsonl"),
        *("fused.json", "matched.json"),
    )
}
WEIGHTS["logits.json"] = [1 / (1 + np.exp(-2)), 0.5]


@pytest.mark.parametrize("name", WRITTEN)
def test_documents_are_read_as_retrievers_write_them(name):
    found = read_hits(written(name, WRITTEN[name]))
    assert found.scores == pytest.approx(WEIGHTS.get(name, [0.9, 0.5]))
    assert (found.unit, None if found.lengths is None else found.lengths.tolist()) == (
        (None, None) if name == "alone.jsonl" else ("characters", [20.0, 20.0])
    )
    assert bool(found.note) == (name in WEIGHTS)
    Path(f"again-{name}").write_text(found.text([1, 0]), encoding="utf-8")
    assert read_hits(f"again-{name}").scores == pytest.approx(found.scores[::-1])


SEVERAL = {
    "chroma.json": {
        "ids": [["0", "1", "2"], ["3", "4", "5"]],
        "documents": [[TEXT] * 3] * 2,
        "distances": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]],
    },
    "run.trec": "".join(f"q{q} Q0 d{k} {k} {s} bm25\n" for q in (1, 2) for k, s in enumerate(THREE)),
    "column.csv": "query_id,text,score\n" + "".join(f"q{q},{TEXT},{s}\n" for q in (1, 2) for s in THREE),
    "lines.jsonl": [{"query": f"q{q}", "hits": documents()} for q in (1, 2)],
    "answers.jsonl": [{"query": f"q{q}", "documents": documents()} for q in (1, 2)],
    "lists.json": [documents(), documents()],
    "by_query.json": {"q1": documents(), "q2": documents()},
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_queries_are_several_lists_and_the_first_is_said_to_be_taken(name):
    found = read_hits(written(name, SEVERAL[name]))
    assert found.scores == pytest.approx([1, 1 / 2, 1 / 3] if name == "chroma.json" else THREE)
    assert "of 2 queries" in found.note
    Path(f"again-{name}").write_text(found.text([0, 2, 1]), encoding="utf-8")
    again = read_hits(f"again-{name}")
    assert (again.scores == pytest.approx(found.scores[[0, 2, 1]]), "queries" in again.note) == (True, False)


def test_of_two_scores_the_rerankers_counts_and_what_is_not_used_is_said():
    """Whoever wrote both: a reranker, its framework's metadata, a search service; else the first known name."""
    others = {"rerank_score": "score", "@search.rerankerScore": "@search.score", "score": "bm25_score"}
    for used, unused in others.items():
        rows = documents(**{unused: THREE, used: (0.1, 0.8, 0.3)})
        found = read_hits(written("both.jsonl", rows))
        assert found.scores == pytest.approx([0.1, 0.8, 0.3])
        assert unused.strip("@").replace(".", "_") in found.note
    rows = [
        {"page_content": TEXT, "metadata": {"relevance_score": r}, "score": s}
        for r, s in zip((0.1, 0.8, 0.3), THREE, strict=True)
    ]
    assert read_hits(written("meta.jsonl", rows)).scores == pytest.approx([0.1, 0.8, 0.3])


def test_a_score_that_rises_and_a_distance_that_falls_are_asked_about():
    """LangChain's FAISS and Qdrant's Euclid call a distance a score; Milvus calls an inner product a distance."""
    rising, falling = (
        written("faiss.jsonl", documents(THREE[::-1])),
        written("milvus.json", {"data": documents(distance=THREE)}),
    )
    for name, by_rank in ((rising, [1, 1 / 2, 1 / 3]), (falling, [1 / 3, 1 / 2, 1])):
        with pytest.raises(InputFileError, match=r"--scores distance .* --scores similarity"):
            read_hits(name)
        assert read_hits(name, "distance").scores == pytest.approx(by_rank)
    assert read_hits(rising, "similarity").scores == pytest.approx(THREE[::-1])
    assert read_hits(falling, "similarity").scores == pytest.approx(THREE)
    # a run of TREC has its ranks
    run = "".join(f"q Q0 d{k} {4 - k} {s} x\n" for k, s in zip((1, 2, 3), THREE[::-1], strict=True))
    assert read_hits(written("run.txt", run)).scores == pytest.approx(THREE[::-1])


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        *[((0.9, -1, 0.2), "line 2"), ((0.8, 80, 75), "0.8 and 80"), ((0.9, None, 0.2), "line 2")],
        ((None, None, None), "line 1: score: .*None"),
        ((0.9, float("nan"), 0.2), "line 2: score: expected a value as in other rows"),
    ],
)
def test_marks_for_no_score_and_two_scales_in_one_column_are_named(scores, words):
    with pytest.raises(InputFileError, match=words) as refused:
        read_hits(written("hits.jsonl", documents(scores)))
    assert "\n" not in str(refused.value)


def test_a_length_of_the_file_is_not_that_of_the_text():
    def lengths(**row):
        return read_hits(written("a.jsonl", [row | {"score": s} for s in THREE])).lengths

    inner = {"text": TEXT, "tokens": 7}
    assert lengths(page_content=TEXT, metadata={"tokens": 7, "length": 3}) == pytest.approx([20.0] * 3)
    assert lengths(metadata=inner) == pytest.approx([7.0] * 3)
    assert lengths(**inner) == pytest.approx([7.0] * 3)
    assert lengths(id="d", metadata={"tokens": 7}) is None
    some = [{"text": TEXT, "meta": {"tokens": 7} if s > 0.5 else {}, "score": s} for s in THREE]
    assert read_hits(written("some.jsonl", some)).lengths == pytest.approx([20.0] * 3)


def test_documents_without_scores_are_ranked_as_listed_where_that_is_said():
    name = written("plain.json", [{"text": TEXT}] * 3)
    with pytest.raises(InputFileError, match="--scores rank"):
        read_hits(name)
    assert read_hits(name, "rank").scores == pytest.approx([1, 1 / 2, 1 / 3])
    # so are those whose ranks repeat
    name = written("again.json", [{"text": TEXT, "rank": rank} for rank in (1, 2, 1)])
    with pytest.raises(InputFileError, match=r"entry 2: rank: .*--scores rank.*, got 1 again"):
        read_hits(name)
    again = read_hits(name, "rank")
    assert again.scores == pytest.approx([1, 1 / 2, 1 / 3])
    assert "the order as listed" in again.note
