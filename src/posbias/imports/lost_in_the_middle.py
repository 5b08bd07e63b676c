"""Predictions of Liu et al. 2024, "Lost in the Middle": the files that their scripts write, a file for each place.

Their files of answers to questions have the documents in the order of the prompt, one of them gold; those of
key-value retrieval have the pairs. A folder of the files of all places is read as one.
"""

import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError
from posbias.imports.format import Format
from posbias.imports.records import Record
from posbias.imports.trials import Answer, one_model, rates
from posbias.profile import Profile

DOCUMENTS, PAIRS = "model_documents", "model_ordered_kv_records"


def read_predictions(records: Sequence[Record], path: Path, model: str | None) -> Profile:
    """Accuracy by the place of the gold document or pair, paired by question or key. Raises `InputFileError`."""
    records, name = one_model(records, "model" if "model" in records[0].columns else None, model)
    answers, sizes = [], set()
    for record in records:
        in_pairs = PAIRS in record.columns
        answers.append(_of_pairs(record) if in_pairs else _of_documents(record))
        sizes.add(len(record.columns[PAIRS if in_pairs else DOCUMENTS]))
    if len(sizes) > 1:
        raise InputFileError(
            f"{path}: prompts of {min(sizes)} to {max(sizes)} documents given, of one number needed"
        )
    places, trials = len({one.place for one in answers}), len({one.trial for one in answers})
    said = f"{len(answers)} answers to {trials} questions, gold at {places} of {sizes.pop()} places"
    attrs = {"format": FORMAT.name, "read_as": f"{FORMAT.name}: {said}"} | ({"model": name} if name else {})
    return rates(answers, path, attrs)


def _of_pairs(record: Record) -> Answer:
    key, value = record.text("key"), record.text("value")
    pairs = _listed(record, PAIRS)
    places = [place for place, pair in enumerate(pairs) if isinstance(pair, list) and pair[:1] == [key]]
    if len(places) != 1:
        raise InputFileError(f"{record.where}: {PAIRS}: the key {len(places)} times given, once needed")
    found = value.lower() in record.text("model_answer").lower()
    # lists differ by their pairs, in whatever order
    trial = (key, value, repr(sorted(map(repr, pairs))))
    return Answer(trial, float(places[0]), float(found), record.where)


def _of_documents(record: Record) -> Answer:
    documents = _listed(record, DOCUMENTS)
    gold = [
        place for place, one in enumerate(documents) if isinstance(one, dict) and one.get("isgold") is True
    ]
    if len(gold) != 1:
        raise InputFileError(f"{record.where}: {DOCUMENTS}: {len(gold)} gold documents given, one needed")
    said = plain_answer(record.text("model_answer").split("\n")[0])
    found = any(plain_answer(answer) in said for answer in record.texts("answers"))
    return Answer(record.text("question"), float(gold[0]), float(found), record.where)


def _listed(record: Record, column: str) -> list[Any]:
    given = record.columns.get(column)
    if not isinstance(given, list):
        raise InputFileError(f"{record.where}: {column}: no list given, one in the prompt's order needed")
    return given


def plain_answer(text: str) -> str:
    """A text without capitals, punctuation, articles and double spaces: what the metric of Liu et al. compares."""
    kept = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


FORMAT = Format(
    "lost-in-the-middle predictions", (("model_answer",), (DOCUMENTS, PAIRS)), read_predictions, "liu2024"
)
