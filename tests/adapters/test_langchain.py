"""LangChain's own retrievers and pipelines with the adapter in them."""

import asyncio
import copy

import pytest
from frameworks import LAST, SCORES, TEXTS, bag, block_with

pytest.importorskip("langchain_core", reason="langchain-core is not installed: `make test-adapters` has it")
pytest.importorskip(
    "langchain_classic", reason="langchain-classic is not installed: `make test-adapters` has it"
)

from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import BaseDocumentCompressor, BaseDocumentTransformer, Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from posbias.ordering.adapters.langchain import PositionBiasReorder


class Bag(Embeddings):
    """Bags of words."""

    def embed_documents(self, texts):
        return [bag(text) for text in texts]

    def embed_query(self, text):
        return bag(text)


def documents(key="relevance_score"):
    return [
        Document(page_content=text, metadata={key: score, "source": "made"}, id=str(place))
        for place, (text, score) in enumerate(zip(TEXTS, SCORES, strict=True))
    ]


@pytest.fixture
def retriever():
    """A vector store that says its scores, as LangChain's documentation has it: in the metadata."""
    store = InMemoryVectorStore(Bag())
    store.add_texts(TEXTS)

    def retrieve(query):
        found = store.similarity_search_with_score(query, k=5)
        return [Document(one.page_content, metadata={"score": score}) for one, score in found]

    return RunnableLambda(retrieve)


def test_a_compression_retriever_puts_the_best_document_where_the_model_finds_most(retriever):
    plain = retriever.invoke("Who has the lamp?")
    assert "lamp" in plain[0].page_content
    reorder = PositionBiasReorder(profile=LAST)
    whole = ContextualCompressionRetriever(base_compressor=reorder, base_retriever=retriever)
    ordered = whole.invoke("Who has the lamp?")
    assert reorder.last.verdict == "reorder"
    assert [one.metadata["posbias_rank"] for one in ordered] == [*reorder.last.permutation]
    assert ordered[-1].page_content == plain[0].page_content
    assert {one.page_content: one.metadata["score"] for one in ordered} == {
        one.page_content: one.metadata["score"] for one in plain
    }
    assert asyncio.run(whole.ainvoke("Who has the lamp?")) == ordered


@pytest.mark.parametrize("key", ["relevance_score", "score"])
def test_it_transforms_and_compresses_alike_and_leaves_the_given_documents(key):
    given = documents(key)
    before = copy.deepcopy(given)
    reorder = PositionBiasReorder(profile=LAST)
    assert isinstance(reorder, BaseDocumentTransformer)
    assert isinstance(reorder, BaseDocumentCompressor)
    ordered = reorder.transform_documents(given)
    assert given == before
    assert reorder.compress_documents(given, "lamp?") == ordered
    assert asyncio.run(reorder.atransform_documents(given)) == ordered
    assert ordered[-1].metadata == {key: 0.6, "source": "made", "posbias_rank": 2}
    assert [one.id for one in ordered] == [str(one.metadata["posbias_rank"]) for one in ordered]


def test_the_block_of_the_page_prints_what_it_says(capsys):
    exec(compile(block_with("adapters.langchain"), "docs/order.md", "exec"), {})
    assert capsys.readouterr().out == "reorder [1, 8, 5, 2, 3, 6, 4, 9, 7, 0]\n"
