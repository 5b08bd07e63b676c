"""Predictions of RULER's tasks (Hsieh et al. 2024): JSON lines of `scripts/pred/call_api.py`.

They do not say where an answer stands, so it is looked for in the input. An answer counts as found where the
prediction has it in any case of letters, as RULER's own metric for needles has it.
"""

from collections.abc import Sequence
from pathlib import Path

from posbias.imports.format import Format
from posbias.imports.located import left_out, place_of
from posbias.imports.records import Record
from posbias.imports.trials import Answer, in_stretches, rates
from posbias.profile import Profile


def read_ruler(records: Sequence[Record], path: Path, model: str | None) -> Profile:
    """The share of answers found, by stretch of the input in which they stand. Raises `InputFileError`."""
    answers, every = [], 0
    for record in records:
        text, said = record.text("input"), record.text("pred").lower()
        for number, answer in enumerate(record.texts("outputs")):
            every += 1
            place = place_of(answer, text)
            if place is not None:
                trial = (record.file, str(record.columns.get("index")), number)
                answers.append(Answer(trial, place, float(answer.lower() in said), record.where))
    omitted = left_out(len(answers), every, path)
    placed = in_stretches(answers, path)
    stretches = len({one.place for one in placed})
    said = f"{len(answers)} answers by where they stand in the input, in {stretches} stretches{omitted}"
    attrs = {"format": FORMAT.name, "read_as": f"{FORMAT.name}: {said}"}
    return rates(placed, path, attrs | ({"model": model} if model else {}))


FORMAT = Format("RULER predictions", (("pred",), ("input",), ("outputs",)), read_ruler, "hsieh2024")
