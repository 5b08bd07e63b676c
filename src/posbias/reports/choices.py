"""Choices as an answer: its JSON, and as lines of text."""

from collections.abc import Mapping
from pathlib import Path

from posbias.choice.answer import ChoiceAnswer, log_odds, table_of
from posbias.core.progress import one_line
from posbias.core.terminal import table
from posbias.profiles.gaps import percent
from posbias.reports.answers.choices import Choose, Judge


def of_choices(choices: Mapping[str, ChoiceAnswer], folder: Path) -> tuple[Choose, list[str]]:
    """The answer on who chose, by their names, and its lines; of several with a table of all."""
    lines = [*table(*table_of(choices)), ""] if len(choices) > 1 else []
    for one in choices.values():
        right = one.accuracy or [None] * one.decisions.slots
        columns = zip(one.effects.slots, one.effects.points, right, strict=True)
        rows = [
            [str(slot), log_odds(effect), percent(points), percent(share) if share else "–"]
            for slot, (effect, points, share) in enumerate(columns)
        ]
        lines += [*table(["slot", "effect", "share - 1/k", "right"], rows), ""]
        lines += [*(one_line(sentence, None) for sentence in one.sentences()), ""]
    answer = Choose.of(
        folder=folder, judges=[Judge.of(one, who=who, answer=one.sentences()) for who, one in choices.items()]
    )
    return answer, [*lines, f"decisions: {folder}"]
