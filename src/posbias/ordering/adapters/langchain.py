"""LangChain: a document transformer that is a compressor too, for pipelines and compression retrievers.

Tested with langchain-core and langchain-classic (docs/order.md says which versions).
"""

# pyright: reportMissingImports=false

from collections.abc import Sequence
from typing import Any

from posbias.core.packages import missing
from posbias.ordering.adapters import RANK, Reordering

try:
    from langchain_core.documents import BaseDocumentCompressor, BaseDocumentTransformer, Document
except ModuleNotFoundError as error:
    raise missing(error) or error from None

__all__ = ["PositionBiasReorder"]

KEYS = ("relevance_score", "score")
"""Where rerankers and retrievers put scores in a document's metadata."""


class PositionBiasReorder(Reordering, BaseDocumentTransformer, BaseDocumentCompressor):
    """Documents in the order that a profile calls best, if it surely helps; options as of `Reordering`.

    Scores are `metadata["relevance_score"]`, else `metadata["score"]`. Documents are copied; the copies'
    `metadata["posbias_rank"]` is their place among those given.
    """

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> list[Document]:
        """Copies of the documents, in order. Raises `InvalidValueError` for a document without a score ≥ 0."""
        texts = [document.page_content for document in documents]
        places = self.places(documents, texts, [_kept(document) for document in documents])
        return [
            documents[place].model_copy(update={"metadata": documents[place].metadata | {RANK: place}})
            for place in places
        ]

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> list[Document]:
        """As `transform_documents`: all documents are kept, the query plays no part."""
        return self.transform_documents(documents)


def _kept(document: Document) -> tuple[str, Any]:
    key = next((key for key in KEYS if key in document.metadata), KEYS[0])
    return f'metadata["{key}"]', document.metadata.get(key)
