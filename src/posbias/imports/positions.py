"""Numbers by place in a table: what the columns are called says what they are.

Rates may be scores, right and wrong answers or counts with totals, by position or depth, at one context length or
several (gkamradt's needle in a haystack, and testers like it); other numbers are attributions, or a mass.
"""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from posbias.core.errors import InputFileError, errors_of, shortened, wrong
from posbias.core.tables import Column, Table, number, plain_name, unexpected
from posbias.imports.columns import (
    FEWEST_PLACES,
    MEASURES,
    MOST,
    NAMES,
    PLACES,
    RATES,
    Answers,
    Choice,
    Curves,
    Format,
    attributes,
    column_of,
    curves,
    file_of,
    having,
    numbers,
    places_of,
    refuse,
    scores_of,
    undecided,
    unseparated,
)
from posbias.profiles.places import Places
from posbias.profiles.profile import Profile

GRADED = ("model_response", "needle", "version")
"""Columns of files of gkamradt's tester."""
HEAD = "Document Depth"
"""The first head of its heat maps."""
_LENGTH = re.compile(r"^(.*?)\s*([km]?)(?:[ _]?tokens)?$", re.IGNORECASE)
MOST_ANSWERS = 2**22
"""Answers that counts may stand for."""
ROUNDED = 0.006
"""A share may be off by this for being rounded."""


def read_positions(table: Table, path: Path, choice: Choice) -> Curves:
    """Rates, signed numbers or a mass by place, a trial (if there is a column of them) a sample.

    Without such a column, rows at one place are answers of their own. Raises `InputFileError`, also where two
    columns may be the place or the score, and where the place may be the number of the row.
    """
    import pandas as pd

    table, model = of_one_model(table, choice)
    form = PLAIN if NEEDLE.missing(table) else NEEDLE
    if "score" not in choice.columns and not having(table, RATES):
        return _numbers(table, path, choice, model)
    place = _place(table, choice)
    places, shares = places_of(table[place])
    if (count := column_of(table, "place", NAMES["of"])) is not None:
        places, shares = places / np.maximum(numbers(table[count]) - 1, 1), True
    length = column_of(table, "length", NAMES["length"], choice) or column_of(table, "length", NAMES["used"])
    lengths = np.full(len(table), math.nan) if length is None else _lengths(table[length])
    files = table.index.map(file_of)
    cells = pd.DataFrame({"length": lengths, "place": places, "file": files})
    answers, score, scale = _answers(table, choice)
    trial = None if scale == "counts" else _trial(table, choice, {place, score, length})
    once: Table = cells.drop_duplicates()
    again = once[once.duplicated(["length", "place"], keep=False)]
    if trial is None and path.is_dir() and len(again):
        names = ", ".join(dict.fromkeys(Path(file).name for file in again["file"]))
        raise unexpected(path, "each place in one file", names)
    answers = answers.join(cells, on="row")
    answers["trial"] = table[trial].map(str).to_numpy()[answers["row"]] if trial else 0
    of = "" if plain_name(place) == "position" else f" of {plain_name(place)}"
    said = f"of {plain_name(score)} at WHERE{of}, {scale}{f', trials by {trial}' if trial else ''}"
    where = "shares" if shares else "places"
    unit = "documents" if length is not None and "doc" in plain_name(length) else "tokens"
    read = Answers(answers, said, form.name, model, plain_name(score), trial is not None, where, unit)
    return curves(read, path, choice)


def of_one_model(table: Table, choice: Choice) -> tuple[Table, str]:
    """The rows of one model, by its name where there are several. Raises `InputFileError` where it is open."""
    column = column_of(table, "model", NAMES["model"], choice)
    if column is None:
        return table, ""
    models = table[column].map(str)
    known = models.unique().tolist()
    model = known[0] if choice.model is None else choice.model
    if model not in known or (choice.model is None and len(known) > 1):
        names = shortened(", ".join(known))
        what = f"one model of {names} (posbias.read(path, model=NAME), or its lines alone)"
        raise unexpected(file_of(table.index[0]), what, choice.model or f"{len(known)} models")
    return table[models == model], model


def _place(table: Table, choice: Choice) -> str:
    """The column of places: positions or depths, never one that may number the rows or the questions."""
    place = column_of(table, "place", NAMES["place"], choice)
    depth = None if "place" in choice.columns else column_of(table, "place", NAMES["depth"])
    if place is None and depth is None:
        rows = having(table, NAMES["row"])
        what = f"a column of places ({', '.join(rows)} may number rows or questions)"
        raise undecided(table, what, f"place={rows[0] if rows else 'COLUMN'}")
    if place is None or depth is None:
        return place or depth or ""
    orders = [table[column].map(number).rank(method="dense").tolist() for column in (place, depth)]
    if orders[0] != orders[1] and not having(table, NAMES["length"]):
        raise undecided(table, f"one column of places, not {place} and {depth}", f"place={place}")
    return place if orders[0] == orders[1] else depth


def _answers(table: Table, choice: Choice) -> tuple[Table, str, str]:
    """Each answer's row of the table and score (0 to 1), with the column that has it and what scale that was."""
    import pandas as pd

    counts = None if "score" in choice.columns and "total" not in choice.columns else _counts(table, choice)
    if counts is None:
        score = column_of(table, "score", RATES, choice)
        if score is None:
            raise undecided(table, "a column of scores", "score=COLUMN")
        graded = all(having(table, (column,)) for column in GRADED)
        grid = HEAD in table and not table[score].map(number).mod(1).any()
        values, scale = scores_of(table[score], choice, graded or grid)
        return pd.DataFrame({"row": np.arange(len(table)), "score": values}), score, scale
    right, total, column = counts
    bad = (total < 1) | (total % 1 > 0) | (right < 0) | (right > total) | (right % 1 > 0)
    if bad.any() or total.sum() > MOST_ANSWERS:
        at = int(bad.argmax())
        what = f"counts of right answers, at most the total ({MOST_ANSWERS:,} in all)"
        got = f"{right[at]:g} of {total[at]:g}"
        raise wrong(f"{table.index[at]}: {column}", what, got=got, kind=InputFileError)
    scores = [np.arange(of) < some for some, of in zip(right, total, strict=True)]
    rows = np.repeat(np.arange(len(table)), total.astype(int))
    return pd.DataFrame({"row": rows, "score": np.concatenate(scores).astype(float)}), column, "counts"


def _counts(table: Table, choice: Choice) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Right answers and all in each row, with the column of the former; None where the table has no counts."""
    for column in having(table, RATES):
        texts = table[column].map(str).str
        parts = texts.extract(r"^\s*(\d+)\s*(?:/|of)\s*(\d+)\s*$").astype(float).to_numpy()
        if not np.isnan(parts).any():
            return parts[:, 0], parts[:, 1], column
    called = having(table, NAMES["count"] + NAMES["right"])
    count = column_of(table, "score", (), choice) or next(iter(called), None)
    total = column_of(table, "total", NAMES["total"], choice)
    missed = column_of(table, "total", NAMES["wrong"])
    if total is not None and table[total].map(number).notna().all():
        asked = numbers(table[total])
    elif count is not None and missed is not None:
        asked = numbers(table[count]) + numbers(table[missed])
    else:
        return None
    share = column_of(table, "score", NAMES["score"] + NAMES["share"])
    if count is not None and (numbers(table[count]) % 1 == 0).all():
        right = numbers(table[count])
        if right.max() <= 1 < asked.max() and "total" not in choice.columns:
            what = f"right answers of a total, or one answer in each row, not {count} of 0 and 1 with a total"
            raise undecided(table, what, f"score={count} (for answers; with total=COLUMN for counts)")
        if share is not None and abs(scores_of(table[share], choice)[0] - right / asked).max() > ROUNDED:
            raise undecided(table, f"{share} to be {count} of all, which it is not", f"score={share}")
        return right, asked, count
    if (column := count or share) is None:
        return None
    right = scores_of(table[column], choice)[0] * asked
    # what is no share of right answers (a mean F1) has no counts
    whole = (abs(right - right.round()) <= ROUNDED * asked).all()
    return (right.round(), asked, column) if whole else None


def _trial(table: Table, choice: Choice, used: set[str | None]) -> str | None:
    """The column that says which rows are of one trial; None where each is of its own."""
    if "trial" in choice.columns:
        return column_of(table, "trial", (), choice)
    for column in having(table, NAMES["trial"]):
        if column not in used and 1 < table[column].map(str).nunique() < len(table):
            return column
    return None


def _lengths(column: Column) -> np.ndarray:
    """Context lengths, also as 4k, 1M, 4,096 and 4 096 tokens."""
    parts = column.map(str).str.strip().str.extract(_LENGTH)
    of, unit = unseparated(parts[0]).map(number), parts[1].str.lower().map({"k": 1e3, "m": 1e6}).fillna(1.0)
    lengths = (of * unit).to_numpy(dtype=np.float64)
    what = "a whole number of tokens or documents above 0, or as 4k"
    refuse(column, ~(lengths > 0) | (lengths % 1 > 0), what)
    return lengths


def _numbers(table: Table, path: Path, choice: Choice, model: str) -> Curves:
    """Signed numbers or a mass: one number for each trial and position."""
    value = column_of(table, "score", NAMES["signed"] + NAMES["mass"], choice) or ""
    position = column_of(table, "place", NAMES["place"] + NAMES["row"], choice)
    if position is None or not value:
        raise undecided(table, "columns of places and scores", "place=COLUMN score=COLUMN")
    trial = _trial(table, choice, {position, value})
    held = table.assign(
        place=places_of(table[position])[0],
        score=numbers(table[value]),
        trial=table[trial].map(str) if trial else "",
    )
    cells = held.groupby(["trial", "place"], sort=True)["score"].agg(["first", "size"]).unstack()
    samples, places = cells["first"].to_numpy(), cells["first"].columns.tolist()
    whole = (cells["size"] == 1).to_numpy().all() and len(places) >= FEWEST_PLACES
    if not whole or not (abs(samples) <= MOST).all():
        what = f"one number of at most {MOST:g} for each trial at each of {FEWEST_PLACES} positions or more"
        raise unexpected(f"{path}: {value}", what, f"{len(held)} for {len(cells)} at {len(places)}")
    attrs = attributes(PLAIN.name, f"{value} at {len(places)} positions, {len(cells)} trials", model)
    about: dict[str, Any] = {"attrs": attrs, "places": Places({value: samples}, np.array(places))}
    if value in having(table, NAMES["signed"]):
        return {None: Profile.from_rows(samples, kind="signed", measures=MEASURES, **about)}
    if places != list(np.arange(len(places)) + places[0]) or (samples < 0).any():
        raise InputFileError(f"{path}: {value}: expected numbers >= 0 at every position from first to last")
    with errors_of(path):
        if len(samples) > 1:
            return {None: Profile.from_samples(samples, measures=value, **about)}
        return {None: Profile.from_weights(samples[0], measures=value, **about)}


NEEDLE = Format(
    "needle in a haystack", (NAMES["depth"], NAMES["length"] + NAMES["used"], RATES), read_positions
)
PLAIN = Format(
    "numbers by position", (PLACES + NAMES["row"], RATES + NAMES["signed"] + NAMES["mass"]), read_positions
)
