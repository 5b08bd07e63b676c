"""Haystack's own pipelines with the adapter in them, run, written down and read back."""

import copy

import pytest
from frameworks import LAST, SCORES, TEXTS, block_with

pytest.importorskip("haystack", reason="haystack-ai is not installed: `make test-adapters` has it")

from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.core.errors import DeserializationError
from haystack.document_stores.in_memory import InMemoryDocumentStore

from posbias.ordering.adapters.haystack import PositionBiasRanker

TEMPLATE = "{% for document in documents %}{{ document.content }}\n{% endfor %}{{ query }}"
QUERY = "Nothing of rain, bread or ships: the lamp, does it belong to Anna?"
"""Has a word of every text, so that BM25 finds them all."""


def documents(scores=SCORES):
    return [
        Document(content=text, score=score, meta={"source": "made"})
        for text, score in zip(TEXTS, scores, strict=True)
    ]


def pipeline(ranker):
    """Retriever, ranker, prompt."""
    whole = Pipeline()
    whole.add_component("retriever", InMemoryBM25Retriever(stocked(), top_k=5))
    whole.add_component("order", ranker)
    whole.add_component("prompt", PromptBuilder(TEMPLATE, required_variables="*"))
    whole.connect("retriever.documents", "order.documents")
    whole.connect("order.documents", "prompt.documents")
    return whole


def stocked():
    store = InMemoryDocumentStore()
    store.write_documents([Document(content=text) for text in TEXTS])
    return store


def run(whole):
    given = {"retriever": {"query": QUERY}, "prompt": {"query": QUERY}}
    return whole.run(given, include_outputs_from={"retriever", "order"})


def test_a_pipeline_shows_the_model_the_best_document_where_it_finds_most():
    # documents taken to be as long: what BM25 thinks of them differs between versions
    whole = pipeline(PositionBiasRanker(LAST, length=lambda text: 1.0))
    outputs = run(whole)
    plain, ordered = outputs["retriever"]["documents"], outputs["order"]["documents"]
    last = whole.get_component("order").last
    assert last.verdict == "reorder"
    assert plain[0].content == TEXTS[2] == ordered[-1].content
    assert [one.meta["posbias_rank"] for one in ordered] == [*last.permutation]
    assert {one.id: one.score for one in ordered} == {one.id: one.score for one in plain}
    assert outputs["prompt"]["prompt"].split("\n") == [*(one.content for one in ordered), QUERY]


def test_a_pipeline_is_written_down_and_read_back():
    whole = pipeline(PositionBiasRanker("smollm2-135m", length=len, prefix=40, always=True))
    text = whole.dumps()
    read = Pipeline.loads(text, allowed_modules=["posbias"])
    # connections may be listed in another order
    assert read.to_dict()["components"] == whole.to_dict()["components"]
    assert run(read)["prompt"] == run(whole)["prompt"]
    with pytest.raises(DeserializationError, match="posbias"):
        Pipeline.loads(text)


def test_documents_are_copied():
    given = documents()
    before = copy.deepcopy(given)
    ordered = PositionBiasRanker(LAST).run(given)["documents"]
    assert given == before
    assert ordered[-1].meta == {"source": "made", "posbias_rank": 2}
    assert ordered[-1].id == given[2].id


def test_the_block_of_the_page_prints_what_it_says(capsys):
    exec(compile(block_with("adapters.haystack"), "docs/order.md", "exec"), {})
    assert capsys.readouterr().out == "reorder [1, 8, 5, 2, 3, 6, 4, 9, 7, 0]\n"
