"""Answers of remedy."""

from pathlib import Path

from posbias.core.answers import Answer, Number, Part, entry
from posbias.profiles.summary import Verdict
from posbias.reports.answers.numbers import OverPrompts


class Treated(Part):
    """Results under a remedy, or without one."""

    name: str
    source: str = entry("arXiv, and what it reports; empty of plain")
    verdict: Verdict = entry("of the curve by place", of="places.verdict")
    curve: list[OverPrompts] = entry("accuracy, margin or share chosen at every place")
    gaps: dict[str, OverPrompts] = entry("between places, within trials", of="places.deciding")
    controls: dict[str, OverPrompts] = entry("accuracy in the control arms, of answers in words")
    effect: str = entry("less or more bias, bias moved, no difference, inconclusive; of plain the verdict")
    change: dict[str, OverPrompts] = entry("of the mean and the gaps, against plain; intervals hold together")
    at_most: Number = entry("what no gap changes by more than, by 90 % intervals that hold together")
    requests: float = entry("for each answer")
    words: float = entry("and marks of punctuation in them, for each answer")
    seconds: Number = entry("for each answer, kept ones among them")


class Remedy(Answer):
    """What remedies change of the same trials."""

    folder: Path
    measures: str = entry("what places and gaps are of")
    remedies: list[Treated]


class RemedyCost(Answer):
    """What each answer takes under remedies, before it is asked."""

    answers: int = entry("under each remedy")
    requests: dict[str, float] = entry(
        "by remedy, without a last prompt of divide; of decisions alone as plain"
    )
    words: dict[str, float] = entry("and marks of punctuation in them")
