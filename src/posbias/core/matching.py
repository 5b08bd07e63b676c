"""How an answer in words is matched with what would be right, by one of two rules without a model that judges.

`contains`: an accepted spelling stands in the answer, as whole words, once both are in lower case and without
punctuation and articles (Liu et al. 2023 look for it anywhere, in the middle of words too). `first`: of all that
could be the answer, the right one stands first; an answer that lists everything is so not right by listing.

What a reasoning model thinks is no answer: whatever stands before the last mark of its thoughts is left out. Whole
words are asked for where a script has words: next to a letter of one without spaces any place may be an edge.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

from posbias.core.files import data_table

Rule = Literal["contains", "first"]
TOKENS_A_WORD = 1.3
"""Tokens of a word, about: in English text and most models' tokenizers."""
PIECE = re.compile(r"\w+|[^\w\s]")
"""A word, or a mark of punctuation."""
_ARTICLES = {"a", "an", "the"}
_MARKS = data_table(__file__)
REASONS, DECLINED = (
    {name: re.compile("|".join(signs)) for name, signs in _MARKS[kind].items()}
    for kind in ("reasons", "declined")
)
"""By what became of an answer (`ENDINGS`, failed), what a `finish_reason` and an error say, in small letters."""
_OPENS, _CLOSES, _OVER = (re.compile("|".join(_MARKS[name]), re.I) for name in ("opens", "closes", "over"))
_THOUGHTS = re.compile(rf"(?is)(?:{_OPENS.pattern}).*?(?:{_CLOSES.pattern}|\Z)")
_WITHOUT_SPACES = re.compile(f"[{''.join(_MARKS['without_spaces'])}]")
_UNIT = re.compile(r"[^\W\d_]+(?!\w)")
"""Letters that end a word: behind a number they are its unit, "500km"."""


class CutOff(str):
    """An answer that ended because its tokens ran out, or that is empty where one was due."""

    __slots__ = ()


class Refused(str):
    """What a model or a filter says where it declines to answer."""

    __slots__ = ()


class ToolCall(str):
    """What stands where a tool was called in place of an answer."""

    __slots__ = ()


ENDINGS: dict[str, type[str]] = {"cut_off": CutOff, "refused": Refused, "tool_call": ToolCall}
"""Answers that may be none, by the name under which they are counted and kept."""

# --- thoughts -------------------------------------------------------------------------------------------------


def final_answer(text: str) -> str:
    """An answer without what was thought before it, or around it; empty where thoughts are all there is."""
    if not _OPENS.search(text) and not _CLOSES.search(text):
        return text
    for part in (text, _THOUGHTS.sub("\n", text)):
        said = _OVER.split(_CLOSES.split(part)[-1])[0].strip()
        if said and not _OPENS.search(said):
            return said
    return ""


# --- words ----------------------------------------------------------------------------------------------------


def words_in(text: str) -> int:
    """How many words and marks of punctuation a text has."""
    return len(PIECE.findall(text))


def normalised(text: str) -> str:
    """Lower case, words with single spaces between them, no punctuation, no English articles.

    Signs are composed, of one width, and digits those of ASCII (NFKC); scripts without spaces have none.
    """
    plain = text.isascii()
    text = re.sub(r"[\W_]+", " ", text.casefold()) if plain else _letters(text)
    words = " ".join(word for word in text.split() if word not in _ARTICLES)
    if plain:
        return words
    near = _WITHOUT_SPACES.pattern
    return re.sub(rf" (?=\w)(?:(?={near})|(?<={near} ))", "", words)


def _letters(text: str) -> str:
    """A text in lower case with spaces in place of what is neither letter nor digit nor a mark of one (NFKC)."""
    # signs that are not seen (soft hyphens, joiners) part no words; NFKC would make letters of trade marks
    text = "".join(" " if sign in "™℠" else sign for sign in text if unicodedata.category(sign) != "Cf")
    text = unicodedata.normalize("NFD", text)
    for _ in range(2):  # a folded letter may have to be composed, and a composed one to be folded
        text = unicodedata.normalize("NFKC", text.casefold())
    signs = (sign if _in_word(sign) and sign != "_" else " " for sign in text)
    return "".join(str(int(sign)) if sign.isdecimal() else sign for sign in signs)


def _in_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_" or unicodedata.category(sign)[0] == "M"


def word_places(text: str, words: str) -> Iterator[int]:
    """The characters of a text at which these words begin, not inside others where the script has words.

    A number may have a unit glued to it.
    """
    place = text.find(words) if words else -1
    while place >= 0:
        end = place + len(words)
        unit = words[-1].isdecimal() and _UNIT.match(text, end)
        if _is_edge(text, place, place - 1) and (unit or _is_edge(text, end - 1, end)):
            yield place
        place = text.find(words, place + 1)


def _is_edge(text: str, inside: int, outside: int) -> bool:
    """Whether a word may begin or end with the character `inside`, next to the one `outside`."""
    if not 0 <= outside < len(text):
        return True
    sign = text[outside]
    if outside > inside and unicodedata.category(sign)[0] == "M":
        return False
    return not _in_word(sign) or _WITHOUT_SPACES.search(sign + text[inside]) is not None


def place_in(answer: str, spellings: Sequence[str]) -> int | None:
    """The character of the normalised answer at which one of these begins first; None where none occurs."""
    within = normalised(answer)
    places = [next(word_places(within, normalised(spelling)), None) for spelling in spellings]
    return min((place for place in places if place is not None), default=None)


def is_right(
    answer: str, accepted: Sequence[Sequence[str]], others: Sequence[str] = (), rule: Rule = "contains"
) -> tuple[bool, ...]:
    """By asked fact, whether the answer has one of its `accepted` spellings by this rule.

    `first` holds the earliest of the accepted spellings against `others`; where two begin together the longer one
    counts ("red lamp" before "red"). Thoughts do not count.
    """
    answer = final_answer(answer)
    if rule == "contains":
        return tuple(place_in(answer, spellings) is not None for spellings in accepted)
    wrong = [_rank(answer, other) for other in others]
    best = [min(_rank(answer, spelling) for spelling in spellings) for spellings in accepted]
    return tuple(one[0] < float("inf") and all(one < other for other in wrong) for one in best)


def missing(
    answer: str, accepted: Sequence[Sequence[str]], others: Sequence[str] = (), rule: Rule = "contains"
) -> str:
    """Why an answer without the first fact is none, a name of `ENDINGS`; empty for one that is right or wrong.

    Thoughts alone are cut off. By the rule `first` an answer that has named another thing is wrong however it
    goes on.
    """
    said = final_answer(answer)
    thoughts_alone = "cut_off" if answer.strip() and not said.strip() else ""
    ending = next((name for name, kind in ENDINGS.items() if isinstance(answer, kind)), thoughts_alone)
    named = rule == "first" and place_in(said, others) is not None
    return "" if named or is_right(said, accepted[:1], others, rule)[0] else ending


def _rank(answer: str, spelling: str) -> tuple[float, int]:
    """Where a spelling begins (never: infinity), and of those that begin together the longest first."""
    place = place_in(answer, [spelling])
    return (float("inf") if place is None else place, -len(normalised(spelling)))
