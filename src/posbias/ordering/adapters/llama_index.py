"""LlamaIndex: a node postprocessor, for query engines and chat engines.

Tested with llama-index-core (docs/order.md says which version).
"""

# pyright: reportMissingImports=false

from posbias.core.packages import missing
from posbias.ordering.adapters import RANK, Reordering

try:
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
except ModuleNotFoundError as error:
    raise missing(error) or error from None

__all__ = ["PositionBiasPostprocessor"]


class PositionBiasPostprocessor(Reordering, BaseNodePostprocessor):
    """Nodes in the order that a profile calls best, if it surely helps; options as of `Reordering`.

    Scores are `NodeWithScore.score`; lengths those of the text that a model is shown, metadata included. Nodes are
    copied; the copies' `metadata["posbias_rank"]` is their place among those given, and is shown to no model.
    """

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex writes this down."""
        return "PositionBiasPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        texts = [hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in nodes]
        places = self.places(nodes, texts, [("score", hit.score) for hit in nodes])
        return [_ranked(nodes[place], place) for place in places]


def _ranked(hit: NodeWithScore, place: int) -> NodeWithScore:
    """A copy with its rank in the metadata, out of sight of language and embedding model."""
    node = hit.node
    lacking = {
        "metadata": node.metadata | {RANK: place},
        "excluded_llm_metadata_keys": [*dict.fromkeys((*node.excluded_llm_metadata_keys, RANK))],
        "excluded_embed_metadata_keys": [*dict.fromkeys((*node.excluded_embed_metadata_keys, RANK))],
    }
    return hit.model_copy(update={"node": node.model_copy(update=lacking)})
