"""Documents of one's own: a question, the documents around it, of which one or several answer.

Files have them in many shapes: texts, objects with title and text, pairs of title and sentences, a column for
each; gold by number, title or text, or marked in the document. All become a `DocumentSet`.
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from posbias.core.errors import is_integer, wrong
from posbias.core.files import data_table
from posbias.core.matching import normalised, place_in
from posbias.core.tables import Names, bare_name, named_rows, number, unexpected
from posbias.retrieval.jobs import POSITIONS, RetrievalJob
from posbias.retrieval.trials import Trial, Trials

NEARLY_ALL = 0.9
"""The share of sets above which gold counts from 1: "21" may stand in another document by chance."""
NAMES: dict[str, Any] = data_table(__file__)
"""What columns are called, by what they hold."""
PARTS = Names(roles=NAMES.pop("document"))
"""What keys of a document are called, by what they hold; `one`: a column for each document."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DocumentSet:
    """A question, the documents that do not answer it, those that do, and by such document what is right.

    `number`: what decides its draws, where that is not its place among others.
    """

    question: str
    others: tuple[str, ...]
    gold: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]
    number: int | None = None

    def __len__(self) -> int:
        return len(self.others) + len(self.gold)


def places_of(sets: Sequence[DocumentSet]) -> int:
    """As many positions as the smallest set has places, between 3 and `POSITIONS`."""
    return max(3, min(POSITIONS, min(map(len, sets), default=0)))


class Documents(Trials):
    """Trials on document sets, one each.

    Raises `InvalidValueError` for fewer sets than prompts, or fewer places than positions.
    """

    def __init__(self, tokenizer: Any, job: RetrievalJob, sets: Sequence[DocumentSet]):
        super().__init__(tokenizer, job)
        self.sets = tuple(sets)
        if job.prompts > len(self.sets):
            raise wrong("prompts", f"at most the {len(self.sets)} sets", job.prompts)
        for index, given in enumerate(self.sets, start=1):
            if len(given) < job.positions:
                most = f"at most the {len(given)} documents of set {index}"
                raise wrong("positions", most, job.positions)

    def trial(self, index: int) -> Trial:
        """The variants of set `index`: its first gold document at each position, all others in one order."""
        given = self.sets[index]
        moved, *rest = given.gold
        index = index if given.number is None else given.number
        others, random = list(given.others), self._random(index)
        for document in rest:
            others.insert(int(random.integers(len(others) + 1)), document)
        slots = np.linspace(0, len(others), self.positions).round().astype(int).tolist()
        right = given.answers[0][:1]
        # without the moved one the other golds stay: they are part of what it moves among
        trial = self._moving(index, moved, others, slots, [given.question], right)
        return replace(trial, accepted=given.answers)

    def _joined(self, pieces: Sequence[str]) -> str:
        item = self._wording.item
        return "".join(item.format(number=k, value=text) for k, text in enumerate(pieces, start=1))


def doubts_of(sets: Sequence[DocumentSet]) -> list[str]:
    """What of sets makes answers to them doubtful, with the number of sets that have it."""
    sizes, total, without, twice = sorted(map(len, sets)), len(sets), 0, 0
    for one in sets:
        texts = [*map(normalised, (*one.gold, *one.others))]
        twice += any(texts.count(text) > 1 for text in texts[: len(one.gold)])
        without += any(place_in(*pair) is None for pair in zip(one.gold, one.answers, strict=True))
    doubts = {
        f"in {without} of {total} sets no accepted answer stands in the gold document": without,
        f"in {twice} of {total} sets the gold document stands twice, so that it is never left out": twice,
        f"sets have {sizes[0]} to {sizes[-1]} documents: places are shares of each": sizes[-1] - sizes[0],
    }
    return [line for line, count in doubts.items() if count]


def read_document_sets(
    path: str | os.PathLike[str], columns: Mapping[str, str] | None = None
) -> tuple[DocumentSet, ...]:
    """Read document sets from a file of JSON lines, JSON or CSV. Raises `InputFileError` naming line and key.

    An object has `question`, `documents` (texts), `gold` (the number of the document that answers, from 0, or a
    list of them) and `answers` (accepted spellings; for several gold documents a list for each). Other names and
    shapes that people have are read too (`NAMES`): a column for each document (`document_1`, `doc1`, …), objects
    with title and text, pairs of a title and sentences, gold by title or text or marked in the document (of
    several such the first with an answer), or left out where the answer stands in one alone. The first gold
    document moves; others that are gold keep a drawn place, the rest their order. `columns` says what columns
    hold, keys within others by points ({"gold": "meta.gold"}). It warns where gold seems to count from 1.
    """
    names = Names(cells=NAMES["documents"], roles=NAMES, columns=columns or {})
    rows = [_set_of(row, held, where) for where, row, held in named_rows(Path(path), names)]
    sets, sought, shifted = zip(*rows, strict=True)
    if sum(shifted) > NEARLY_ALL * len(sets):
        what = "in %d of %d sets the answer stands in the document before the gold one: gold counts from 0"
        log.warning(f"%s: {what}", path, sum(shifted), len(sets))
    if any(sought):
        what = "%d of %d sets name no gold document: it is the one with an answer"
        log.warning(f"%s: {what}", path, sum(sought), len(sets))
    return sets


class _Document(NamedTuple):
    """A document of a file: its text, what it may be called, whether it is marked as one that answers."""

    text: Any
    names: tuple[Any, ...]
    gold: bool = False


def _documents(cell: Any, row: Mapping[str, Any]) -> list[_Document]:
    """The documents of a cell, or of a row that has a column for each, in the order of their numbers."""
    if isinstance(cell, dict) and all(isinstance(one, list) for one in cell.values()):
        # columns of lists, as datasets of Hugging Face have them
        cell = [dict(zip(cell, values, strict=True)) for values in zip(*cell.values(), strict=False)]
    if isinstance(cell, list):
        return [_document(one) for one in cell]
    numbered = [(re.fullmatch(r"(.*?)s?[_ ]?(\d+)", str(key).lower()), key) for key in row]
    single = [*map(bare_name, PARTS.roles["one"])]
    keys = sorted((int(found[2]), key) for found, key in numbered if found and bare_name(found[1]) in single)
    return [_Document(row[key], (key, row[key])) for _, key in keys]


def _document(held: Any) -> _Document:
    """A document with its title before its text, as in the files of Liu et al. 2023."""
    if isinstance(held, list) and len(held) == 2:
        held = dict(zip(("title", "text"), held, strict=True))
    if not isinstance(held, dict):
        return _Document(held, (held,))
    text, title, own, gold = (PARTS.of(held)[key] for key in ("text", "title", "id", "gold"))
    text = " ".join(map(str.strip, text)) if _are_texts(text) else text
    whole = f"(Title: {title}) {text}" if isinstance(title, str) and title and isinstance(text, str) else text
    return _Document(whole, (title, text, own), number(gold) == 1)


_HINT = " (--columns {}=COLUMN)"
"""How a column that is called otherwise is named."""


def _set_of(row: dict[str, Any], held: dict[str, Any], where: str) -> tuple[DocumentSet, bool, bool]:
    """The set in a row, whatever its shape; whether its gold was sought by the answers, and whether the document
    before has one. Raises `InputFileError` that begins with `where`."""
    question, documents, answers = held["question"], _documents(held["documents"], row), held["answers"]
    if isinstance(answers, dict):  # of SQuAD, of TriviaQA
        answers = answers.get("text") or [answers.get("value"), *answers.get("aliases", ())]
    answers = [str(answers)] if isinstance(answers, str) or is_integer(answers) else answers
    texts = [one.text for one in documents]
    if not isinstance(question, str) or not question.strip():
        raise unexpected(f"{where}: question", f"a text{_HINT.format('question')}", question)
    if not _are_texts(texts) or len(texts) < 3:
        what = f"three texts or more{_HINT.format('documents')}"
        raise unexpected(f"{where}: documents", what, texts or held["documents"])
    gold, right = _gold(held["gold"], documents, answers)
    places: list[Any] = gold if isinstance(gold, list) else [gold]
    valid = all(is_integer(one) and 0 <= one < len(texts) for one in places)
    if not places or not valid or len(set(places)) < len(places):
        # one more than the last: so somebody writes who counts from 1
        hint = " (the first is 0, not 1)" if len(texts) in places else ""
        hint += _HINT.format("gold")
        raise unexpected(f"{where}: gold", f"numbers of documents from 0 to {len(texts) - 1}{hint}", gold)
    by_gold: Any = [answers] if len(places) == 1 and _are_texts(answers) else answers
    if not isinstance(by_gold, list) or len(by_gold) != len(places) or not all(map(_are_answers, by_gold)):
        each = "" if len(places) == 1 else f" for each of {len(places)} gold documents"
        raise unexpected(f"{where}: answers", f"a list of texts{each}{_HINT.format('answers')}", answers)
    others = tuple(text for k, text in enumerate(texts) if k not in places)
    value = DocumentSet(question, others, tuple(texts[k] for k in places), tuple(map(tuple, by_gold)))
    sought = held["gold"] is None and not any(one.gold for one in documents)
    return value, sought, len(places) == 1 and places[0] - 1 in right and places[0] not in right


def _gold(cell: Any, documents: Sequence[_Document], answers: Any) -> tuple[Any, list[int]]:
    """The numbers of gold documents, and of those with an answer (where gold has a number: it, or the one before).

    Of documents that are named or marked the first that has an answer is gold; where none is, the one with an
    answer. What is neither is left as it is.
    """
    cell = cell.get("title") if isinstance(cell, dict) else cell
    listed = cell if isinstance(cell, list) else [cell]
    listed = [one[0] if isinstance(one, list) and one else one for one in listed]
    if cell is not None and all(re.fullmatch(r"\s*\d+\s*", str(one)) for one in listed):
        listed = [int(str(one)) for one in listed]
    numbers = cell is not None and not _are_texts(listed)
    sought = [k for k in range(len(documents)) if not numbers or listed in ([k], [k + 1])]
    known = _are_texts(answers)
    right = [k for k in sought if known and place_in(documents[k].text, answers) is not None]
    if numbers:
        return listed, right
    named = [one.gold if cell is None else any(name in listed for name in one.names) for one in documents]
    marked = [k for k, one in enumerate(named) if one]
    if cell is None and not marked:
        return right if len(right) == 1 else None, right
    return [k for k in marked if k in right][:1] or marked[:1] or cell, right


def _are_texts(given: Any) -> TypeGuard[list[str]]:
    return (
        isinstance(given, list) and bool(given) and all(isinstance(one, str) and one.strip() for one in given)
    )


def _are_answers(given: Any) -> TypeGuard[list[str]]:
    """Whether these are texts of which each has a word to look for."""
    return _are_texts(given) and all(normalised(one) for one in given)
