"""Documents of retrieval frameworks in the order that a profile calls best: LangChain, LlamaIndex, Haystack.

    from posbias.adapters.langchain import PositionBiasReorder
    from posbias.adapters.llama_index import PositionBiasPostprocessor
    from posbias.adapters.haystack import PositionBiasRanker

What they do is `posbias.ordering.order`; what they share is `posbias.adapters.reordering`. A framework is imported
by its own module alone, which raises `MissingPackageError` without it.
"""
