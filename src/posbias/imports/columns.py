"""What a kind of file is; what columns are called (`columns.toml`), and how their cells read as places and scores.

Where two columns may hold the same and differ, neither is taken: `Choice.columns` says which.

Answers by place become profiles of rates: paired where every trial has every place, else dealt into groups. A
trial is what was asked at several places (a question whose document moves); its answers at one place are averaged
first. If every trial has every place, each is a row of the profile's samples. If not, or where nobody knows which
answers belong together, the cells of each place are dealt at random, in equal parts, into as many groups as the
place with the fewest has cells, and a group's means are a row, as far from each other as makes the error of their
mean that of the cells. Either way the curve is the mean of the rows, whatever the order of the file.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, LackingError, wrong
from posbias.core.files import data_table
from posbias.core.tables import Column, Table, bare_name, number, plain_name, unexpected
from posbias.profiles.curves import at_shares
from posbias.profiles.gaps import EQUIVALENCE
from posbias.profiles.places import Places
from posbias.profiles.profile import Profile

NAMES: dict[str, Any] = data_table(__file__)
"""What columns are called, by what they hold."""
WORDS = {word: float(place) for place, words in NAMES.pop("words").items() for word in words}
"""Words for places."""
GRADES: dict[str, float] = NAMES.pop("grades")
"""Letters for scores."""
TEXTS: dict[str, str] = NAMES.pop("texts")
"""By what they hold, patterns of places and lengths in texts."""
MODELS: dict[str, list[str]] = NAMES.pop("models")
"""By writer, the columns next to which each column is a model's."""
REFUSED: list[dict[str, Any]] = NAMES.pop("refused")
"""Files that hold no places: the columns that they have, and what is said."""
INSTEAD: dict[str, list[str]] = NAMES.pop("instead")
"""What is read in place of files of these endings."""
PLACES = NAMES["place"] + NAMES["depth"]
RATES = NAMES["score"] + NAMES["share"] + NAMES["right"] + NAMES["count"]
SCALES = {"share": (0.0, 1.0), "percent": (0.0, 100.0)}
"""What scores count in: what becomes 0, and 1. Others are LOW-HIGH: 1-5 of judges, 0-10 of ROUGE × 10."""
ROLES = ("place", "score", "total", "trial", "length", "model", "scale", "item", "order", "winner", "slot")
"""What `Choice.columns` may name; a scale is one of `SCALES` or LOW-HIGH. The last four are of decisions."""
_OPTION = re.compile(r"\(?[A-Za-z]\)?\.?")
_SCALE = re.compile(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")
_RANGE = re.compile(r"[(\[]?\s*(\d+(?:\.\d+)?)\s*%?\s*(?:-|–|to|,\s)\s*(\d+(?:\.\d+)?)\s*(%?)\s*[)\]]?")
_THOUSANDS = re.compile(r"\d{1,3}(?:[,' \u00a0\u202f]\d{3})+")
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
Curves = dict[float | None, Profile]
"""A profile for each context length; under None where lengths are not known, or all are taken together."""


@dataclass(frozen=True, eq=False)
class Format:
    """Files of one writer: `needs` lists columns that all have, each as the names that it may have.

    `read` makes profiles of the rows of a file or folder; their attribute "read_as" says in a line what they were
    taken for. With `apart` each file of a folder is a task of its own.
    """

    name: str
    needs: tuple[Sequence[str], ...]
    read: Callable[[Table, Path, "Choice"], Curves]
    apart: bool = False

    def missing(self, table: Table) -> list[str]:
        """What of `needs` a table lacks, by the first name of each."""
        return [names[0] for names in self.needs if not having(table, names)]


@dataclass(frozen=True)
class Choice:
    """What of a file is wanted where it has several: a `model`, a context length ("all": their mean), columns."""

    model: str | None = None
    tokens: float | str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        for name, column in self.columns.items():
            if name not in ROLES or (name == "scale" and scale_of(column) is None):
                what = f"one of {', '.join(ROLES)}, and as scale share, percent or LOW-HIGH (as 1-5)"
                raise wrong("columns", what, f"{name}={column}")


ANY = Choice()


@dataclass(frozen=True)
class Answers:
    """Answers of a file by place, and what they were taken for.

    `rows`: trial, place, score (0 to 1) and context length of each; places and lengths that are not known are NaN.
    `said` describes them, with WHERE for their places or stretches. With `trials` one trial's answers belong
    together. `where`: places count as they are, are shares of the context, or shares of a text, where nearby ones
    are alike. `unit` is that of lengths.
    """

    rows: Any
    said: str
    form: str
    model: str | None = None
    measures: str = "accuracy"
    trials: bool = True
    where: Literal["places", "shares", "text"] = "places"
    unit: Literal["tokens", "documents"] = "tokens"


def attributes(form: str, read_as: str, model: str | None = None) -> dict[str, str]:
    """What a profile says of its file: its format, what it was taken for, the model where one is known."""
    return {"format": form, "read_as": f"{form}: {read_as}"} | ({"model": model} if model else {})


def undecided(table: Table, what: str, example: str) -> InputFileError:
    """An error that says what is not decided, the columns of a file, and how to name them."""
    found = ", ".join(map(str, table.columns))
    found = found if len(found) <= 200 else f"{found[:197]}..."
    how = f"name them: --columns {example} (columns= in Python)"
    return InputFileError(f"{file_of(table.index[0])}: expected {what}; its columns are {found}; {how}")


def file_of(where: Any) -> str:
    """The file of a row, by its label."""
    return re.split(r": (?:line|entry) ", str(where))[0]


def scale_of(name: str) -> tuple[float, float] | None:
    """The least and the most of a scale, None for what is none."""
    low, high = map(float, found.groups()) if (found := _SCALE.fullmatch(name)) else SCALES.get(name, (0, 0))
    return (low, high) if low < high else None


def having(table: Table, names: Sequence[str]) -> list[str]:
    """The columns that are called one of these, in the order of the names, else those within objects.

    Of all `RATES` any column among scores counts, if that is what its cells are.
    """
    wanted = [bare_name(name) for name in names]
    for called in (bare_name, _inner_name):
        if found := [column for column in table.columns if called(column) in wanted]:
            return sorted(found, key=lambda column: wanted.index(called(column)))
    if not set(RATES) <= set(names):
        return []
    among = [column for column in table.columns if _begins(column, "scored") or column in NAMES["scored"]]
    return [column for column in among if _graded(table[column]).map(number).notna().all()]


def _begins(column: Any, role: str) -> str | None:
    """With which of the names for objects of this role a column's begins, the longest."""
    starts = [name for name in NAMES[role] if plain_name(column).startswith(f"{name}_")]
    return max(starts, key=len, default=None)


def _inner_name(column: Any) -> str:
    """The bare name within an object, empty for no column of one."""
    start = _begins(column, "within")
    return bare_name(plain_name(column).removeprefix(f"{start}_")) if start else ""


def _graded(column: Column) -> Column:
    """A column of letters for scores as numbers; another as it is."""
    letters = _begins(column.name, "scored") and column.isin(list(GRADES)).all()
    return column.map(GRADES) if letters else column


def unseparated(column: Column) -> Column:
    """Whole numbers written as 4,096 or 4 096 without the sign between thousands."""
    return column.map(
        lambda cell: (
            re.sub(r"\D", "", cell) if isinstance(cell, str) and _THOUSANDS.fullmatch(cell.strip()) else cell
        )
    )


def refuse(column: Column, wrong: Any, what: str) -> None:
    """Raise `InputFileError` that names the first row where something is wrong, if there is one."""
    if wrong.any():
        at = int(np.asarray(wrong).argmax())
        raise unexpected(f"{column.index[at]}: {column.name}", what, column.iloc[at])


def column_of(table: Table, role: str, names: Sequence[str], choice: Choice = ANY) -> str | None:
    """The column that is named for this, or the only one called so (or of several alike the first), or None.

    Raises `InputFileError` for several that differ.
    """
    if (named := choice.columns.get(role)) is not None:
        if (column := next((one for one in table.columns if named in (one, plain_name(one))), None)) is None:
            raise LackingError(str(undecided(table, f"a column {named}", f"{role}=COLUMN")))
        return column
    found = having(table, names)
    if len({tuple(table[column].map(_read)) for column in found}) > 1:
        what = f"one column for {role}, not {', '.join(found)}, which differ"
        raise undecided(table, what, f"{role}={found[0]}")
    return found[0] if found else None


def _read(cell: Any) -> Any:
    return str(cell) if (value := number(cell)) is None else value


def numbers(column: Column) -> Float[np.ndarray, "row"]:
    """The numbers of a column; those with a sign for per cent are divided by 100.

    Raises `InputFileError` where there is none, and where some have the sign and others not.
    """
    found = column.map(number)
    refuse(column, found.isna(), "a finite number")
    values, signs = found.to_numpy(dtype=np.float64), in_percent(column)
    refuse(column, ~signs & (values != 0) & signs.any(), "per cent as in other rows")
    return values / 100 if signs.any() else values


def in_percent(column: Column) -> np.ndarray:
    """Which cells are written with a sign for per cent."""
    return column.map(lambda cell: isinstance(cell, str) and cell.strip().endswith("%")).to_numpy(bool)


def is_called(column: Column, *roles: str) -> bool:
    """Whether a column is called as those of one of these roles; "percent": whether its name says per cent."""
    if "percent" in roles and re.search(r"percent|_pct|_perc$", plain_name(column.name)):
        return True
    return any(bare_name(column.name) in map(bare_name, NAMES.get(role, ())) for role in roles)


def places_of(column: Column) -> tuple[Float[np.ndarray, "row"], bool]:
    """The places of a column, and whether they are shares of the context; of a range its middle.

    Depths up to 1 are shares also where their column is called per cent: a curve over the first 1 % is none.
    Raises `InputFileError` for what is no place, letters (options) and marks for none (-1) among them.
    """
    words = column.map(lambda cell: WORDS.get(str(cell).strip().lower()))
    if words.notna().any():
        refuse(column, words.isna(), "a place among words for places (start, early, middle, late, end, …)")
        return words.to_numpy(np.float64), True
    if column.map(lambda cell: isinstance(cell, str) and bool(_OPTION.fullmatch(cell.strip()))).all():
        what = "places, not letters of options (choices among options are not read)"
        raise unexpected(f"{file_of(column.index[0])}: {column.name}", what, column.iloc[0])
    written = unseparated(column)
    ranges = written.map(lambda cell: isinstance(cell, str) and _RANGE.fullmatch(cell.strip()))
    if ranges.map(bool).all():
        written = ranges.map(lambda found: f"{(float(found[1]) + float(found[2])) / 2}{found[3]}")
    values = numbers(written)
    refuse(column, values < 0, "a place of 0 or more, not a mark for none")
    if not (is_called(column, "depth", "percent") or in_percent(written).any()):
        return values, False
    if values.max() > 1 and not is_called(column, "percent") and values.max() <= 50:
        return values, False
    values = values / 100 if values.max() > 1 else values
    refuse(column, values > 1, "a depth from 0 to 1 or 100 %")
    return values, True


def scores_of(column: Column, choice: Choice, graded: bool = False) -> tuple[Float[np.ndarray, "row"], str]:
    """Scores as shares, and what scale they were taken to be in: what is written, said by `choice`, or called so.

    `graded`: of gkamradt's tester, whose scores are whole, of 1 to 10, or else ROUGE × 10. Raises `InputFileError`
    for no known scale (numbers above 1 alone say none), and naming the row for a number outside it, such as a mark
    for none, or a share among per cent.
    """
    values = numbers(written := _graded(column))
    scale = choice.columns.get("scale") or _scale(written, values, graded)
    refuse(column, (values < 0) & (scale is None), "a score of 0 or more, not a mark for none")
    if scale is None:
        low, high = values.min(), values.max()
        which = "--columns scale=share|percent|LOW-HIGH, such as scale=1-5 (or total=COLUMN for counts)"
        where, got = f"{file_of(column.index[0])}: {column.name}", f"{low:g} to {high:g}; say which: {which}"
        raise wrong(where, "scores of a known scale", got=got, kind=InputFileError)
    low, high = scale_of(scale) or (0.0, 1.0)
    refuse(column, (values < low) | (values > high), f"a score from {low:g} to {high:g}")
    fractions = (values > 0) & (values < 1) & (values.max() > 1)
    if scale == "percent" and "scale" not in choice.columns and not is_called(column, "percent"):
        refuse(
            column,
            fractions,
            f"per cent as in other rows (up to {values.max():g}), or --columns scale=percent",
        )
    said = {"share": "shares", "percent": "per cent"}
    return (values - low) / (high - low), said.get(scale, f"scores of {scale.replace('-', ' to ')}")


def _scale(column: Column, values: np.ndarray, graded: bool) -> str | None:
    """A scale by what is written; None where that does not decide."""
    low, high, whole = values.min(), values.max(), bool((values % 1 == 0).all())
    if in_percent(column).any():
        return "share"
    if is_called(column, "percent"):
        return "percent" if high > 1 or high == 0 else None
    if graded and high <= 10 and not (whole and low == 0 and high <= 1):
        return "1-10" if whole and low >= 1 else "0-10"
    if high <= 1:
        return "share" if low >= 0 else None
    return "percent" if is_called(column, "share") else None


# --- answers by place -----------------------------------------------------------------------------------------


def rates(rows: Table, path: Any, of: Answers, read_as: str = "", length: float = math.nan) -> Profile:
    """The mean score by place, places in their order, with trials or groups of answers as samples.

    `rows` are those of one length, `read_as` what they were taken for. The profile's `places` say what a sample
    is; unpaired answers that are right or wrong are its `counts`. Raises `InputFileError` for a single place.
    """
    trial, names = rows["trial"].map(str).factorize(sort=True)
    cells = rows.assign(trial=trial).groupby(["trial", "place"])["score"].mean().unstack()
    places = [float(place) for place in cells.columns]
    if len(places) < 2:
        raise InputFileError(f"{path}: expected answers at two places or more, got {places[0]:g} alone")
    if not (complete := not cells.isna().to_numpy().any()):
        cells = cells.iloc[np.random.default_rng(0).permutation(len(cells))]
    samples_are = ("trials" if of.trials else "answers") if complete else "groups of answers"
    columns, counts = [cells[place].dropna().to_numpy() for place in cells.columns], None
    if samples_are != "trials" and all(np.isin(column, (0, 1)).all() for column in columns):
        counts = [(int(column.sum()), column.size) for column in columns]
    groups = min(MOST_GROUPS, *(column.size for column in columns))
    samples = np.stack([grouped(column, groups) for column in columns], axis=1)
    about: dict[str, Any] = {
        "rows": samples_are,
        "length": length,
        "unit": of.unit,
        "equivalence": EQUIVALENCE,
    }
    about["trials"] = tuple(names) if samples_are == "trials" else ()
    held = Places({of.measures: samples}, np.array(places), {"model": of.model or ""}, **about)
    return held.profile(counts=counts, attrs=attributes(of.form, read_as, of.model))


def grouped(cells: Float[np.ndarray, "cell"], groups: int) -> Float[np.ndarray, "group"]:
    """Means of so many equal parts of cells, whose mean has the mean's error of the cells.

    A cell that two parts share makes these alike, so that they alone would show less than that error.
    """
    means = at_shares(cells, groups, total=False)
    if groups in (1, cells.size) or means.min() == means.max():
        return means
    wanted, shown = (one.std(ddof=1) / math.sqrt(one.size) for one in (cells, means))
    return means.mean() + (means - means.mean()) * wanted / shown


def dealt(answers: Table) -> Table:
    """Answers of which nobody knows which belong together, as trials that are drawn, whatever their order."""
    answers, draw = answers.sort_values(["place", "score"], kind="stable"), np.random.default_rng(0)
    trials = [draw.permutation(count) for count in answers.groupby("place").size()]
    return answers.assign(trial=np.concatenate(trials))


def curves(of: Answers, path: Path, choice: Choice) -> Curves:
    """A profile for each of the lengths of answers, or for the one that is chosen.

    Answers without a place are left out, and counted. Many lengths that are alike (of single prompts) count as
    their mean. Raises `InputFileError` where no answer has a place, for a length that is not there, and for
    lengths of which some have one place alone where none is chosen.
    """
    import pandas as pd

    table: Table = pd.DataFrame(of.rows, columns=["trial", "place", "score", "length"])
    answers, said = table.astype({"length": float}).dropna(subset=["place"]), of.said
    if answers.empty:
        what = "answers that stand once in their input, or their place in doc"
        raise unexpected(path, what, f"{len(table)} others")
    if left_out := len(table) - len(answers):
        said += f", {left_out} left out whose answer does not stand once in the input"
    lengths = sorted(answers["length"].dropna().unique().tolist())
    single = len(lengths) > 1 and answers.groupby("length")["place"].nunique().min() < 2
    if (single or len(lengths) > STRETCHES) and lengths[-1] <= ALIKE * lengths[0]:
        answers = answers.assign(length=answers["length"].mean())
        lengths, single = [answers["length"].iloc[0]], False
    of_several = ""
    if choice.tokens == "all":
        answers = answers.assign(length=math.nan)
        of_several = f", mean over {len(lengths)} lengths" if len(lengths) > 1 else ""
    elif choice.tokens is not None:
        answers = answers[answers["length"] == choice.tokens]
        if answers.empty:
            known = f"one of {listed(lengths)}" if lengths else "none, as lengths are not known"
            # the number of documents is no length of the context
            error = LackingError if len(lengths) <= (of.unit != "tokens") else InputFileError
            raise error(f"{path}: tokens: expected {known}, got {choice.tokens:g}")
    elif single:
        raise InputFileError(
            f"{path}: expected two places or more at each context length, got one alone at some of {len(lengths)} "
            "lengths; --tokens all (tokens='all') takes the mean over all"
        )
    found: Curves = {}
    for length, part in answers.groupby("length", dropna=False):
        placed, places = stretched(part, of.where, path)
        if not of.trials:
            placed = dealt(placed)
        if math.isfinite(length):
            of_several = f", {length:,.0f} {of.unit} of {listed(lengths)}" if len(lengths) > 1 else ""
        read_as = f"{len(placed)} {said.replace('WHERE', places)}{of_several}"
        key = float(length) if math.isfinite(length) else None
        found[key] = rates(placed, path, of, read_as, float(length))
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
