"""Documents of retrieval frameworks in the order that a profile calls best: LangChain, LlamaIndex, Haystack.

    from posbias.ordering.adapters.langchain import PositionBiasReorder
    from posbias.ordering.adapters.llama_index import PositionBiasPostprocessor
    from posbias.ordering.adapters.haystack import PositionBiasRanker

Here is what they share: their options, and from scores and texts the places of documents. An adapter says where
its framework keeps scores and texts, and puts copies of the documents in these places. Documents move only where
that surely gains: with the verdicts "no difference" and "not known" they stay. A framework is imported by its own
module alone, which raises `MissingPackageError` without it.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, InstanceOf, PrivateAttr, ValidationError

from posbias.core.errors import InvalidValueError, non_negative, positive, shortened, wrong
from posbias.ordering import Ordering, order, profile_of
from posbias.profiles.profile import Profile

__all__ = ["RANK", "Reordering"]

RANK = "posbias_rank"
"""The key of a document's metadata that holds its place among the documents given, 0-based."""
_LOG = logging.getLogger(__name__)


class Reordering(BaseModel):
    """The options of every adapter, and what it found last.

    `profile`: a known model ("smollm2-135m"), a file that `posbias order --profile` reads, or a `Profile`.
    `score`: of a document, ≥ 0, in proportion to the chance that it holds what is asked for (None: what the
    framework keeps). `length`: of a text in tokens, above 0 (None: its characters); `prefix` and `suffix`, what
    stands before and behind the documents, in the same unit. `always`: move documents whatever the verdict.

    Raises `InvalidValueError` for options that cannot be right, `InputFileError` for a profile that cannot be
    read.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    profile: InstanceOf[Profile] | str | Path
    score: Callable[[Any], Any] | None = None
    length: Callable[[str], Any] | None = None
    prefix: float = 0.0
    suffix: float = 0.0
    always: bool = False
    _curve: Profile = PrivateAttr()
    _last: Ordering | None = PrivateAttr(None)

    def __init__(self, **options: Any):
        try:
            super().__init__(**options)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            expected = first["msg"].removeprefix("Input should be ")
            expected = "a known model, a file or a Profile" if name == "profile" else expected
            got = shortened(options[name]) if name in options else "none"
            raise wrong(name, expected, got=got) from None
        for name in ("prefix", "suffix"):
            non_negative(name, getattr(self, name))
        self._curve = self.profile if isinstance(self.profile, Profile) else profile_of(str(self.profile))

    @property
    def last(self) -> Ordering | None:
        """What was found for the documents of the last call; None before it, and where there were none."""
        return self._last

    def places(
        self, documents: Sequence[Any], texts: Sequence[str | None], kept: Sequence[tuple[str, Any]]
    ) -> list[int]:
        """The places of documents in the order to put them: as they are where no other surely helps.

        `texts` are what the model will read of them; `kept` where the framework keeps each score, and that score.
        Raises `InvalidValueError` naming the document without a text or a score ≥ 0.
        """
        self._last = None
        if not documents:
            return []
        if self.score is not None:
            kept = [("score", self.score(document)) for document in documents]
        scores = [
            _checked_score(f"documents[{place}]: {where}", one) for place, (where, one) in enumerate(kept)
        ]
        measure = self.length or len
        lengths = [
            float(positive(f"documents[{place}]: length of its text", measure(text or "")))
            for place, text in enumerate(texts)
        ]
        found = order(
            len(scores),
            scores,
            lengths,
            profile=self._curve,
            prefix=self.prefix,
            suffix=self.suffix,
            in_tokens=self.length is not None,
        )
        self._last = found
        moved = self.always or found.verdict == "reorder"
        verdict, as_given = str(found).split("\n")[:2]
        done = "reordered" if moved else "left as they are"
        _LOG.info("%d documents %s; %s; %s", len(scores), done, verdict, as_given)
        return found.of(list(range(len(scores)))) if moved else list(range(len(scores)))


def _checked_score(where: str, given: Any) -> float:
    try:
        return float(non_negative(where, given))
    except InvalidValueError as error:
        raise InvalidValueError(
            f"{error}; pass score=, a function of a document (of logits: 1 / (1 + math.exp(-logit)))"
        ) from None
