"""Documents of retrieval frameworks in the order that a profile calls best: LangChain, LlamaIndex, Haystack.

    from posbias.ordering.adapters.langchain import PositionBiasReorder
    from posbias.ordering.adapters.llama_index import PositionBiasPostprocessor
    from posbias.ordering.adapters.haystack import PositionBiasRanker

What they do is `order`; what they share is `posbias.ordering.adapters.reordering`. A framework is imported
by its own module alone, which raises `MissingPackageError` without it.
"""
