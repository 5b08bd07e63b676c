"""How retrieval prompts are worded, and the words they are made of.

A wording is some pieces of text; the facts go between opening and question. Short common words, so that most
tokenizers have one token for each; no word begins with another. `Words` counts words where a model's tokenizer is
not known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from posbias.core.errors import ModelError, wrong
from posbias.core.files import data_table
from posbias.core.matching import PIECE

_VARIETY = 32
_Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Wording:
    """`opening`, then `item` for every fact, `question`, and `reply` up to where the thing is to follow.

    `{key}` is the owner and `{value}` the thing; of documents the question and the text, and `{number}` counts
    them from 1. The reply ends before `joint`, which begins the answer: many tokenizers keep a word and the
    space before it together. With `chat` all but the reply is a user's turn in the model's own chat template.
    """

    opening: str
    item: str
    question: str
    reply: str
    joint: str = " "
    chat: bool = False


_HELD = data_table(__file__)
WORDINGS: dict[str, dict[str, Wording]] = {
    task: {name: Wording(**pieces) for name, pieces in named.items()}
    for task, named in _HELD["wordings"].items()
}
"""Wordings by task and name; the first of a task is its default."""
_NAMES, _SURNAMES, _THINGS, _QUALITIES = (
    _HELD[name].split() for name in ("names", "surnames", "things", "qualities")
)
OWNERS = _NAMES, [f"{name} {surname}" for name in _NAMES for surname in _SURNAMES]
THINGS = _THINGS, [f"{quality} {thing}" for thing in _THINGS for quality in _QUALITIES]
"""Owners and things of one word each, and of two where those are too few."""


class Pool:
    """Words to draw from, in groups of equally many tokens, alone or in twos; `what` they are called in errors.

    `joint` is what stands right before a word where its tokens count.
    """

    def __init__(self, encode: _Encode, words: tuple[list[str], list[str]], what: str, joint: str = " "):
        self._encode, self._what, self._joint, self._words = encode, what, joint, words
        self._groups = cache(self._groups_of)

    def of(self, needed: int) -> list[str]:
        """At least `needed` words: of equally many tokens, as few as there are enough of, else two words each.

        When even those are too few, words of any number of tokens, of which none begins with another. Raises
        `InvalidValueError` when there are too few at all, `ModelError` when the tokenizer does not tell them
        apart.
        """
        if needed > (most := len(self._words[1])):
            raise wrong("pairs", f"at most {most} {self._what}", needed)
        for in_twos in (False, True):
            for _, group in sorted(self._groups(in_twos).items()):
                if len(group) >= max(needed, _VARIETY):
                    return group
        distinct = [word for group in self._groups(True).values() for word in group]
        if len(distinct) < needed:
            what = f"a tokenizer that distinguishes {needed} {self._what}"
            raise wrong("model", what, len(distinct), kind=ModelError)
        return distinct

    def _groups_of(self, in_twos: bool) -> dict[int, list[str]]:
        """Words by their number of tokens; of words with the same tokens only the first."""
        first, groups, words = dict[tuple[int, ...], str](), dict[int, list[str]](), self._words[in_twos]
        for word, ids in zip(words, self._encode([self._joint + word for word in words]), strict=True):
            first.setdefault(tuple(ids), word)
        for ids, word in first.items():
            groups.setdefault(len(ids), []).append(word)
        return groups


class Words:
    """What stands in for a tokenizer in `Trials`: words and marks of punctuation, each counted as one.

    Its chat template is the message itself and an empty line: whoever is asked applies their own, and what begins
    the reply stands at the message's end. Lengths and costs in these words are rough (`TOKENS_A_WORD`).
    """

    chat_template = "the message as it is"

    def __init__(self):
        self._ids: dict[str, int] = {}

    def __call__(self, texts: Sequence[str], **_: Any) -> dict[str, list[list[int]]]:
        """A number for each piece of each text; equal pieces have equal numbers."""
        known = self._ids
        ids = [[known.setdefault(piece, len(known)) for piece in PIECE.findall(text)] for text in texts]
        return {"input_ids": ids}

    def apply_chat_template(self, turns: Sequence[dict[str, str]], **_: Any) -> str:
        """The last message and an empty line."""
        return turns[-1]["content"] + "\n\n"
