"""Needle-in-a-haystack results: a score for each context length and depth, as gkamradt's tester writes them.

Its evaluator gives whole scores of 1 to 10, where 1 says that the answer has nothing to do with the needle: they
become (score − 1)/9. Other testers write shares or per cent.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from posbias.errors import InputFileError
from posbias.imports.format import Format
from posbias.imports.records import Record, named, plain_name
from posbias.imports.trials import Answer, in_stretches, need_shares, one_model, rates
from posbias.profile import Profile

DEPTHS = (
    "depth_percent",
    "document_depth",
    "depth",
    "insertion",
    "document_depth_percent",
    "depth_percentage",
)
LENGTHS = ("context_length", "context_size", "context_len", "length")
SCORES = ("score", "accuracy", "retrieved_needles_check")
MODELS = ("model", "model_name")
GRADED = ("model_response", "needle", "version", "test_duration_seconds")
"""Columns of which the tester's own files have all but the last."""


def read_needle(records: Sequence[Record], path: Path, model: str | None) -> Profile:
    """The score by depth, the mean over context lengths and runs, which are its trials.

    A run is what differs in any column but depth, score and what the model wrote. Where some depths were asked
    more than twice as often as others, they are put into equal stretches. Raises `InputFileError`.
    """
    records = [Record({plain_name(k): v for k, v in r.columns.items()}, r.file, r.where) for r in records]
    depth, length, score = (named(records, names) for names in (DEPTHS, LENGTHS, SCORES))
    if depth is None or length is None or score is None:  # FORMAT asks for them before
        raise InputFileError(f"{path}: columns of depth, length and score needed")
    records, name = one_model(records, named(records, MODELS), model)
    _refuse_twice(records)
    graded = all(column in records[0].columns for column in GRADED[:3])
    scores, scale = scaled([record.number(score) for record in records], path, score, graded)
    depths = [record.number(depth) for record in records]
    in_percent = max(depths) > 1 or "percent" in depth
    share = 0.01 if in_percent else 1.0
    trials = [(record.number(length), str(record.columns.get("version", ""))) for record in records]
    runs: Counter = Counter()
    answers = []
    for record, trial, place, one in zip(records, trials, depths, scores, strict=True):
        # runs of a cell that no version tells apart are counted
        again = runs[trial, place]
        runs[trial, place] += 1
        answers.append(Answer((*trial, again), share * place, one, record.where))
    need_shares(answers)
    counts = Counter(one.place for one in answers)
    scattered = 2 * min(counts.values()) < max(counts.values())
    if scattered:
        answers = in_stretches(answers, path)
    lengths = len({trial[0] for trial in trials})
    places = len({one.place for one in answers})
    where = f"{places} stretches of the depth" if scattered else f"{places} depths"
    said = f"{FORMAT.name}: {len(answers)} scores at {where} and {lengths} context lengths, {scale}"
    attrs = {"format": FORMAT.name, "read_as": said} | ({"model": name} if name else {})
    return rates(answers, path, attrs, "score")


def _refuse_twice(records: Sequence[Record]) -> None:
    """Raise `InputFileError` for a record that repeats another in every column: no run of its own does."""
    seen: dict[str, Record] = {}
    for record in records:
        kept = {key: value for key, value in record.columns.items() if not key.startswith("unnamed_")}
        first = seen.setdefault(repr(sorted(kept.items())), record)
        if first is not record:
            raise InputFileError(
                f"{record.where}: repeats {first.where.rpartition('/')[2]} in every column, "
                "a column that tells runs apart needed"
            )


def scaled(scores: Sequence[float], path: Path, column: str, graded: bool = False) -> tuple[list[float], str]:
    """Scores as numbers between 0 and 1, and of what scale they were taken to be.

    `graded` says that they are surely whole scores of 1 to 10. Raises `InputFileError` for no known scale.
    """
    low, high = min(scores), max(scores)
    whole = all(float(score).is_integer() for score in scores)
    if whole and low >= 1 and high <= 10 and (graded or high > 1):
        return [(score - 1) / 9 for score in scores], "whole scores of 1 to 10 as (score − 1)/9"
    if low >= 0 and high <= 1:
        return list(scores), "shares"
    if low >= 0 and 10 < high <= 100:
        return [score / 100 for score in scores], "per cent"
    raise InputFileError(
        f"{path}: {column}: numbers from {low:g} to {high:g} given; shares (0 to 1), whole scores of 1 to 10 or "
        "per cent (some above 10) needed"
    )


FORMAT = Format("needle in a haystack", (DEPTHS, LENGTHS, SCORES), read_needle, "kamradt2023")
