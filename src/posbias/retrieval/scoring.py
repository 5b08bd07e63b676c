"""Whether a text that somebody wrote is the right answer: two rules, both without a model that judges.

`contains`: an accepted spelling stands in the answer, as whole words, once both are in lower case and without
punctuation and articles (Liu et al. 2023 look for it anywhere, in the middle of words too). `first`: of all that
could be the answer, the right one stands first; an answer that lists everything is so not right by listing.
"""

import re
from collections.abc import Sequence
from typing import Literal

from posbias.retrieval.trials import Trial

Rule = Literal["contains", "first"]


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
