"""Prompts that ask for one fact, which stands at one place after another while all else stays as it is.

A trial is one set of facts. In the `keys` task they are a list (who owns what) and one owner is asked for; in
the `needle` task one fact stands between the sentences of running text. The variants of a trial differ only in
where the asked fact stands; between trials names, things, text and the order of the others are drawn anew.

    Anna: lamp                 Peter: chair
    Peter: chair      →        Anna: lamp          … and ask for Anna
    Maria: bridge              Maria: bridge

Each variant is also asked for somebody who does not occur: what a model answers then owes nothing to the
question, only to where a thing stands and to what the model likes to say. Three more prompts ask for the fact
without it (what is guessed), alone (what can be done at all), and with everything in a drawn order.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field

from posbias.core import machine
from posbias.core.errors import InputFileError, InvalidValueError, ModelError, one_of, shortened
from posbias.core.spec import Count, NaturalNumber, value
from posbias.retrieval.wordings import NAMES, QUALITIES, SURNAMES, THINGS, WORDINGS, Pool, Wording

CHOICES = 8
"""Things that a needle's answer is compared with, itself included; the others do not stand in the text."""
ABSENT, ALONE, SHUFFLED = ARMS = ("no gold", "gold alone", "shuffled")
"""Control arms: the asked fact left out, nothing but it, and all facts or sentences in a drawn order."""
_FITTED = 4
_DRAWS = 200
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*$")


_PAIRS, _LENGTH, POSITIONS = 5, 256, 5
"""The defaults of a job."""


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
        right = {"keys": len(sizes) == 1, "needle": [*sizes] == ["length"], "documents": not sizes}
        if not right[self.task]:
            wanted = {
                "keys": "pairs or length",
                "needle": "length alone",
                "documents": "neither, as files decide",
            }
            raise InvalidValueError(
                f"{next(iter(sizes), 'length')}: expected {wanted[self.task]} with the task {self.task}, "
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
    """What both tasks share: the tokenizer, the wording, the seed, and how many positions there are.

    `trial(index)` makes the variants of one trial, the same on every machine and whatever else was drawn.
    """

    def __init__(self, tokenizer: Any, task: str, wording: str, positions: int, seed: int):
        self.tokenizer, self.positions, self._seed = tokenizer, positions, seed
        self._wording: Wording = WORDINGS[task][wording]
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

    def _random(self, index: int) -> np.random.Generator:
        return np.random.default_rng(machine.sequence(self._seed, "retrieval", index))

    def _shuffled(self, index: int, parts: list[str]) -> list[str]:
        """`parts` in the order of the arm `SHUFFLED`; a stream of its own, so that no other draw is changed."""
        random = np.random.default_rng(machine.sequence(self._seed, "retrieval.shuffled", index))
        return [parts[k] for k in random.permutation(len(parts))]

    def _prompt(self, context: str, key: str) -> str:
        """`context` and the question for `key`, up to where the thing is to follow."""
        w = self._wording
        body = w.opening + context + w.question.format(key=key)
        if w.chat:
            turn = [{"role": "user", "content": body}]
            body = self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        return body + w.reply.format(key=key)

    def _trial(
        self,
        contexts: Sequence[tuple[str, int]],
        keys: tuple[str, str],
        values: Sequence[str],
        depths: Any,
        arms: Sequence[str],
    ) -> Trial:
        asked = tuple(self._prompt(context, keys[0]) for context, _ in contexts)
        # the context stands whole in the prompt, chat template or not; trimming may cost it its ends
        begins = [text.index(context.strip()) for text, (context, _) in zip(asked, contexts, strict=True)]
        places = [
            begin + place - (len(context) - len(context.lstrip()))
            for begin, (context, place) in zip(begins, contexts, strict=True)
        ]
        return Trial(
            asked=asked,
            control=tuple(self._prompt(context, keys[1]) for context, _ in contexts),
            answers=tuple(self._wording.joint + value for value in values),
            places=tuple(places),
            depths=tuple(map(float, depths)),
            arms={arm: self._prompt(text, keys[0]) for arm, text in zip(ARMS, arms, strict=True)},
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
        random, names, things = (
            self._random(index),
            self._names.of(self.pairs + 1),
            self._things.of(self.pairs),
        )
        # one name more than things: asked for in the control
        keys = [names[k] for k in random.choice(len(names), self.pairs + 1, replace=False)]
        values = [things[k] for k in random.choice(len(things), self.pairs, replace=False)]
        slots = np.linspace(0, self.pairs - 1, self.positions).round().astype(int)
        lines = [self._wording.item.format(key=k, value=v) for k, v in zip(keys, values, strict=False)]
        within = self._wording.item.format(key=keys[0], value="\0").index("\0")
        contexts = []
        for slot in slots:
            before = "".join(lines[1 : slot + 1])
            contexts.append((before + lines[0] + "".join(lines[slot + 1 :]), len(before) + within))
        arms = ["".join(lines[1:]), lines[0], "".join(self._shuffled(index, lines))]
        return self._trial(contexts, (keys[0], keys[-1]), values, slots / (self.pairs - 1), arms)

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
        few, many = least, 2 * least
        while self._longest(many) <= length:
            few, many = many, 2 * many
        while many - few > 1:
            half = (few + many) // 2
            few, many = (half, many) if self._longest(half) <= length else (few, half)
        return few


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
                arms = self._arms(index, words, fact)
                return self._placed(words, slots, fact, (keys[0], keys[1]), values_here, arms)
        raise InvalidValueError(
            f"positions: expected fewer in {self.length} tokens of {self._name}, whose sentences end too rarely, "
            f"got {self.positions}"
        )

    def _filling(self, stretch: list[str], fact: str, key: str) -> list[str]:
        """The most words from the end of `stretch` with which the prompt has at most `length` tokens."""
        bare = self.tokens(self._prompt(fact, key))
        if bare + 2 * self.positions > self.length:
            raise InvalidValueError(
                f"length: expected more than the {bare} tokens of the fact and the question, got {self.length}"
            )
        few, many = 0, len(stretch) + 1
        while many - few > 1:
            half = (few + many) // 2
            text = _joined([*stretch[len(stretch) - half :], fact])
            few, many = (half, many) if self.tokens(self._prompt(text, key)) <= self.length else (few, half)
        return stretch[len(stretch) - few :]

    def _slots(self, end: int, words: int) -> list[int] | None:
        """By position, how many of the `words` before word `end` of the text stand before the fact.

        None when a position has no sentence end near.
        """
        ends = np.unique([0, *(self._ends[(self._ends > end - words) & (self._ends <= end)] - (end - words))])
        wanted = np.linspace(0, words, self.positions)
        nearest = ends[abs(ends[None, :] - wanted[:, None]).argmin(axis=1)]
        near = abs(nearest - wanted) < 0.5 * words / (self.positions - 1)
        return nearest.tolist() if near.all() else None

    def _arms(self, index: int, words: list[str], fact: str) -> list[str]:
        """The text of each control arm; the drawn order is one of sentences, the fact among them."""
        sentences: list[list[str]] = [[]]
        for word in words:
            sentences[-1].append(word)
            if _SENTENCE_END.search(word):
                sentences.append([])
        parts = [fact, *(_joined(sentence) for sentence in sentences if sentence)]
        return [_joined(words), fact, _joined(self._shuffled(index, parts))]

    def _placed(
        self,
        words: list[str],
        slots: list[int],
        fact: str,
        keys: tuple[str, str],
        values: list[str],
        arms: list[str],
    ) -> Trial:
        within = self._wording.item.format(key=keys[0], value="\0").index("\0")
        contexts = []
        for slot in slots:
            before = _joined(words[:slot]) + (" " if slot else "")
            contexts.append((_joined([before.rstrip(), fact, *words[slot:]]), len(before) + within))
        return self._trial(contexts, keys, values, np.array(slots) / len(words), arms)


def _joined(words: list[str]) -> str:
    return " ".join(word for word in words if word)
