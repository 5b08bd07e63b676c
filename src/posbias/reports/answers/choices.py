"""Answers of choose."""

from pathlib import Path

from posbias.choice.answer import Choices
from posbias.core.answers import Answer, entry


class Judge(Choices):
    """What somebody's decisions show of order, and who that is."""

    who: str = entry("the model, or model and way to ask it")


class Choose(Answer):
    """Choices by the slot and label of options, of one or several who were asked."""

    folder: Path
    judges: list[Judge]


class ReportChoices(Answer):
    """The page of decisions, kept or made elsewhere."""

    page: Path
    headline: str
    read_as: str
    judges: list[Judge]


class ChooseCost(Answer):
    """What asking for choices takes, of each who is asked."""

    requests: int
    words: int = entry("words and marks of punctuation in them")
    orders: int = entry("of each item")
