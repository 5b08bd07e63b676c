"""How an answer in words is matched with what would be right, by one of two rules without a model that judges.

`contains`: an accepted spelling stands in the answer, as whole words, once both are in lower case and without
punctuation and articles (Liu et al. 2023 look for it anywhere, in the middle of words too). `first`: of all that
could be the answer, the right one stands first; an answer that lists everything is so not right by listing.
"""

import re
from collections.abc import Sequence
from typing import Literal

Rule = Literal["contains", "first"]
TOKENS_A_WORD = 1.3
"""Tokens of a word, about: in English text and most models' tokenizers."""
PIECE = re.compile(r"\w+|[^\w\s]")
"""A word, or a mark of punctuation."""
_ARTICLES = {"a", "an", "the"}


class CutOff(str):
    """An answer that ended because its tokens ran out, or that is empty where one was due."""

    __slots__ = ()


def words_in(text: str) -> int:
    """How many words and marks of punctuation a text has."""
    return len(PIECE.findall(text))


def normalised(text: str) -> str:
    """Lower case, words with single spaces between them, no punctuation, no English articles."""
    words = re.sub(r"[\W_]+", " ", text.casefold()).split()
    return " ".join(word for word in words if word not in _ARTICLES)


def place_in(answer: str, spellings: Sequence[str]) -> int | None:
    """The character of the normalised answer at which one of these begins first; None where none occurs."""
    within = f" {normalised(answer)} "
    places = [within.find(f" {normalised(spelling)} ") for spelling in spellings]
    return min((place for place in places if place >= 0), default=None)


def is_right(
    answer: str, accepted: Sequence[Sequence[str]], others: Sequence[str] = (), rule: Rule = "contains"
) -> tuple[bool, ...]:
    """By asked fact, whether the answer has one of its `accepted` spellings by this rule.

    `first` holds the earliest of the accepted spellings against `others`; where two begin together the longer one
    counts ("red lamp" before "red").
    """
    if rule == "contains":
        return tuple(place_in(answer, spellings) is not None for spellings in accepted)
    wrong = [_rank(answer, other) for other in others]
    best = [min(_rank(answer, spelling) for spelling in spellings) for spellings in accepted]
    return tuple(one[0] < float("inf") and all(one < other for other in wrong) for one in best)


def was_cut_off(
    answer: str, accepted: Sequence[Sequence[str]], others: Sequence[str] = (), rule: Rule = "contains"
) -> bool:
    """Whether an answer was cut off before the first fact was right, and more of it might have been.

    By the rule `first` an answer that has named another thing is wrong however it goes on.
    """
    if not isinstance(answer, CutOff) or is_right(answer, accepted[:1], others, rule)[0]:
        return False
    return rule == "contains" or place_in(answer, others) is None


def _rank(answer: str, spelling: str) -> tuple[float, int]:
    """Where a spelling begins (never: infinity), and of those that begin together the longest first."""
    place = place_in(answer, [spelling])
    return (float("inf") if place is None else place, -len(normalised(spelling)))
