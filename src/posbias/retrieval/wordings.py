"""How retrieval prompts are worded, and the words they are made of.

A wording is some pieces of text; the facts go between opening and question. Short common words, so that most
tokenizers have one token for each; no word begins with another. `Words` counts words where a model's tokenizer is
not known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from posbias.core.errors import InvalidValueError, ModelError
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


_WORD = "{key}'s secret word is"
_READ = (
    "Read these documents, of which not all matter, and answer the question behind them in a few words.\n\n"
)
WORDINGS: dict[str, dict[str, Wording]] = {
    "keys": {
        "json": Wording("{", '"{key}": "{value}", ', "", '"{key}": "', joint=""),
        "list": Wording("", "{key}: {value}\n", "", "{key}:"),
        "belongs": Wording(
            "", "The {value} belongs to {key}. ", "\nQuestion: What belongs to {key}?\nAnswer:", " the"
        ),
        "chat": Wording(
            "Each of these people owns one thing.\n\n",
            "{key} owns the {value}.\n",
            "\nWhat does {key} own?",
            "{key} owns the",
            chat=True,
        ),
    },
    "needle": {
        "plain": Wording(
            "", f"{_WORD} {{value}}.", "\n\nQuestion: What is {key}'s secret word?\nAnswer:", f" {_WORD}"
        ),
        "chat": Wording("", f"{_WORD} {{value}}.", "\n\nWhat is {key}'s secret word?", _WORD, chat=True),
    },
    "documents": {
        "numbered": Wording(_READ, "Document [{number}] {value}\n", "\nQuestion: {key}\nAnswer:", ""),
        "plain": Wording(_READ, "{value}\n\n", "Question: {key}\nAnswer:", ""),
        "chat": Wording(_READ, "Document [{number}] {value}\n", "\nQuestion: {key}", "", chat=True),
    },
}
"""Wordings by task and name; the first of a task is its default."""

_NAMES = """
Adam Alan Albert Alice Amy Andrew Anna Anthony Arthur Barbara Benjamin Betty Brian Bruce Carl Carol
Charles Clara Daniel David Deborah Dennis Diana Donald Dorothy Douglas Edward Elizabeth Ellen Emily Emma
Eric Eva Frances Frank Gary George Gloria Grace Gregory Harold Harry Heather Helen Henry Howard Irene
Isaac Jack Jacob James Janet Jason Jeffrey Jennifer Jessica Joan John Joseph Joyce Judith Julia Justin
Karen Katherine Keith Kelly Kenneth Kevin Kimberly Larry Laura Leonard Linda Lisa Louis Lucy Margaret
Maria Mark Martin Matthew Melissa Michael Nancy Nicholas Nicole Oliver Oscar Pamela Patrick Paul Peter
Philip Rachel Ralph Raymond Rebecca Richard Robert Roger Roy Russell Ruth Samuel Sandra Sarah Scott
Sharon Simon Sophia Stephen Susan Teresa Thomas Timothy Victor Vincent Virginia Walter Wayne William
"""
_SURNAMES = """
Adams Allen Anderson Bailey Baker Barnes Bell Bennett Brooks Brown Butler Campbell Carter Clark Collins
Cook Cooper Cox Cruz Davis Edwards Evans Fisher Foster Garcia Gray Green Hall Harris Hill Hughes Jackson
Jenkins Jones King Lee Lewis Long Lopez Marshall Mason Miller Mitchell Moore Morgan Morris Murphy Myers
Nelson Parker Perry Phillips Powell Price Reed Reyes Rivera Robinson Rogers Ross Sanders Smith Stewart
Sullivan Taylor Thompson Turner Walker Ward Watson White Wilson Wood Wright Young
"""
_THINGS = """
anchor apple arrow axe ball banana barrel basket bell bench bicycle blanket boat book bottle bowl box
bread brick bridge broom brush bucket button cabin cable cake camera candle carpet castle chain chair
cheese clock cloud coat coin compass couch cow crown cup curtain desk diamond dog door dress drum eagle
egg engine feather fence flag flower flute fork fountain garden ghost glass glove goat guitar hammer hat
helmet honey horse island jacket jar jewel kettle key kitchen kite knife ladder lake lamp lantern leaf
lemon letter lion lock magnet map mask medal milk mirror mountain needle nest ocean orange oven owl
paint pearl pencil piano pillow pipe pizza planet plate pond potato purse rabbit radio ribbon rice ring
river robe rocket roof rope saddle salt sandwich scarf ship shirt shoe shovel silk soap sofa soup spoon
statue stone sugar sword table tent tiger tomato tower towel train tree truck trumpet tunnel umbrella
vase violin wagon wallet watch wheel whistle window wolf
"""
_QUALITIES = """
bright broken clean cold dark dry empty fancy flat giant golden green grey heavy huge light little local
modern new old plain pretty purple quiet red rough round shiny short silver simple small smooth soft
square strong tall thin tiny warm wet white wide wild wooden yellow
"""
NAMES, SURNAMES, THINGS, QUALITIES = (
    tuple(words.split()) for words in (_NAMES, _SURNAMES, _THINGS, _QUALITIES)
)
"""First names, and names behind them where first names are too few; things, and what goes before those."""


class Pool:
    """Words to draw from, in groups of equally many tokens; `others` go behind the words, or before them.

    `joint` is what stands right before a word where its tokens count.
    """

    def __init__(
        self,
        encode: _Encode,
        words: Sequence[str],
        others: Sequence[str],
        what: str,
        *,
        before: bool = False,
        joint: str = " ",
    ):
        self._encode, self._what, self._joint = encode, what, joint
        self._words = words, [f"{b} {a}" if before else f"{a} {b}" for a in words for b in others]
        self._groups = cache(self._groups_of)

    def of(self, needed: int) -> list[str]:
        """At least `needed` words: of equally many tokens, as few as there are enough of, else two words each.

        When even those are too few, words of any number of tokens, of which none begins with another. Raises
        `InvalidValueError` when there are too few at all, `ModelError` when the tokenizer does not tell them
        apart.
        """
        if needed > (most := len(self._words[1])):
            raise InvalidValueError(f"pairs: expected at most {most} {self._what}, got {needed}")
        for in_twos in (False, True):
            for _, group in sorted(self._groups(in_twos).items()):
                if len(group) >= max(needed, _VARIETY):
                    return group
        distinct = [word for group in self._groups(True).values() for word in group]
        if len(distinct) < needed:
            raise ModelError(
                f"model: expected a tokenizer that distinguishes {needed} {self._what}, got {len(distinct)}"
            )
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
        ids = [
            [self._ids.setdefault(piece, len(self._ids)) for piece in PIECE.findall(text)] for text in texts
        ]
        return {"input_ids": ids}

    def apply_chat_template(self, turns: Sequence[dict[str, str]], **_: Any) -> str:
        """The last message and an empty line."""
        return turns[-1]["content"] + "\n\n"
