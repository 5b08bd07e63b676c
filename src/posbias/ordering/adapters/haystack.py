"""Haystack: a component, for pipelines, between a retriever or ranker and the prompt builder.

Tested with haystack-ai (docs/order.md says which version).
"""

# where Haystack is not installed, its name is this module's own to pyright
# pyright: reportMissingImports=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportInvalidTypeForm=false, reportArgumentType=false

from dataclasses import replace
from pathlib import Path
from typing import Any

from posbias.core.errors import wrong
from posbias.core.packages import missing
from posbias.ordering import Ordering
from posbias.ordering.adapters import RANK, Reordering
from posbias.profiles.profile import Profile

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils import deserialize_callable, serialize_callable
except ModuleNotFoundError as error:
    raise missing(error) or error from None

__all__ = ["PositionBiasRanker"]

_FUNCTIONS = ("score", "length")


@component
class PositionBiasRanker:
    """Documents in the order that a profile calls best, if it surely helps; options as of `Reordering`.

    Scores are `Document.score`. Documents are copied; the copies' `meta["posbias_rank"]` is their place among
    those given.
    """

    def __init__(self, profile: Profile | str | Path, **options: Any):
        self._reordering = Reordering(profile=profile, **options)

    @property
    def last(self) -> Ordering | None:
        """What was found for the documents of the last run; None before it, and where there were none."""
        return self._reordering.last

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Copies of the documents, in order. Raises `InvalidValueError` for a document without a score ≥ 0."""
        texts = [document.content for document in documents]
        kept = [("score", document.score) for document in documents]
        return {
            "documents": [
                replace(documents[place], meta=documents[place].meta | {RANK: place})
                for place in self._reordering.places(documents, texts, kept)
            ]
        }

    def to_dict(self) -> dict[str, Any]:
        """The options as Haystack writes pipelines down. Raises `InvalidValueError` for a `Profile` by value."""
        options = self._reordering.model_dump()
        if isinstance(self._reordering.profile, Profile):
            raise wrong("profile", "the name of a model or a file, to write it down", got="a Profile")
        options["profile"] = str(options["profile"])
        for name in _FUNCTIONS:
            options[name] = options[name] and serialize_callable(options[name])
        return default_to_dict(self, **options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PositionBiasRanker":
        """The component that `to_dict` wrote down."""
        options = dict(data["init_parameters"])
        for name in _FUNCTIONS:
            options[name] = options.get(name) and deserialize_callable(options[name])
        return default_from_dict(cls, data | {"init_parameters": options})
