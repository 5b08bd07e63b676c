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

How an answer in words is right: `core/matching.py`.
"""

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posbias.asking.requests import PromptParts
from posbias.core import machine
from posbias.core.errors import InputFileError, ModelError, wrong
from posbias.core.matching import Rule, is_right, missing
from posbias.profiles.places import ARMS
from posbias.retrieval.jobs import RetrievalJob, check_fit
from posbias.retrieval.wordings import OWNERS, THINGS, WORDINGS, Pool

CHOICES = 8
"""Things that a needle's answer is compared with, itself included; the others do not stand in the text."""
_FITTED = 4
_DRAWS = 200
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*$")


@dataclass(frozen=True)
class Trial:
    """One set of facts in all its variants.

    `asked`, `control`: the prompt by position, asking for the fact and for somebody who does not occur;
    `answers`: what may follow, the right one first; `places`: by position, the character of `asked` at which
    the right thing stands; `depths`: by position, the share of the other facts or words that stand before it.
    `arms`: the prompt of each control arm (`ARMS`). `accepted`: by asked fact, the moved one first, every
    spelling that is right; without any, `answers[0]` is. `instruction`: the rule that is asked about
    (`rules.Instruction`), which then decides. `parts`: what each prompt is made of, by the prompt; pieces of a
    needle's text are its words.
    """

    asked: tuple[str, ...]
    control: tuple[str, ...]
    answers: tuple[str, ...]
    places: tuple[int, ...]
    depths: tuple[float, ...]
    arms: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[tuple[str, ...], ...] = ()
    instruction: Any = None
    parts: Mapping[str, PromptParts] = field(default_factory=dict, repr=False, compare=False)

    def right(self, answer: str, rule: Rule = "contains") -> tuple[bool, ...]:
        """By asked fact, the moved one first, whether the answer has it by this rule."""
        if self.instruction is not None:
            return (self.instruction.kept(answer),)
        return is_right(answer, self.accepted or ((self.answers[0],),), self.answers[1:], rule)

    def missing(self, answer: str, rule: Rule = "contains") -> str:
        """Why an answer without the moved fact is none, a name of `ENDINGS`; empty for a right or wrong one."""
        if self.instruction is not None:
            return self.instruction.missing(answer)
        return missing(answer, self.accepted or ((self.answers[0],),), self.answers[1:], rule)


class Trials:
    """What all tasks share: the tokenizer, and of a job the wording, the seed and how many positions there are.

    `special`: whether a prompt gets the special tokens that the tokenizer adds by itself.
    `trial(index)` makes the variants of one trial, the same on every machine and whatever else was drawn.
    """

    def __init__(self, tokenizer: Any, job: RetrievalJob):
        self.tokenizer, self.positions, self._seed = tokenizer, job.positions, job.seed
        self._wording = WORDINGS[job.task][job.wording]
        self.special = not self._wording.chat
        self._names = Pool(self.encode, OWNERS, "owners")
        self._things = Pool(self.encode, THINGS, "things", self._wording.joint)
        if self._wording.chat and not getattr(tokenizer, "chat_template", None):
            plain = ", ".join(name for name, one in WORDINGS[job.task].items() if not one.chat)
            what = f"{plain}, as the model's tokenizer has no chat template"
            raise wrong("wording", what, job.wording, kind=ModelError)

    def trial(self, index: int) -> Trial:
        """The variants of trial `index`."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, with the special tokens that the tokenizer adds by itself."""
        return self.tokenizer(list(texts), add_special_tokens=self.special, verbose=False)["input_ids"]

    def tokens(self, text: str) -> int:
        """Number of tokens of a text."""
        return len(self.encode([text])[0])

    def _random(self, index: int, name: str = "retrieval") -> np.random.Generator:
        return np.random.default_rng(machine.sequence(self._seed, name, index))

    def _parts(self, pieces: Sequence[str], key: str) -> PromptParts:
        """`pieces` and the question for `key`, up to where the thing is to follow."""
        w = self._wording
        words = w.opening, tuple(pieces), w.question.format(key=key), w.reply.format(key=key)
        return PromptParts(*words, self._joined, self._wrapped)

    def _wrapped(self, body: str) -> str:
        """A prompt up to its reply, in a chat in the model's template."""
        if not self._wording.chat:
            return body
        turn = [{"role": "user", "content": body}]
        return self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)

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
    ) -> Trial:
        """The trial in which `fact` stands behind so many of the `others` (`slots`, by position).

        `keys`: who is asked for and, but for documents, who does not occur. `within`: the character of `fact` at
        which the thing stands. `sentences`: what is put into a drawn order instead of the others.
        """
        asked, places, made = [], [], dict[str, PromptParts]()

        def prompt(pieces: Sequence[str], key: str) -> str:
            parts = self._parts(pieces, key)
            made[text := parts.text] = parts
            return text

        contexts = [[*others[:slot], fact, *others[slot:]] for slot in slots]
        for slot, pieces in zip(slots, contexts, strict=True):
            context = self._joined(pieces)
            place = context.index(fact, len(self._joined(others[:slot]))) + within
            asked.append(prompt(pieces, keys[0]))
            # the context stands whole in the prompt, chat template or not; trimming may cost it its ends
            begin = asked[-1].index(context.strip()) - (len(context) - len(context.lstrip()))
            places.append(begin + place)
        parts = [fact, *(others if sentences is None else sentences)]
        # a stream of its own, so that no other draw is changed
        drawn = [parts[k] for k in self._random(index, "retrieval.shuffled").permutation(len(parts))]
        arms = [prompt(pieces, keys[0]) for pieces in (others, [fact], drawn)]
        return Trial(
            asked=tuple(asked),
            control=tuple(prompt(pieces, key) for pieces in contexts for key in keys[1:]),
            answers=tuple(answers),
            places=tuple(places),
            depths=tuple(slot / len(others) for slot in slots),
            arms=dict(zip(ARMS, arms, strict=True)),
            parts=made,
        )


class Keys(Trials):
    """Lists of `pairs` owners and things, or of as many as fit into `length` tokens.

    Raises `InvalidValueError` when `length` holds too few pairs, or there are more positions than pairs,
    `ModelError` when the tokenizer cannot tell enough things apart.
    """

    def __init__(self, tokenizer: Any, job: RetrievalJob):
        super().__init__(tokenizer, job)
        self.pairs = job.pairs if job.pairs is not None else self._fitting(job.length or 0)
        check_fit(job.positions, self.pairs)
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
        owned = zip(keys, values, strict=False)
        fact, *others = [self._wording.item.format(key=key, value=value) for key, value in owned]
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
            what = f"at least {needed} tokens for {least} pairs at {self.positions} positions"
            raise wrong("length", what, length)
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

    def __init__(self, tokenizer: Any, job: RetrievalJob, text: str, name: str = "text"):
        super().__init__(tokenizer, job)
        length = job.length or 0
        self.length, self._name = length, name
        self._words = text.split()
        self._ends = np.flatnonzero([_SENTENCE_END.search(word) is not None for word in self._words]) + 1
        # as many words as tokens always suffice: a word has one token at least
        self._usable = self._ends[self._ends >= length]
        if not self._usable.size:
            what = f"{length} words before the end of a sentence for prompts of {length} tokens"
            got = f"{len(self._words)} words with {self._ends.size} sentence ends in {name}"
            raise wrong("text", what, got=got, kind=InputFileError)

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
                within = self._within(keys[0])
                return self._moving(index, fact, words, slots, keys, answers, within=within, sentences=parts)
        what = f"fewer in {self.length} tokens of {self._name}, whose sentences end too rarely"
        raise wrong("positions", what, self.positions)

    def _joined(self, pieces: Sequence[str]) -> str:
        return " ".join(pieces)

    def _filling(self, stretch: list[str], fact: str, key: str) -> list[str]:
        """The most words from the end of `stretch` with which the prompt has at most `length` tokens."""

        def needed(words: int) -> int:
            return self.tokens(self._parts([*stretch[len(stretch) - words :], fact], key).text)

        if (bare := needed(0)) + 2 * self.positions > self.length:
            what = f"more than the {bare} tokens of the fact and the question"
            raise wrong("length", what, self.length)
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
