"""Samples of the lm-evaluation-harness: JSON lines of `--log_samples`.

A task's documents may say where the answer stands; if not, the target is looked for in the prompt.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posbias.arguments import is_number, shortened
from posbias.errors import InputFileError
from posbias.imports.format import Format
from posbias.imports.located import left_out, place_of
from posbias.imports.records import Record
from posbias.imports.trials import Answer, in_stretches, rates
from posbias.profile import Profile

PLACES = ("position", "gold_index", "gold_position", "needle_index", "depth_percent", "depth")
"""Keys of a document that say where its answer stands."""


def read_samples(records: Sequence[Record], path: Path, model: str | None) -> Profile:
    """The first metric, by place. Of several filters the first counts. Raises `InputFileError`."""
    first = records[0].columns.get("filter")
    kept = [record for record in records if repr(record.columns.get("filter")) == repr(first)]
    metric = _metric(kept[0])
    key = next((name for name in PLACES if name in _doc(kept[0])), None)
    answers = []
    for record in kept:
        score = record.number(metric)
        if score < 0:  # RULER's tasks: not of this length
            continue
        place = _doc_number(record, key) if key else place_of(_target(record), _prompt(record))
        if place is not None:
            answers.append(Answer((record.file, record.label("doc_id")), place, score, record.where))
    omitted = left_out(len(answers), len(kept), path, () if key else PLACES[:2])
    if key is None:
        answers = in_stretches(answers, path)
    places = len({one.place for one in answers})
    where = f"{places} places by {key}" if key else f"{places} stretches by where the target stands"
    said = f"{len(answers)} samples, {metric} at {where}{omitted}"
    if len({repr(record.columns.get("filter")) for record in records}) > 1:
        said += f", filter {shortened(first)}"
    attrs = {"format": FORMAT.name, "read_as": f"{FORMAT.name}: {said}"}
    return rates(answers, path, attrs | ({"model": model} if model else {}), metric)


def _metric(record: Record) -> str:
    """The first metric with a number that is no mark of another length."""
    names = record.columns.get("metrics")
    names = names if isinstance(names, list) else ["acc", "exact_match", "em", "f1", "contains"]
    for name in names:
        value: Any = record.columns.get(str(name))
        if isinstance(value, bool) or (is_number(value) and value >= 0):
            return str(name)
    raise InputFileError(
        f"{record.where}: metrics: {shortened(names)} given, the name of one with a number needed"
    )


def _doc(record: Record) -> dict[str, Any]:
    doc = record.columns.get("doc")
    if not isinstance(doc, dict):
        raise InputFileError(f"{record.where}: doc: {shortened(doc)} given, an object needed")
    return doc


def _doc_number(record: Record, key: str) -> float:
    return Record(_doc(record), record.file, f"{record.where}: doc").number(key)


def _target(record: Record) -> str:
    """The right answer as text; the first of several."""
    target = record.columns.get("target")
    target = target[0] if isinstance(target, list) and target else target
    return target.strip() if isinstance(target, str) else str(target)


def _prompt(record: Record) -> str:
    """The prompt: the first argument of the first request."""
    given: Any = record.columns.get("arguments")
    for _ in range(2):
        if isinstance(given, dict):
            given = next(iter(given.values()), None)
        elif isinstance(given, list) and given:
            given = given[0]
    if not isinstance(given, str):
        raise InputFileError(f"{record.where}: arguments: {shortened(given)} given, a prompt's text needed")
    return given


FORMAT = Format(
    "lm-evaluation-harness samples",
    (("doc_id",), ("doc",), ("target",), ("arguments",)),
    read_samples,
    "gao2024",
)
