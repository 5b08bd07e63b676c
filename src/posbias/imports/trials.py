"""Answers by place as profiles of rates: paired where every trial has every place, else dealt into groups.

A trial is what was asked at several places (a question whose document moves); its answers at one place are
averaged first. If every trial has every place, each is a row of the profile's samples. If not, the cells of each
place are dealt, in the file's order and in equal parts, into as many groups as the place with the fewest has
cells, and a group's means are a row. Either way the curve is the mean of the rows.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError
from posbias.core.tables import Table
from posbias.imports.columns import Choice, Curves
from posbias.profiles.curves import at_shares
from posbias.profiles.profile import Profile

FEWEST_PLACES = 3
"""Places of a curve that has a middle; with two there are a first and a last alone."""
MEASURES = "attribution"
"""What signed numbers of others measure."""
MOST = 1e100
"""Size of a number, so that squares of all of them have a sum."""
STRETCHES = 10
"""Equal stretches of the context, at most, into which scattered places are put."""
ENOUGH = 4
"""Answers in each stretch, so that each has an interval."""
ALIKE = 1.5
"""How many times as long as the shortest prompt the longest may be to be called alike."""
UNEVEN = 1.5
"""Places are unevenly spaced where the widest gap is this many times the narrowest."""
MOST_GROUPS = 4096
"""Rows of samples made of more answers than that."""


def rates(
    answers: Table,
    path: Any,
    attrs: Mapping[str, Any],
    measures: str = "accuracy",
    trials: bool = True,
) -> Profile:
    """The mean score by place, places in their order, with trials or groups of answers as samples.

    `answers` has columns trial, place and score (0 to 1); with `trials` one trial's answers belong together.
    `attrs` go into the profile's with "places", "rows" (what a sample is) and, for unpaired answers that are right
    or wrong, "counts": right answers and all, by place. Raises `InputFileError` for a single place.
    """
    trial = answers["trial"].map(str).factorize()[0]
    cells = answers.assign(trial=trial).groupby(["trial", "place"])["score"].mean().unstack()
    places = [float(place) for place in cells.columns]
    if len(places) < 2:
        raise InputFileError(f"{path}: expected answers at two places or more, got {places[0]:g} alone")
    complete = not cells.isna().to_numpy().any()
    rows = ("trials" if trials else "answers") if complete else "groups of answers"
    about = dict(attrs) | {"places": places, "rows": rows}
    columns = [cells[place].dropna().to_numpy() for place in cells.columns]
    if rows != "trials" and all(np.isin(column, (0, 1)).all() for column in columns):
        about["counts"] = [[int(column.sum()), column.size] for column in columns]
    groups = min(MOST_GROUPS, *(column.size for column in columns))
    samples = np.stack([at_shares(column, groups, total=False) for column in columns], axis=1)
    return of_rows(samples, kind="rate", measures=measures, attrs=about)


def of_rows(samples: Float[np.ndarray, "sample position"], **fields: Any) -> Profile:
    """The mean of samples, with a standard error where there are two or more."""
    count = len(samples)
    se = samples.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else None
    return Profile(samples.mean(axis=0), samples=samples, se=se, **fields)


def curves(
    answers: Table,
    path: Any,
    choice: Choice,
    said: str,
    attrs: Mapping[str, Any],
    measures: str = "accuracy",
    *,
    trials: bool = True,
    where: Literal["places", "shares", "text"] = "places",
    unit: Literal["tokens", "documents"] = "tokens",
) -> Curves:
    """A profile for each of the lengths of answers (NaN: not known), or for the one that is chosen.

    `said` says what they were taken for, with WHERE for their places or stretches; `where`: places count as they
    are, are shares of the context, or shares of a text, where nearby ones are alike. Many lengths that are alike
    (of single prompts) count as their mean. Raises `InputFileError` for a length that is not there, and for
    lengths of which some have one place alone where none is chosen.
    """
    lengths = sorted(answers["length"].dropna().unique().tolist())
    single = len(lengths) > 1 and answers.groupby("length")["place"].nunique().min() < 2
    if (single or len(lengths) > STRETCHES) and lengths[-1] <= ALIKE * lengths[0]:
        answers = answers.assign(length=answers["length"].mean())
        lengths, single = [answers["length"].iloc[0]], False
    of_several = ""
    if choice.tokens == "all":
        answers = answers.assign(length=math.nan)
        of_several = f", mean over {len(lengths)} lengths" if len(lengths) > 1 else ""
    elif choice.tokens is not None and (len(lengths) > (unit != "tokens") or not choice.shared):
        answers = answers[answers["length"] == choice.tokens]
        if answers.empty:
            known = f"one of {listed(lengths)}" if lengths else "none, as lengths are not known"
            raise InputFileError(f"{path}: tokens: expected {known}, got {choice.tokens:g}")
    elif single:
        raise InputFileError(
            f"{path}: expected two places or more at each context length, got one alone at some of {len(lengths)} "
            "lengths; --tokens all (tokens='all') takes the mean over all"
        )
    found: Curves = {}
    for length, part in answers.groupby("length", dropna=False):
        placed, places = stretched(part, where, path)
        if not trials:
            placed = placed.assign(trial=placed.groupby("place").cumcount())
        about, key = dict(attrs), None
        if math.isfinite(length):
            key = about[unit] = float(length)
            of_several = f", {length:,.0f} {unit} of {listed(lengths)}" if len(lengths) > 1 else ""
        count = f"{len(placed)} {said.replace('WHERE', places)}"
        about["read_as"] = f"{attrs['format']}: {count}{of_several}"
        found[key] = rates(placed, path, about, measures, trials)
    return found


def listed(lengths: Sequence[float]) -> str:
    """Context lengths in words, the first dozen."""
    return ", ".join(f"{length:,.0f}" for length in lengths[:12]) + (", …" if len(lengths) > 12 else "")


def stretched(answers: Table, where: str, path: Any) -> tuple[Table, str]:
    """Answers with their places, or with the middles of equal stretches where places are scattered; and which.

    Places are scattered in a text, and where most of more than `STRETCHES` have one answer, right or wrong or
    unevenly spaced. As many stretches as have `ENOUGH` answers each, else as leave none empty, are made of the
    whole context for shares, if that leaves no third of it empty; else of the first to the last place.
    """
    counts = answers["place"].value_counts().sort_index()
    alone = len(counts) > STRETCHES and counts.median() < 2
    gaps = np.diff(counts.index)
    single = alone and (answers["score"].isin((0, 1)).all() or gaps.max() > UNEVEN * gaps.min())
    if where != "text" and not single:
        return answers, f"{len(counts)} places"
    place = answers["place"].to_numpy()
    whole, taken = (0.0, 1.0), (place.min(), place.max())
    for (low, high), fewest in ((taken if where == "places" else whole, FEWEST_PLACES), (taken, 2)):
        for enough in (ENOUGH, 1):
            for count in range(STRETCHES, fewest - 1, -1):
                at = np.minimum(((place - low) / max(high - low, 1e-12) * count).astype(int), count - 1)
                if np.bincount(at, minlength=count).min() >= enough:
                    middles = low + (at + 0.5) * (high - low) / count
                    of = "" if where == "places" or high == 1 else f" from {low:.0%} to {high:.0%}"
                    return answers.assign(place=middles), f"{count} stretches{of}"
    raise InputFileError(f"{path}: expected answers at two places or more, got {place[0]:g} alone")
