"""Choices as an answer: its JSON, as lines of text, and as a page of decisions, kept or made elsewhere."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posbias.choice.answer import ALPHA, ChoiceAnswer, log_odds, table_of
from posbias.core.packages import need
from posbias.core.progress import one_line
from posbias.core.terminal import table
from posbias.profiles.estimate import Estimate
from posbias.profiles.gaps import percent
from posbias.reports import plots
from posbias.reports.answers.choices import Choose, Judge, ReportChoices
from posbias.reports.plots.retrieval import FEW, effects_of
from posbias.reports.profile_sentences import CAPTIONS, paragraph
from posbias.reports.tables import Row, TableCell


def of_choices(choices: Mapping[str, ChoiceAnswer], folder: Path) -> tuple[Choose, list[str]]:
    """The answer on who chose, by their names, and its lines; of several with a table of all."""
    return Choose.of(folder=folder, judges=_judges(choices)), [*_lines(choices), f"decisions: {folder}"]


def _lines(choices: Mapping[str, ChoiceAnswer]) -> list[str]:
    """Of several a table of all; of each its slots and what is said."""
    lines = [*table(*table_of(choices)), ""] if len(choices) > 1 else []
    for one in choices.values():
        lines += [*table(*slot_table(one)), ""]
        lines += [*(one_line(sentence, None) for sentence in one.sentences()), ""]
    return lines


def slot_table(one: ChoiceAnswer) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table by slot, of what is known."""
    effects = one.effects
    columns = {"share - 1/k": effects.points, "right": one.accuracy, "influence": effects.influence}
    known = {name: held for name, held in columns.items() if held and not math.isnan(held[0].value)}
    rows = zip(map(log_odds, effects.slots), *(map(percent, held) for held in known.values()), strict=True)
    return ["slot", "effect", *known], [[str(slot), *row] for slot, row in enumerate(rows)]


def write_choices_report(
    choices: Mapping[str, ChoiceAnswer], folder: str | os.PathLike[str], *, title: str
) -> tuple[ReportChoices, list[str]]:
    """Write `report.html`, the picture and its numbers into a folder; the answer, and its lines.

    Raises `MissingPackageError` without matplotlib or jinja2, `OutputFileError` if a file cannot be written.
    """
    need("jinja2", "matplotlib", work="a report", extra="report")
    import pandas as pd

    from posbias.reports.figures import HIGH, LOW, Illustration
    from posbias.reports.page import write_page

    few = dict(sorted(choices.items(), key=lambda held: -held[1].effects.flips[0].value)[:FEW])
    effects = effects_of(few if len(choices) <= FEW else choices)
    rows = [[name, one.value, *one.interval] for name, one in effects.items()]
    numbers = pd.DataFrame(rows, columns=["of", "effect", LOW, HIGH])
    size = 0.9 + 0.17 * len(effects)
    wide, narrow = (plots.drawing(plots.draw_effects, effects, size=(width, size)) for width in (6.4, 2.8))
    figure = Illustration("effects", figure=wide, numbers=numbers, narrow=narrow, **CAPTIONS["effects"])
    (corner, *head), judges = table_of(choices)
    about = {"headline": headline(choices), "title": f"{title}: choices by position"}
    about |= {"answers": {who: paragraph(*one.sentences()) for who, one in few.items()}}
    tables = ((who, *slot_table(one)) for who, one in few.items())
    about |= {"slots": {who: (head[1:], [_row(*row) for row in rows]) for who, head, rows in tables}}
    most, one = next(iter(few.items()))
    other, same = map(percent, one.effects.flips)
    lead = f"most by {most}: " * (len(choices) > 1)
    lead += f"{other} of pairs of decisions in other orders differ; in the same order again: {same}"
    read_as = str(one.decisions.job.get("read_as", "decisions of posbias choose"))
    about |= {"lead": lead, "under": f"{title}, read as {read_as}."}
    about |= {"judges": [corner, head, [_row(*cells) for cells in judges]]}
    page, _ = write_page(folder, "choices.html", [figure], **about)
    held = _judges(choices)
    answer = ReportChoices.of(page=page, headline=about["headline"], read_as=read_as, judges=held)
    return answer, [read_as, "", f"{answer.headline} ({lead})", "", *_lines(choices), f"report: {page}"]


def headline(choices: Mapping[str, ChoiceAnswer]) -> str:
    """What order does, in a line: of one who chose, which slot and label are surely favoured; of several, of how
    many slots move the choices."""
    moved = [one for one in choices.values() if one.order_test.p < ALPHA]
    if len(choices) > 1:
        return f"Slots move the choices of {len(moved)} of {len(choices)} (p < {ALPHA:g} each)"
    (one,) = choices.values()
    effects, label = one.effects, _favoured(one.effects.labels)
    if one.always or not moved:
        shown = f"Label {label} is favoured; no effect of slots is shown"
        return one.always or (shown if label else "No effect of order is shown")
    slot = _favoured(dict(enumerate(effects.slots)))
    where = {0: "first", effects.decisions.slots - 1: "last"}.get(slot, f"at slot {slot}")
    known = f"What stands {where} is favoured{', place and label together' * effects.together}"
    said = "Order moves choices; no slot is surely favoured" if slot is None else known
    return f"{said}; label {label} is favoured" if label else said


def _favoured(effects: Mapping[Any, Estimate]) -> Any:
    """The slot or label of the greatest effect that is surely above 0; None for none."""
    looks = len(effects) if len(effects) > 2 else 1  # of two one effect is looked at; of more all together
    exact = {name: one if math.isinf(one.value) else one.jointly(looks) for name, one in effects.items()}
    sure = [name for name, one in exact.items() if one.sign > 0]
    return max(sure, key=lambda name: effects[name].value, default=None)


def _judges(choices: Mapping[str, ChoiceAnswer]) -> list[Judge]:
    return [Judge.of(one, who=who, answer=one.sentences()) for who, one in choices.items()]


def _row(name: str, *cells: str) -> Row:
    """A row of the page's tables, intervals in small print."""
    short = (cell.replace(" in log-odds", "").replace("95 % interval ", "").rstrip(")") for cell in cells)
    parts = (cell.partition(" (") for cell in short)
    return Row(name, [TableCell(value, around) for value, _, around in parts])
