"""Prompts that ask for one fact, which stands at one place after another while all else stays as it is.

A trial is one set of facts. In the `keys` task they are a list (who owns what) and one owner is asked for; in
the `needle` task one fact stands between the sentences of running text; `documents` are one's own, of which one or
several hold what is asked for. The variants of a trial differ only in where the asked fact stands; between trials
names, things, text and the order of the others are drawn anew.

    Anna: lamp                 Peter: chair
    Peter: chair      →        Anna: lamp          … and ask for Anna
    Maria: bridge              Maria: bridge

Each variant is also asked for somebody who does not occur: what a model answers then owes nothing to the
question, only to where a thing stands and to what the model likes to say. Three more prompts ask for the fact
without it (what is guessed), alone (what can be done at all), and with everything in a drawn order.

An answer in words is right by one of two rules, both without a model that judges. `contains`: an accepted spelling
stands in the answer, as whole words, once both are in lower case and without punctuation and articles (Liu et al.
2023 look for it anywhere, in the middle of words too). `first`: of all that could be the answer, the right one
stands first; an answer that lists everything is so not right by listing.
"""

import bisect
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
from pydantic import Field

from posbias.core import machine
from posbias.core.errors import InputFileError, InvalidValueError, ModelError, is_integer, one_of, shortened
from posbias.core.spec import Count, NaturalNumber, value
from posbias.core.tables import Names, table_lines, unexpected
from posbias.retrieval.wordings import NAMES, QUALITIES, SURNAMES, THINGS, WORDINGS, Pool, Words

CHOICES = 8
"""Things that a needle's answer is compared with, itself included; the others do not stand in the text."""
ABSENT, ALONE, SHUFFLED = ARMS = ("no gold", "gold alone", "shuffled")
"""Control arms: the asked fact left out, nothing but it, and all facts or sentences in a drawn order."""
_FITTED = 4
_DRAWS = 200
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*$")
_PAIRS, _LENGTH, POSITIONS = 5, 256, 5
"""The defaults of a job."""
NEARLY_ALL = 0.9
"""The share of sets above which gold counts from 1: "21" may stand in another document by chance."""
Rule = Literal["contains", "first"]
log = logging.getLogger(__name__)


@value
class RetrievalJob:
    """What is asked of a model: all that decides the numbers, but for the model and the text.

    `task` is `keys` (a list of `pairs`, or as many as `length` tokens hold) or `needle` (running text of
    `length` tokens), where one of `pairs` and `length` is given, or `documents` (one's own, which decide both).
    Raises `InvalidValueError` for what cannot be right.
    """

    task: Literal["keys", "needle", "documents"]
    pairs: Count | None
    length: Count | None
    wording: str
    positions: int = Field(ge=3)
    prompts: int = Field(ge=2)
    seed: NaturalNumber = 0

    def __post_init__(self):
        sizes = {name: held for name in ("pairs", "length") if (held := getattr(self, name)) is not None}
        wanted, right = {
            "keys": ("pairs or length", len(sizes) == 1),
            "needle": ("length alone", [*sizes] == ["length"]),
            "documents": ("neither, as files decide", not sizes),
        }[self.task]
        if not right:
            raise InvalidValueError(
                f"{next(iter(sizes), 'length')}: expected {wanted} with the task {self.task}, "
                f"got {sizes or 'none'}"
            )
        if self.pairs is not None:
            _fit(self.positions, self.pairs)
        one_of("wording", self.wording, WORDINGS[self.task])


def _fit(positions: int, pairs: int) -> None:
    if positions > pairs:
        raise InvalidValueError(f"positions: expected at most the {pairs} pairs of the list, got {positions}")


def check_text(task: str, text: object) -> None:
    """Raise `InvalidValueError` for a `text`, not None, that no task but needle has."""
    if task != "needle" and text is not None:
        raise InvalidValueError(f"text: expected none with the task {task}, got {shortened(text)}")


def retrieval_job(
    task: str = "keys",
    *,
    pairs: int | None = None,
    length: int | None = None,
    wording: str | None = None,
    positions: int | None = None,
    prompts: int = 64,
    seed: int = 0,
) -> RetrievalJob:
    """A job with what is not given filled in: 5 pairs, or 256 tokens around a needle, and 5 positions at most.

    Of `documents` nothing of the kind is filled in.

    Raises `InvalidValueError` for values that cannot be right.
    """
    one_of("task", task, WORDINGS)
    if pairs is None and length is None and task != "documents":
        pairs, length = (_PAIRS, None) if task == "keys" else (None, _LENGTH)
    if positions is None:
        positions = POSITIONS if pairs is None else max(3, min(POSITIONS, pairs))
    machine.stream(seed, "retrieval")
    first = next(iter(WORDINGS[task]))
    parts: Any = (task, pairs, length, first if wording is None else wording, positions, prompts, seed)
    try:
        return RetrievalJob(*parts)
    except InvalidValueError as error:
        # the arguments are this function's own: who calls it need not know the class
        raise InvalidValueError(str(error).removeprefix(f"{RetrievalJob.__name__}: ")) from None


@dataclass(frozen=True)
class Trial:
    """One set of facts in all its variants.

    `asked`, `control`: the prompt by position, asking for the fact and for somebody who does not occur;
    `answers`: what may follow, the right one first; `places`: by position, the character of `asked` at which
    the right thing stands; `depths`: by position, the share of the other facts or words that stand before it.
    `arms`: the prompt of each control arm (`ARMS`). `accepted`: by asked fact, the moved one first, every
    spelling that is right; without any, `answers[0]` is.
    """

    asked: tuple[str, ...]
    control: tuple[str, ...]
    answers: tuple[str, ...]
    places: tuple[int, ...]
    depths: tuple[float, ...]
    arms: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[tuple[str, ...], ...] = ()


class Trials:
    """What all tasks share: the tokenizer, the wording, the seed, and how many positions there are.

    `trial(index)` makes the variants of one trial, the same on every machine and whatever else was drawn.
    """

    def __init__(self, tokenizer: Any, task: str, wording: str, positions: int, seed: int):
        self.tokenizer, self.positions, self._seed = tokenizer, positions, seed
        self._wording = WORDINGS[task][wording]
        self._names = Pool(self.encode, NAMES, SURNAMES, "owners")
        joint = self._wording.joint
        self._things = Pool(self.encode, THINGS, QUALITIES, "things", before=True, joint=joint)
        if self._wording.chat and not getattr(tokenizer, "chat_template", None):
            raise ModelError(
                f"wording: expected {', '.join(name for name, one in WORDINGS[task].items() if not one.chat)}, "
                f"as the model's tokenizer has no chat template, got {shortened(wording)}"
            )

    def trial(self, index: int) -> Trial:
        """The variants of trial `index`."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, with the special tokens that the tokenizer adds by itself."""
        added = not self._wording.chat
        return self.tokenizer(list(texts), add_special_tokens=added, verbose=False)["input_ids"]

    def tokens(self, text: str) -> int:
        """Number of tokens of a text."""
        return len(self.encode([text])[0])

    def _random(self, index: int, name: str = "retrieval") -> np.random.Generator:
        return np.random.default_rng(machine.sequence(self._seed, name, index))

    def _prompt(self, context: str, key: str) -> str:
        """`context` and the question for `key`, up to where the thing is to follow."""
        w = self._wording
        body = w.opening + context + w.question.format(key=key)
        if w.chat:
            turn = [{"role": "user", "content": body}]
            body = self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        return body + w.reply.format(key=key)

    def _joined(self, pieces: Sequence[str]) -> str:
        """The pieces of a trial as one text."""
        return "".join(pieces)

    def _within(self, key: str) -> int:
        """The character of a fact at which its thing stands."""
        return self._wording.item.format(key=key, value="\0").index("\0")

    def _moving(
        self,
        index: int,
        fact: str,
        others: Sequence[str],
        slots: Sequence[int],
        keys: Sequence[str],
        answers: Sequence[str],
        *,
        within: int = 0,
        sentences: Sequence[str] | None = None,
        accepted: tuple[tuple[str, ...], ...] = (),
    ) -> Trial:
        """The trial in which `fact` stands behind so many of the `others` (`slots`, by position).

        `keys`: who is asked for and, but for documents, who does not occur. `within`: the character of `fact` at
        which the thing stands. `sentences`: what is put into a drawn order instead of the others.
        """
        asked, places = [], []
        for slot in slots:
            context = self._joined([*others[:slot], fact, *others[slot:]])
            place = context.index(fact, len(self._joined(others[:slot]))) + within
            asked.append(self._prompt(context, keys[0]))
            # the context stands whole in the prompt, chat template or not; trimming may cost it its ends
            begin = asked[-1].index(context.strip()) - (len(context) - len(context.lstrip()))
            places.append(begin + place)
        contexts = (self._joined([*others[:slot], fact, *others[slot:]]) for slot in slots)
        parts = [fact, *(others if sentences is None else sentences)]
        # a stream of its own, so that no other draw is changed
        drawn = [parts[k] for k in self._random(index, "retrieval.shuffled").permutation(len(parts))]
        arms = (self._prompt(self._joined(pieces), keys[0]) for pieces in (others, [fact], drawn))
        return Trial(
            asked=tuple(asked),
            control=tuple(self._prompt(context, key) for context in contexts for key in keys[1:]),
            answers=tuple(answers),
            places=tuple(places),
            depths=tuple(slot / len(others) for slot in slots),
            arms=dict(zip(ARMS, arms, strict=True)),
            accepted=accepted,
        )


class Keys(Trials):
    """Lists of `pairs` owners and things, or of as many as fit into `length` tokens.

    Raises `InvalidValueError` when `length` holds too few pairs, or there are more positions than pairs,
    `ModelError` when the tokenizer cannot tell enough things apart.
    """

    def __init__(
        self,
        tokenizer: Any,
        wording: str,
        positions: int,
        seed: int,
        *,
        pairs: int | None = None,
        length: int | None = None,
    ):
        super().__init__(tokenizer, "keys", wording, positions, seed)
        self.pairs = pairs if pairs is not None else self._fitting(length or 0)
        _fit(positions, self.pairs)
        # a list too long for the words is refused now
        self.trial(0)

    def trial(self, index: int) -> Trial:
        """The variants of trial `index`: the asked pair at each position, the other pairs in one order."""
        random, pairs = self._random(index), self.pairs
        names, things = self._names.of(pairs + 1), self._things.of(pairs)
        # one name more than things: asked for in the control
        keys = [names[k] for k in random.choice(len(names), pairs + 1, replace=False)]
        values = [things[k] for k in random.choice(len(things), pairs, replace=False)]
        slots = np.linspace(0, pairs - 1, self.positions).round().astype(int).tolist()
        fact, *others = [
            self._wording.item.format(key=k, value=v) for k, v in zip(keys, values, strict=False)
        ]
        answers = [self._wording.joint + value for value in values]
        asked = (keys[0], keys[-1])
        return self._moving(index, fact, others, slots, asked, answers, within=self._within(keys[0]))

    def _longest(self, pairs: int) -> int:
        """Tokens of the longest of the first few trials with this many pairs."""
        self.pairs = pairs
        return max(len(ids) for k in range(_FITTED) for ids in self.encode(self.trial(k).asked))

    def _fitting(self, length: int) -> int:
        """The most pairs with which the first few trials have at most `length` tokens."""
        least = max(2, self.positions)
        needed = self._longest(least)
        if needed > length:
            raise InvalidValueError(
                f"length: expected at least {needed} tokens for {least} pairs at {self.positions} positions, "
                f"got {length}"
            )
        many = 2 * least
        while self._longest(many) <= length:
            many *= 2
        return least - 1 + bisect.bisect(range(least, many), length, key=self._longest)


class Needle(Trials):
    """Running text of `length` tokens, question included, with one fact between two of its sentences.

    Each position is the sentence end nearest to an equal division of the text, and within half a division of
    it. Raises `InvalidValueError` when the length is too small for the positions, `InputFileError` when the
    text is too short.
    """

    def __init__(
        self, tokenizer: Any, wording: str, positions: int, seed: int, *, text: str, name: str, length: int
    ):
        super().__init__(tokenizer, "needle", wording, positions, seed)
        self.length, self._name = length, name
        self._words = text.split()
        self._ends = np.flatnonzero([_SENTENCE_END.search(word) is not None for word in self._words]) + 1
        # as many words as tokens always suffice: a word has one token at least
        self._usable = self._ends[self._ends >= length]
        if not self._usable.size:
            raise InputFileError(
                f"text: expected {length} words before the end of a sentence for prompts of {length} tokens, "
                f"got {len(self._words)} words with {self._ends.size} sentence ends in {name}"
            )

    def trial(self, index: int) -> Trial:
        """The variants of trial `index`: one stretch of text, one fact, at each position."""
        random, names, things = self._random(index), self._names.of(2), self._things.of(CHOICES)
        keys = [names[k] for k in random.choice(len(names), 2, replace=False)]
        values = [things[k] for k in random.permutation(len(things))]
        for _ in range(_DRAWS):
            end = int(random.choice(self._usable))
            stretch = self._words[end - self.length : end]
            words_here = {re.sub(r"\W", "", word).lower() for word in stretch}
            values_here = [value for value in values if not words_here & set(value.split())][:CHOICES]
            if len(values_here) < CHOICES or words_here & {key.lower() for key in keys}:
                continue
            fact = self._wording.item.format(key=keys[0], value=values_here[0])
            words = self._filling(stretch, fact, keys[0])
            slots = self._slots(end, len(words))
            if slots is not None:
                sentences: list[list[str]] = [[]]
                for word in words:
                    sentences[-1].append(word)
                    sentences += [[]] if _SENTENCE_END.search(word) else []
                parts = [self._joined(sentence) for sentence in sentences if sentence]
                answers = [self._wording.joint + value for value in values_here]
                about = {"within": self._within(keys[0]), "sentences": parts}
                return self._moving(index, fact, words, slots, keys, answers, **about)
        raise InvalidValueError(
            f"positions: expected fewer in {self.length} tokens of {self._name}, whose sentences end too rarely, "
            f"got {self.positions}"
        )

    def _joined(self, pieces: Sequence[str]) -> str:
        return " ".join(pieces)

    def _filling(self, stretch: list[str], fact: str, key: str) -> list[str]:
        """The most words from the end of `stretch` with which the prompt has at most `length` tokens."""

        def needed(words: int) -> int:
            return self.tokens(self._prompt(self._joined([*stretch[len(stretch) - words :], fact]), key))

        if (bare := needed(0)) + 2 * self.positions > self.length:
            raise InvalidValueError(
                f"length: expected more than the {bare} tokens of the fact and the question, got {self.length}"
            )
        most = bisect.bisect(range(len(stretch) + 1), self.length, key=needed) - 1
        return stretch[len(stretch) - most :]

    def _slots(self, end: int, words: int) -> list[int] | None:
        """By position, how many of the `words` before word `end` of the text stand before the fact.

        None when a position has no sentence end near.
        """
        ends = np.unique([0, *(self._ends[(self._ends > end - words) & (self._ends <= end)] - (end - words))])
        wanted = np.linspace(0, words, self.positions)
        nearest = ends[abs(ends[None, :] - wanted[:, None]).argmin(axis=1)]
        near = abs(nearest - wanted) < 0.5 * words / (self.positions - 1)
        return nearest.tolist() if near.all() else None


@dataclass(frozen=True)
class DocumentSet:
    """A question, the documents that do not answer it, those that do, and by such document what is right."""

    question: str
    others: tuple[str, ...]
    gold: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.others) + len(self.gold)


def places_of(sets: Sequence[DocumentSet], at_most: int) -> int:
    """As many positions as the smallest set has places, between 3 and `at_most`."""
    return max(3, min(at_most, min(map(len, sets), default=0)))


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


def trials_of(
    job: RetrievalJob,
    tokenizer: Any = None,
    *,
    text: str | None = None,
    name: str = "text",
    documents: tuple[DocumentSet, ...] | None = None,
) -> Trials:
    """The trials of a job in the tokens of a model, or without a tokenizer in words (`Words`).

    `text`: what a needle lies in, called `name`; `documents`: of the task documents. Raises `InvalidValueError`
    where one is missing or not needed, or the job does not fit, and as the classes of trials.
    """
    for option, given, task in (("text", text, "needle"), ("documents", documents, "documents")):
        if (given is None) == (job.task == task):
            expected, got = ("some", "none") if given is None else ("none", "some")
            raise InvalidValueError(f"{option}: expected {expected} with the task {job.task}, got {got}")
    common = (Words() if tokenizer is None else tokenizer, job.wording, job.positions, job.seed)
    if documents is not None:
        if job.prompts > len(documents):
            raise InvalidValueError(f"prompts: expected at most the {len(documents)} sets, got {job.prompts}")
        return Documents(documents, *common)
    if text is not None:
        return Needle(*common, text=text, name=name, length=job.length or 0)
    return Keys(*common, pairs=job.pairs, length=job.length)


# --- documents of one's own -----------------------------------------------------------------------------------


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


# --- answers --------------------------------------------------------------------------------------------------


class CutOff(str):
    """An answer that ended because its tokens ran out, or that is empty where one was due."""

    __slots__ = ()


_ARTICLES = {"a", "an", "the"}


def normalised(text: str) -> str:
    """Lower case, words with single spaces between them, no punctuation, no English articles."""
    words = re.sub(r"[\W_]+", " ", text.casefold()).split()
    return " ".join(word for word in words if word not in _ARTICLES)


def place_in(answer: str, spellings: Sequence[str]) -> int | None:
    """The character of the normalised answer at which one of these begins first; None where none occurs."""
    within = f" {normalised(answer)} "
    places = [within.find(f" {normalised(one)} ") for one in spellings]
    return min((place for place in places if place >= 0), default=None)


def is_right(answer: str, trial: Trial, rule: Rule = "contains") -> tuple[bool, ...]:
    """By asked fact of the trial, the moved one first, whether the answer has it by this rule.

    `first` holds the earliest of the accepted spellings against `trial.answers[1:]`; where two begin together
    the longer one counts ("red lamp" before "red").
    """
    accepted = trial.accepted or ((trial.answers[0],),)
    if rule == "contains":
        return tuple(place_in(answer, spellings) is not None for spellings in accepted)
    others = [_rank(answer, other) for other in trial.answers[1:]]
    return tuple(_is_first([_rank(answer, one) for one in spellings], others) for spellings in accepted)


def was_cut_off(answer: str, trial: Trial, rule: Rule = "contains") -> bool:
    """Whether an answer was cut off before the moved fact was right, and more of it might have been.

    By the rule `first` an answer that has named another thing is wrong however it goes on.
    """
    if not isinstance(answer, CutOff) or is_right(answer, trial, rule)[0]:
        return False
    return rule == "contains" or place_in(answer, trial.answers[1:]) is None


def _rank(answer: str, spelling: str) -> tuple[float, int]:
    """Where a spelling begins (never: infinity), and of those that begin together the longest first."""
    place = place_in(answer, [spelling])
    return (float("inf") if place is None else place, -len(normalised(spelling)))


def _is_first(right: list[tuple[float, int]], others: list[tuple[float, int]]) -> bool:
    best = min(right)
    return best[0] < float("inf") and all(best < other for other in others)
