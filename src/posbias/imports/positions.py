"""A plain table of position and number: what the number is called says what it is."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from posbias.errors import InputFileError, InvalidValueError
from posbias.imports.attributions import MEASURES
from posbias.imports.format import Format
from posbias.imports.needle import MODELS, scaled
from posbias.imports.records import Record, named, plain_name
from posbias.imports.trials import FEWEST_PLACES, Answer, of_rows, one_model, rates
from posbias.profile import Profile

POSITIONS = ("position", "place", "index", "gold_position", "gold_place", "gold_index", "token_index")
RATES = ("score", "accuracy", "correct", "is_correct", "rate", "exact_match", "em")
SIGNED = ("attribution", "saliency", "relevance")
MASSES = ("influence", "weight", "mass")
TRIALS = ("trial", "prompt", "question", "sample", "id", "seed")
TRIAL_IDS = ("trial_id", "question_id", "query_id", "sample_id")
"""What a trial is called where there is none of `TRIALS`."""


def read_positions(records: Sequence[Record], path: Path, model: str | None) -> Profile:
    """Rates, signed numbers or a mass by position, a trial (if there is a column of them) a sample.

    Without such a column a position may have several rates, answers of trials; other numbers stand once. A mass
    needs every position from the first to the last, and is divided by its sum. Raises `InputFileError`.
    """
    records = [Record({plain_name(k): v for k, v in r.columns.items()}, r.file, r.where) for r in records]
    position, value, trial = (named(records, names) for names in (POSITIONS, RATES + SIGNED + MASSES, TRIALS))
    trial = trial or named(records, TRIAL_IDS)
    if position is None or value is None:  # FORMAT asks for them before
        raise InputFileError(f"{path}: columns of position and score needed")
    records, name = one_model(records, named(records, MODELS), model)
    numbers, scale = [record.number(value) for record in records], "signed numbers"
    if value in RATES:
        numbers, scale = scaled(numbers, path, value)
    counts: Counter = Counter()
    answers = []
    for record, number in zip(records, numbers, strict=True):
        place = record.number(position)
        row = record.label(trial) if trial else str(counts[place])
        counts[place] += 1
        answers.append(Answer(row, place, number, record.where))
    attrs = {"format": FORMAT.name} | ({"model": name} if name else {})
    if value in RATES:
        of = "" if position == POSITIONS[0] else f" of {position}"
        said = f"{len(answers)} of {value} at {len(counts)} places{of}, {scale}"
        return rates(answers, path, attrs | {"read_as": f"{FORMAT.name}: {said}"}, value)
    return _numbers(answers, path, value, bool(trial), attrs)


def _numbers(answers: Sequence[Answer], path: Path, value: str, by_trial: bool, attrs: dict) -> Profile:
    """Signed numbers or a mass: one number for each trial and position."""
    trials = list(dict.fromkeys(one.trial for one in answers)) if by_trial else ["0"]
    places = sorted({one.place for one in answers})
    cells = {(one.trial, one.place): one.score for one in answers}
    if not len(answers) == len(cells) == len(trials) * len(places) or len(places) < FEWEST_PLACES:
        raise InputFileError(
            f"{path}: {len(answers)} of {value} for {len(trials)} trials at {len(places)} positions given, one "
            f"for each trial and position needed, at {FEWEST_PLACES} positions or more"
        )
    samples = np.array([[cells[trial, place] for place in places] for trial in trials])
    said = f"{FORMAT.name}: {value} at {len(places)} positions, {len(trials)} trials"
    about = {"attrs": attrs | {"places": places, "read_as": said}}
    if value in SIGNED:
        return of_rows(samples, kind="signed", measures=MEASURES, **about)
    if places != list(np.arange(len(places)) + places[0]) or (samples < 0).any():
        raise InputFileError(f"{path}: {value}: numbers ≥ 0 at every position from first to last needed")
    try:
        if len(samples) > 1:
            return Profile.from_samples(samples, measures=value, **about)
        return Profile.from_weights(samples[0], measures=value, **about)
    except InvalidValueError as error:
        raise InputFileError(f"{path}: {error}") from None


FORMAT = Format("numbers by position", (POSITIONS, RATES + SIGNED + MASSES), read_positions)
