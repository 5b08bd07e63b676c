"""Answers of choose."""

from pathlib import Path
from typing import Literal

from posbias.core.answers import Answer, Number, Part, Texts, entry
from posbias.reports.answers.numbers import OverPrompts


class TestOf(Part):
    """A test."""

    p: Number = entry("null where it says nothing")
    draws: int = entry("sets of contents, or permutations")


class Choices(Part):
    """What somebody's decisions show of order; intervals are over sets of contents, null below 5 of them."""

    who: str
    model: str
    decisions: int
    items: int
    sets: int = entry("sets of contents: items that share an option are one")
    source: Literal["answers", "scores"]
    together: bool = entry("whether effects are those of slot and label together")
    slots: list[OverPrompts] = entry("by slot its effect in log-odds; value null with an interval: a bound")
    labels: dict[str, OverPrompts] = entry("by label its effect in log-odds")
    gaps: dict[str, OverPrompts] = entry("between slots, in log-odds")
    points: list[OverPrompts] = entry("by slot, its share of decisions less an even share")
    declined: dict[Literal["ties", "refusals"], int]
    flips: dict[Literal["other_order", "same_order"], OverPrompts] = entry("share of pairs of decisions")
    changed: tuple[int, int] = entry("items whose decision order changes, and items in several orders")
    order_test: TestOf = entry("permutations within items: whether order matters")
    lack_of_fit: TestOf = entry("whether effects of slots differ with how often an option is chosen")
    accuracy: list[OverPrompts] = entry("by the right option's slot; empty where not known")
    wins: dict[str, dict[Literal["balanced", "slot_free", "first", "last"], OverPrompts]] = entry("by side")
    answer: Texts = entry("in sentences")


class Choose(Answer):
    """Choices by the slot and label of options, of one or several who were asked."""

    folder: Path
    judges: list[Choices]


class ChooseCost(Answer):
    """What asking for choices takes, of each who is asked."""

    requests: int
    words: int = entry("words and marks of punctuation in them")
    orders: int = entry("of each item")
