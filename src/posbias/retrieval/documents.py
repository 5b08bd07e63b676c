"""Documents of one's own: a question, the documents around it, of which one or several answer."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from posbias.core.errors import InputFileError, InvalidValueError, is_integer
from posbias.core.matching import normalised, place_in
from posbias.core.tables import Names, table_lines, unexpected
from posbias.retrieval.jobs import POSITIONS, RetrievalJob, retrieval_job
from posbias.retrieval.trials import Trial, Trials

NEARLY_ALL = 0.9
"""The share of sets above which gold counts from 1: "21" may stand in another document by chance."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DocumentSet:
    """A question, the documents that do not answer it, those that do, and by such document what is right."""

    question: str
    others: tuple[str, ...]
    gold: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.others) + len(self.gold)


def places_of(sets: Sequence[DocumentSet], at_most: int = POSITIONS) -> int:
    """As many positions as the smallest set has places, between 3 and `at_most`."""
    return max(3, min(at_most, min(map(len, sets), default=0)))


def job_of(sets: Sequence[DocumentSet], **given: Any) -> RetrievalJob:
    """The job that asks about all document sets; `given` as of `retrieval_job`. Raises as that."""
    about: dict[str, Any] = {"positions": places_of(sets), "prompts": len(sets)}
    return retrieval_job("documents", **about | {name: one for name, one in given.items() if one is not None})


class Documents(Trials):
    """Trials on document sets, one each. Raises `InvalidValueError` for a set of fewer places than positions."""

    def __init__(self, sets: Sequence[DocumentSet], tokenizer: Any, wording: str, positions: int, seed: int):
        super().__init__(tokenizer, "documents", wording, positions, seed)
        self.sets = tuple(sets)
        for number, given in enumerate(self.sets, start=1):
            if len(given) < positions:
                raise InvalidValueError(
                    f"positions: expected at most the {len(given)} documents of set {number}, got {positions}"
                )

    def documents(self, prompts: int) -> dict[str, list[int]]:
        """Of the first `prompts` sets the fewest and the most documents, for what is kept of a job."""
        counts = [len(one) for one in self.sets[:prompts]]
        return {"documents": [min(counts), max(counts)]}

    def trial(self, index: int) -> Trial:
        """The variants of set `index`: its first gold document at each position, all others in one order."""
        given = self.sets[index]
        moved, *rest = given.gold
        others, random = list(given.others), self._random(index)
        for document in rest:
            others.insert(int(random.integers(len(others) + 1)), document)
        slots = np.linspace(0, len(others), self.positions).round().astype(int).tolist()
        right = given.answers[0][:1]
        # without the moved one the other golds stay: they are part of what it moves among
        return self._moving(index, moved, others, slots, [given.question], right, accepted=given.answers)

    def _joined(self, pieces: Sequence[str]) -> str:
        item = self._wording.item
        return "".join(item.format(number=k, value=text) for k, text in enumerate(pieces, start=1))


def read_document_sets(path: str | os.PathLike[str]) -> tuple[DocumentSet, ...]:
    """Read document sets from a file of JSON lines, JSON or CSV. Raises `InputFileError` naming line and key.

    An object has `question`, `documents` (texts), `gold` (the number of the document that answers, from 0, or a
    list of them) and `answers` (accepted spellings; for several gold documents a list for each). CSV may have a
    column for each document (`document_1`, …) and an `answer`. Lines of Liu et al. 2023 (`question`, `answers`,
    and `ctxs` with `title`, `text` and `isgold`) are read as they are. The first gold document moves; others that
    are gold keep a drawn place, the rest their order. It warns where gold seems to count from 1.
    """
    sets, shifted = [], 0
    for line in table_lines(Path(path), Names(cells=("documents", "ctxs"))):
        row = _of_csv(line.columns) if ".csv" in Path(path).suffixes else line.columns
        row = _plain(row, line.where) if "ctxs" in row else row
        sets.append(_set_of(row, line.where))
        shifted += _stands_before(row)
    if not sets:
        raise InputFileError(f"{path}: expected one JSON object for each question, got no line")
    if shifted > NEARLY_ALL * len(sets):
        what = "in %d of %d sets the answer stands in the document before the gold one: gold counts from 0"
        log.warning(f"%s: {what}", path, shifted, len(sets))
    return tuple(sets)


def _stands_before(row: Mapping[str, Any]) -> bool:
    """Whether the answer stands in the document before the only gold one, and not in it."""
    gold: Any = row["gold"]
    gold = gold[0] if isinstance(gold, list) and len(gold) == 1 else gold
    if not is_integer(gold) or gold == 0 or not _are_texts(row["answers"]):
        return False
    before, own = (place_in(row["documents"][place], row["answers"]) for place in (gold - 1, gold))
    return before is not None and own is None


def _of_csv(row: dict[str, Any]) -> dict[str, Any]:
    """A row of CSV as JSON lines have it: documents may be a column each, by their numbers; an answer a text."""
    numbered = [(re.fullmatch(r"(?:document|doc|passage)s?[_ ]?(\d+)", key.lower()), key) for key in row]
    texts = [row[key] for _, key in sorted((int(found[1]), key) for found, key in numbered if found)]
    gold, answers = row.get("gold"), row.get("answers", row.get("answer"))
    gold = int(gold) if isinstance(gold, str) and gold.isdecimal() else gold
    answers = [answers] if isinstance(answers, str) else answers
    return {"documents": texts} | row | {"gold": gold, "answers": answers}


def _plain(row: dict[str, Any], where: str) -> dict[str, Any]:
    """A line of Liu et al. 2023 with the keys of ours; a title stands before its text."""
    entries = row["ctxs"]
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise unexpected(f"{where}: ctxs", "a list of objects", entries)
    documents = []
    for one in entries:
        title, text = one.get("title"), one.get("text")
        documents.append(f"(Title: {title}) {text}" if isinstance(title, str) and title else text)
    gold = [k for k, one in enumerate(entries) if one.get("isgold") is True]
    return {
        "question": row.get("question"),
        "documents": documents,
        "gold": gold[:1],
        "answers": row.get("answers"),
    }


def _set_of(row: dict[str, Any], where: str) -> DocumentSet:
    question, documents = row.get("question"), row.get("documents")
    if not isinstance(question, str) or not question.strip():
        raise unexpected(f"{where}: question", "a text", question)
    if not _are_texts(documents) or len(documents) < 3:
        raise unexpected(f"{where}: documents", "three texts or more", documents)
    gold = row.get("gold")
    places: list[Any] = gold if isinstance(gold, list) else [gold]
    valid = all(is_integer(one) and 0 <= one < len(documents) for one in places)
    if not places or not valid or len(set(places)) < len(places):
        # one more than the last: so somebody writes who counts from 1
        hint = " (the first is 0, not 1)" if len(documents) in places else ""
        raise unexpected(f"{where}: gold", f"numbers of documents from 0 to {len(documents) - 1}{hint}", gold)
    answers = row.get("answers")
    by_gold: Any = [answers] if len(places) == 1 and _are_texts(answers) else answers
    if not isinstance(by_gold, list) or len(by_gold) != len(places) or not all(map(_are_answers, by_gold)):
        each = "" if len(places) == 1 else f" for each of {len(places)} gold documents"
        raise unexpected(f"{where}: answers", f"a list of texts{each}", answers)
    others = tuple(text for k, text in enumerate(documents) if k not in places)
    return DocumentSet(
        question, others, tuple(documents[k] for k in places), tuple(tuple(one) for one in by_gold)
    )


def _are_texts(given: Any) -> TypeGuard[list[str]]:
    return (
        isinstance(given, list) and bool(given) and all(isinstance(one, str) and one.strip() for one in given)
    )


def _are_answers(given: Any) -> TypeGuard[list[str]]:
    """Whether these are texts of which each has a word to look for."""
    return _are_texts(given) and all(normalised(one) for one in given)
