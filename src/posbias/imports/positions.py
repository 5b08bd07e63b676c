"""Numbers by place in a table: what the columns are called says what they are.

Rates may be scores, right and wrong answers or counts with totals, by position or depth, at one context length or
several (gkamradt's needle in a haystack, and testers like it); other numbers are attributions, or a mass.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posbias.arguments import shortened
from posbias.core.tables import plain_name
from posbias.errors import InputFileError, InvalidValueError
from posbias.imports import columns as names
from posbias.imports.attributions import MEASURES
from posbias.imports.columns import Choice, column_of, having, how_to_name, numbers, places_of, scores_of
from posbias.imports.format import Curves, Format
from posbias.imports.trials import FEWEST_PLACES, curves, of_rows
from posbias.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

GRADED = ("model_response", "needle", "version")
"""Columns of files of gkamradt's tester."""
MOST_ANSWERS = 2**22
"""Answers that counts may stand for."""
MOST = 1e100
"""Size of a number, so that squares of all of them have a sum."""
ROUNDED = 0.006
"""A share may be off by so much for being rounded."""


def read_positions(table: "pd.DataFrame", path: Path, choice: Choice) -> Curves:
    """Rates, signed numbers or a mass by place, a trial (if there is a column of them) a sample.

    Without such a column, rows at one place are answers of their own. Raises `InputFileError`, also where two
    columns may be the place or the score, and where the place may be the number of the row.
    """
    import pandas as pd

    table, model = of_one_model(table, choice)
    needle = not NEEDLE.missing(list(table.columns))
    about = {"format": NEEDLE.name if needle else PLAIN.name} | ({"model": model} if model else {})
    if "score" not in choice.columns and not having(table, names.RATES + names.COUNTS):
        value = column_of(table, "score", names.SIGNED + names.MASSES, choice)
        if value is not None:
            return _numbers(table, path, value, choice, about)
    place = _place(table, choice)
    places, shares = places_of(table[place])
    length = column_of(table, "length", names.LENGTHS, choice)
    lengths = np.full(len(table), math.nan) if length is None else _lengths(table[length])
    cells = pd.DataFrame({"length": lengths, "place": places})
    answers, score, scale = _answers(table, choice, bool(cells.duplicated().any()))
    answers = answers.join(cells, on="row")
    trial = None if scale == "counts" else _trial(table, choice, {place, score, length})
    if trial is None:
        _need_one_file(table, cells, path)
        answers["trial"] = 0
    else:
        answers["trial"] = table[trial].map(str).to_numpy()[answers["row"]]
    of = "" if plain_name(place) == "position" else f" of {plain_name(place)}"
    said = f"of {plain_name(score)} at WHERE{of}, {scale}"
    where = "shares" if shares else "places"
    return curves(
        answers, path, choice, said, about, plain_name(score), trials=trial is not None, where=where
    )


def of_one_model(table: "pd.DataFrame", choice: Choice) -> "tuple[pd.DataFrame, str]":
    """The rows of one model, by its name where there are several. Raises `InputFileError` where it is open."""
    column = column_of(table, "model", names.MODELS, choice)
    if column is None:
        return table, ""
    models = table[column].map(str)
    known = models.unique().tolist()
    if choice.model is None and len(known) > 1:
        raise InputFileError(
            f"{table.index[0]}: expected one model, got {len(known)} ({shortened(', '.join(known))}): "
            f"posbias.read(path, model={known[0]!r}), or a file with its lines alone"
        )
    model = known[0] if choice.model is None else choice.model
    if model not in known:
        raise InputFileError(f"model: expected one of {shortened(', '.join(known))}, got {shortened(model)}")
    return table[models == model], model


def _place(table: "pd.DataFrame", choice: Choice) -> str:
    """The column of places: positions or depths, never one that may number the rows or the questions."""
    place = column_of(table, "place", names.PLACES, choice)
    depth = None if "place" in choice.columns else column_of(table, "place", names.DEPTHS, choice)
    if place is None and depth is None:
        rows = ", ".join(having(table, names.ROWS))
        raise InputFileError(
            f"{table.index[0]}: expected a column of places, got {rows}, which may number rows or questions; "
            + how_to_name(table.columns, f"place={having(table, names.ROWS)[0]}")
        )
    if place is not None and depth is not None:
        orders = [table[column].map(names.number).rank(method="dense").tolist() for column in (place, depth)]
        if orders[0] != orders[1] and not having(table, names.LENGTHS):
            raise InputFileError(
                f"{table.index[0]}: expected one column of places, got {place} and {depth}, which differ; "
                + how_to_name(table.columns, f"place={place}")
            )
        place = place if orders[0] == orders[1] else depth
    return place or depth or ""


def _answers(table: "pd.DataFrame", choice: Choice, repeated: bool) -> "tuple[pd.DataFrame, str, str]":
    """Each answer's row of the table and score (0 to 1), with the column that has it and what scale that was."""
    import pandas as pd

    counts = None if "score" in choice.columns and "total" not in choice.columns else _counts(table, choice)
    if counts is None:
        score = column_of(table, "score", names.RATES + names.COUNTS, choice)
        if score is None:
            raise InputFileError(
                f"{table.index[0]}: expected a column of scores; {how_to_name(table.columns, 'score=…')}"
            )
        graded = all(having(table, (column,)) for column in GRADED)
        values, scale = scores_of(table[score], choice, graded)
        return pd.DataFrame({"row": np.arange(len(table)), "score": values}), score, scale
    right, total, column = counts
    wrong = (total < 1) | (total % 1 > 0) | (right < 0) | (right > total) | (right % 1 > 0)
    if wrong.any():
        at = int(wrong.argmax())
        raise InputFileError(
            f"{table.index[at]}: {column}: expected a count of right answers, at most the total, got {right[at]:g} of "
            f"{total[at]:g}"
        )
    if repeated and right.max() <= 1 < total.max():
        raise InputFileError(
            f"{table.index[0]}: expected right answers of a total, or one answer in each row, got {column} 0 or 1 "
            f"with a total; {how_to_name(table.columns, f'score={column}')}, with total=… for counts"
        )
    if total.sum() > MOST_ANSWERS:
        raise InputFileError(
            f"{table.index[0]}: expected at most {MOST_ANSWERS:,} answers, got {total.sum():,.0f}"
        )
    draw = np.random.default_rng(0)  # which of the answers were right is not known: in any order
    scores = [draw.permutation(np.arange(of) < some) for some, of in zip(right, total, strict=True)]
    rows = np.repeat(np.arange(len(table)), total.astype(int))
    return pd.DataFrame({"row": rows, "score": np.concatenate(scores).astype(float)}), column, "counts"


def _counts(table: "pd.DataFrame", choice: Choice) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Right answers and all in each row, with the column of the former; None where the table has no counts."""
    for column in having(table, names.COUNTS + names.RATES):
        parts = table[column].map(str).str.fullmatch(r"\s*\d+\s*(?:/|of)\s*\d+\s*")
        if parts.all():
            found = table[column].str.extract(r"(\d+)\D+(\d+)").astype(float).to_numpy()
            return found[:, 0], found[:, 1], column
    total = column_of(table, "total", names.TOTALS, choice)
    count = column_of(table, "score", (), choice) or next(
        iter(having(table, names.COUNTS + names.RIGHT)), None
    )
    wrong = next(iter(having(table, names.WRONG)), None)
    if total is not None and table[total].map(names.number).notna().all():
        all_ = numbers(table[total])
    elif count is not None and wrong is not None:
        all_ = numbers(table[count]) + numbers(table[wrong])
    else:
        return None
    shares = column_of(table, "score", ("score", *names.SHARES), Choice())
    if count is not None and (numbers(table[count]) % 1 == 0).all():
        right = numbers(table[count])
        near = shares is None or abs(scores_of(table[shares], choice)[0] - right / all_).max() < ROUNDED
        if not near:
            raise InputFileError(
                f"{table.index[0]}: expected {shares} to be {count} of {total}, got another number; "
                + how_to_name(table.columns, f"score={shares}")
            )
        return right, all_, count
    column = count or shares
    if column is None:
        return None
    right = scores_of(table[column], choice)[0] * all_
    # what is no share of right answers (a mean F1) has no count
    return (right.round(), all_, column) if (abs(right - right.round()) <= ROUNDED * all_).all() else None


def _trial(table: "pd.DataFrame", choice: Choice, used: set[str | None]) -> str | None:
    """The column that says which rows are of one trial; None where each is of its own."""
    if "trial" in choice.columns:
        return column_of(table, "trial", (), choice)
    for column in having(table, names.TRIALS + names.ROWS):
        if column not in used and 1 < table[column].map(str).nunique() < len(table):
            return column
    return None


def _need_one_file(table: "pd.DataFrame", cells: "pd.DataFrame", path: Path) -> None:
    """Raise `InputFileError` for two files of a folder with one place: of two models or runs, nobody says."""
    files = cells.assign(file=table.index.str.partition(": ").get_level_values(0)).drop_duplicates()
    again = files[files.duplicated(["length", "place"], keep=False)]["file"].unique()
    if len(again) > 1:
        said = shortened(", ".join(Path(file).name for file in again))
        raise InputFileError(
            f"{path}: expected each place in one file, got some in {said}: the path of one needed"
        )


def _lengths(column: "pd.Series") -> np.ndarray:
    """Context lengths, also as 4k."""
    short = column.map(lambda cell: isinstance(cell, str) and cell.strip().lower().endswith("k")).to_numpy(
        bool
    )
    plain = column.map(
        lambda cell: cell.strip()[:-1] if isinstance(cell, str) and cell.strip()[-1:] in "kK" else cell
    )
    return numbers(plain) * np.where(short, 1000.0, 1.0)


def _numbers(table: "pd.DataFrame", path: Path, value: str, choice: Choice, attrs: dict) -> Curves:
    """Signed numbers or a mass: one number for each trial and position."""
    position = column_of(table, "place", names.PLACES + names.ROWS, choice)
    if position is None:
        raise InputFileError(
            f"{path}: expected a column of positions; {how_to_name(table.columns, 'place=…')}"
        )
    trial = _trial(table, choice, {position, value})
    held = table.assign(place=numbers(table[position]), score=numbers(table[value]))
    held = held.assign(trial=0 if trial is None else table[trial].map(str).factorize()[0])
    cells = held.set_index(["trial", "place"])["score"]
    samples = None if cells.index.has_duplicates else cells.unstack().to_numpy()
    if (
        samples is None
        or np.isnan(samples).any()
        or samples.shape[1] < FEWEST_PLACES
        or abs(samples).max() > MOST
    ):
        raise InputFileError(
            f"{path}: {value}: expected one number for each of {held['trial'].nunique()} trials at each position, of "
            f"{FEWEST_PLACES} positions or more, got {len(held)} at {held['place'].nunique()}"
        )
    places = sorted(held["place"].unique().tolist())
    said = f"{PLAIN.name}: {value} at {len(places)} positions, {len(samples)} trials"
    about = {"attrs": attrs | {"places": places, "read_as": said}}
    if value in having(table, names.SIGNED):
        return {None: of_rows(samples, kind="signed", measures=MEASURES, **about)}
    if places != list(np.arange(len(places)) + places[0]) or (samples < 0).any():
        raise InputFileError(f"{path}: {value}: expected numbers >= 0 at every position from first to last")
    try:
        if len(samples) > 1:
            return {None: Profile.from_samples(samples, measures=value, **about)}
        return {None: Profile.from_weights(samples[0], measures=value, **about)}
    except InvalidValueError as error:
        raise InputFileError(f"{path}: {error}") from None


_PLACES = names.PLACES + names.DEPTHS + names.ROWS
_SCORES = names.RATES + names.COUNTS
NEEDLE = Format("needle in a haystack", (names.DEPTHS, names.LENGTHS, _SCORES), read_positions, "kamradt2023")
PLAIN = Format("numbers by position", (_PLACES, _SCORES + names.SIGNED + names.MASSES), read_positions)
