"""Answers by place as a profile of rates: paired where every trial has every place, else dealt into groups.

A trial is what was asked at several places (a question whose document moves, a context length). If every trial
has every place, each is a row of the profile's samples. If not, the answers of each place are dealt in the order
of the file into as many groups as the place with the fewest has, and a group's means are a row. Either way rows
are as independent as trials are, and the curve is their mean.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.arguments import shortened
from posbias.errors import InputFileError
from posbias.imports.records import Record
from posbias.profile import Profile

FEWEST_PLACES = 3
"""Places of a curve: with fewer it has no middle."""
STRETCHES = 10
"""Equal stretches of the context into which scattered places are put."""


@dataclass(frozen=True)
class Answer:
    """The `score` of one `trial` with what was asked for at `place`; `where` it was read is for errors."""

    trial: Hashable
    place: float
    score: float
    where: str


def rates(answers: Sequence[Answer], path: Any, attrs: dict[str, Any], measures: str = "accuracy") -> Profile:
    """The mean score by place, places in their order, with the trials (or groups of answers) as samples.

    `attrs` go into the profile's with "places", those of the answers, and "rows", what a sample is. Raises
    `InputFileError` for a trial with two answers at a place, fewer than three places, and scores outside [0, 1].
    """
    cells: dict[tuple[Hashable, float], Answer] = {}
    for one in answers:
        if not 0 <= one.score <= 1:
            raise InputFileError(f"{one.where}: score {one.score:g} given, a number between 0 and 1 needed")
        first = cells.setdefault((one.trial, one.place), one)
        if first is not one:
            raise InputFileError(f"{one.where}: the same cell as in {_at(first)}, each once needed")
    places = sorted({one.place for one in answers})
    if len(places) < FEWEST_PLACES:
        said = ", ".join(f"{place:g}" for place in places)
        raise InputFileError(
            f"{path}: answers at place {said} alone given, at {FEWEST_PLACES} places or more needed"
            f"{'' if len(places) > 1 else ' (a folder is read as one file)'}"
        )
    trials = list(dict.fromkeys(one.trial for one in answers))
    paired = len(cells) == len(trials) * len(places)
    if paired:
        samples = np.array([[cells[trial, place].score for place in places] for trial in trials])
    else:
        samples = _dealt(answers, places)
    about = attrs | {"places": places, "rows": "trials" if paired else "groups of answers"}
    return of_rows(samples, kind="rate", measures=measures, attrs=about)


def of_rows(samples: Float[np.ndarray, "sample position"], **fields: Any) -> Profile:
    """The mean of samples, with a standard error where there are two or more."""
    count = len(samples)
    se = samples.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else None
    return Profile(samples.mean(axis=0), samples=samples, se=se, **fields)


def _dealt(answers: Sequence[Answer], places: Sequence[float]) -> Float[np.ndarray, "group position"]:
    by_place: dict[float, list[float]] = {place: [] for place in places}
    for one in answers:
        by_place[one.place].append(one.score)
    groups = min(map(len, by_place.values()))
    return np.array(
        [[float(np.mean(scores[group::groups])) for scores in by_place.values()] for group in range(groups)]
    )


def _at(answer: Answer) -> str:
    """The line of an answer, without the folder."""
    return answer.where.rpartition("/")[2]


def need_shares(answers: Sequence[Answer]) -> None:
    """Raise `InputFileError` for a place that is no share of the context."""
    for one in answers:
        if not 0 <= one.place <= 1:
            raise InputFileError(
                f"{one.where}: depth {shortened(one.place)} of the context given, 0 to 1 needed"
            )


def in_stretches(answers: Sequence[Answer], path: Any) -> list[Answer]:
    """Answers whose places are shares of the context, each put into one of up to ten equal stretches.

    As many stretches as leave none empty; a place is then the number of the stretch. Raises `InputFileError` for
    places outside 0 … 1, and where three stretches already leave one empty.
    """
    need_shares(answers)
    shares = np.array([one.place for one in answers])
    for count in range(STRETCHES, FEWEST_PLACES - 1, -1):
        stretches = np.minimum((shares * count).astype(int), count - 1)
        if len(set(stretches.tolist())) == count:
            return [
                Answer((one.trial, one.place), float(stretch), one.score, one.where)
                for one, stretch in zip(answers, stretches, strict=True)
            ]
    raise InputFileError(
        f"{path}: {len(answers)} answers given that leave a third of the context empty, "
        f"some in each of {FEWEST_PLACES} stretches needed"
    )


def one_model(records: Sequence[Record], column: str | None, model: str | None) -> tuple[list[Record], str]:
    """The records of one model, by its name where there are several. Raises `InputFileError` where it is open."""
    if column is None:
        return list(records), ""
    names = list(dict.fromkeys(str(record.columns.get(column, "")) for record in records))
    if model is None and len(names) > 1:
        raise InputFileError(
            f"{records[0].where}: {len(names)} models given ({shortened(', '.join(names))}), one needed: "
            f"posbias.read(path, model={names[0]!r}), or a file with its lines alone"
        )
    kept = [record for record in records if model in (None, str(record.columns.get(column, "")))]
    if not kept:
        raise InputFileError(
            f"{records[0].where}: model: {shortened(model)} given, one of {shortened(', '.join(names))} needed"
        )
    return kept, names[0] if model is None else model
