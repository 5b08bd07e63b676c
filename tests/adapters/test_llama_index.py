"""LlamaIndex' own index and query engine with the adapter in them."""

import asyncio
import copy

import pytest
from answers import plain
from frameworks import LAST, SCORES, TEXTS, bag, block_with

pytest.importorskip("llama_index", reason="llama-index-core is not installed: `make test-adapters` has it")

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from posbias.ordering.adapters.llama_index import PositionBiasPostprocessor


class Bag(BaseEmbedding):
    """Bags of words."""

    def _get_query_embedding(self, query):
        return bag(query)

    async def _aget_query_embedding(self, query):
        return bag(query)

    def _get_text_embedding(self, text):
        return bag(text)


def nodes(scores=SCORES):
    return [
        NodeWithScore(node=TextNode(text=text, metadata={"source": "made"}), score=score)
        for text, score in zip(TEXTS, scores, strict=True)
    ]


def test_a_query_engine_shows_the_model_the_best_node_where_it_finds_most():
    index = VectorStoreIndex([TextNode(text=text) for text in TEXTS], embed_model=Bag())
    retriever = index.as_retriever(similarity_top_k=5)
    reorder = PositionBiasPostprocessor(profile=LAST)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM(), node_postprocessors=[reorder])
    plain = retriever.retrieve("Who has the lamp?")
    answer = engine.query("Who has the lamp?")
    assert reorder.last.verdict == "reorder"
    assert plain[0].text == TEXTS[2] == answer.source_nodes[-1].text
    assert [hit.metadata["posbias_rank"] for hit in answer.source_nodes] == [*reorder.last.permutation]
    assert {hit.text: hit.score for hit in answer.source_nodes} == {hit.text: hit.score for hit in plain}
    # the mock answers with its prompt: the nodes' texts in this order, and no rank
    said = str(answer)
    assert [*sorted(TEXTS, key=said.index)] == [hit.text for hit in answer.source_nodes]
    assert "posbias" not in said


def test_nodes_are_copied_and_their_ranks_are_shown_to_no_model():
    given = nodes()
    before = copy.deepcopy(given)
    reorder = PositionBiasPostprocessor(profile=LAST)
    ordered = reorder.postprocess_nodes(given, query_str="lamp?")
    assert given == before
    assert ordered[-1].metadata == {"source": "made", "posbias_rank": 2}
    assert ordered[-1].score == 0.6
    for hit in ordered:
        original = given[hit.metadata["posbias_rank"]].node
        assert hit.node_id == original.node_id
        for mode in (MetadataMode.LLM, MetadataMode.EMBED):
            assert hit.node.get_content(mode) == original.get_content(mode)
    again = reorder.postprocess_nodes(ordered)
    assert again[0].node.excluded_llm_metadata_keys == ["posbias_rank"]
    assert asyncio.run(reorder.apostprocess_nodes(given)) == ordered


def test_it_is_written_down_and_read_back():
    given = PositionBiasPostprocessor(profile="smollm2-135m", prefix=20, always=True)
    read = PositionBiasPostprocessor.from_json(given.to_json())
    assert read.to_dict() == given.to_dict()
    hits = nodes()
    assert read.postprocess_nodes(hits) == given.postprocess_nodes(hits)
    assert plain(read.last) == plain(given.last)


def test_the_block_of_the_page_prints_what_it_says(capsys):
    exec(compile(block_with("adapters.llama_index"), "docs/order.md", "exec"), {})
    assert capsys.readouterr().out == "reorder [1, 8, 5, 2, 3, 6, 4, 9, 7, 0]\n"
