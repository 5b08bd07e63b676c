"""What columns are called, by what they hold, and how their cells read as places and scores.

Names count in any case, with any signs between words, and with words for a mean or per cent
(`posbias.core.tables.bare_name`): "Mean Accuracy (%)" is accuracy. Where two columns may hold the same and differ,
neither is taken: `Choice.columns` says which.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.arguments import shortened
from posbias.core.tables import bare_name, number, plain_name
from posbias.errors import InputFileError, InvalidValueError

if TYPE_CHECKING:
    import pandas as pd

_OF = "gold answer needle target key fact evidence relevant doc document gold_doc gold_document passage chunk token"
PLACES = (
    "position",
    "gold_position",
    *("pos", "place", "offset", "location", "gold_at", "insert_position", "insertion_position"),
    *(f"{of}_{noun}" for of in _OF.split() for noun in ("position", "pos", "place", "offset", "location")),
    *(f"{of}_{noun}" for of in _OF.split() if of != "answer" for noun in ("index", "idx")),
)
DEPTHS = (
    "depth_percent",
    *("document_depth", "depth", "insertion", "needle_depth", "insertion_depth", "context_depth"),
    *("relative_position", "relative_depth", "depth_ratio", "depth_fraction", "depth_share"),
)
ROWS = ("index", "idx", "id", "row")
"""Columns that may number places, or rows, or questions."""
LENGTHS = (
    *("context_length", "context_size", "context_len", "context_tokens", "length", "tokens", "n_tokens"),
    *("num_tokens", "prompt_length", "prompt_tokens", "input_length", "sequence_length", "seq_length"),
    *("seq_len", "max_length", "haystack_length", "context_window", "num_docs", "n_docs", "num_documents"),
    *("n_documents",),
)
SHARES = ("accuracy", "acc", "rate", "exact_match", "em", "recall", "f1", "hit_rate", "success_rate")
SHARES += ("rouge", "rouge1", "rouge2", "rougel")
"""Scores that above 1 can only be per cent."""
RIGHT = (
    "correct",
    "is_correct",
    "found",
    "is_found",
    "hit",
    "success",
    "passed",
    "contains",
    "match",
    "right",
)
RIGHT += ("retrieved", "retrieved_needles_check")
"""Scores of one answer; with a total, counts."""
RATES = ("score", *SHARES, *RIGHT)
COUNTS = ("n_correct", "num_correct", "correct_count", "correct_answers", "hits", "n_hits", "num_hits")
COUNTS += ("successes", "n_found", "num_found")
TOTALS = ("total", "n", "count", "total_count", "n_total", "num_total", "trials", "attempts", "samples")
TOTALS += ("n_samples", "num_samples", "questions", "n_questions", "num_questions")
WRONG = ("incorrect", "wrong", "misses", "failures", "n_wrong", "n_incorrect", "num_wrong")
SIGNED = ("attribution", "saliency", "relevance")
MASSES = ("influence", "weight", "mass")
MODELS = ("model", "model_name", "model_id")
TRIALS = (
    *("question_id", "query_id", "example_id", "doc_id", "item_id", "trial_id", "sample_id", "question"),
    *(
        "query",
        "trial",
        "example",
        "item",
        "case",
        "sample",
        "id",
        "prompt_id",
        "prompt",
        "run",
        "seed",
        "version",
    ),
)
"""What was asked at several places; the first that is neither the same in all rows nor another in each."""
WORDS = {
    **dict.fromkeys("start beginning begin first front top head".split(), 0.0),
    **dict.fromkeys("middle mid center centre".split(), 0.5),
    **dict.fromkeys("end last final back bottom tail".split(), 1.0),
}
"""Words for places."""
LETTER = re.compile(r"\(?[A-Za-z]\)?\.?")
"""An option of multiple choice."""
SCALES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "share": lambda numbers: numbers,
    "percent": lambda numbers: numbers / 100,
    "1-10": lambda numbers: (numbers - 1) / 9,
    "0-10": lambda numbers: numbers / 10,
}
"""What scores count in; ROUGE × 10 is 0-10."""
TELLING = ("place", "score", "total", "trial", "length", "model", "scale")
"""What `Choice.columns` may name; a scale is one of `SCALES`."""


@dataclass(frozen=True)
class Choice:
    """What of a file is wanted where it has several: a `model`, a context length ("all": their mean), columns."""

    model: str | None = None
    tokens: float | str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        for name in self.columns:
            if name not in TELLING:
                raise InvalidValueError(
                    f"columns: expected {', '.join(TELLING)} as names, got {shortened(name)}"
                )
        if self.columns.get("scale", "share") not in SCALES:
            given = shortened(self.columns["scale"])
            raise InvalidValueError(f"columns: expected scale={'|'.join(SCALES)}, got scale={given}")


def how_to_name(columns: Sequence[Any], example: str) -> str:
    """The columns of a file, and how to say what they hold."""
    found = ", ".join(map(str, columns))
    found = found if len(found) <= 200 else f"{found[:197]}..."
    return f"its columns are {found}; name them: --columns {example} (columns= in Python)"


def having(table: "pd.DataFrame", names: Sequence[str]) -> list[str]:
    """The columns that are called one of these, in the order of the names."""
    by_name: dict[str, list[str]] = {}
    for column in table.columns:
        by_name.setdefault(bare_name(column), []).append(column)
    return list(dict.fromkeys(column for name in names for column in by_name.get(bare_name(name), ())))


def column_of(table: "pd.DataFrame", role: str, names: Sequence[str], choice: Choice) -> str | None:
    """The column that is named for this, or the only one called so (or of several alike the first), or None.

    Raises `InputFileError` for several that differ.
    """
    if (named := choice.columns.get(role)) is not None:
        for column in table.columns:
            if named in (column, plain_name(column)):
                return column
        raise InputFileError(
            f"{_file(table)}: expected a column {shortened(named)}, got {shortened(', '.join(table.columns))}"
        )
    found = having(table, names)
    texts = [table[column].map(str).tolist() for column in found]
    if any(one != texts[0] for one in texts[1:]):
        raise InputFileError(
            f"{_file(table)}: expected one column for {role}, got {', '.join(found)}, which differ; "
            + how_to_name(table.columns, f"{role}={found[0]}")
        )
    return found[0] if found else None


def numbers(column: "pd.Series") -> Float[np.ndarray, "row"]:
    """The numbers of a column; those with a sign for per cent are divided by 100.

    Raises `InputFileError` where there is none, and where some have the sign and others not.
    """
    found = column.map(number)
    if found.isna().any():
        at = found.isna().argmax()
        raise InputFileError(
            f"{column.index[at]}: {column.name}: expected a finite number, got {shortened(column.iloc[at])}"
        )
    values = found.to_numpy(dtype=np.float64)
    signs = in_percent(column)
    if signs.any() and not (signs | (values == 0)).all():
        at = int((signs | (values == 0)).argmin())
        raise InputFileError(
            f"{column.index[at]}: {column.name}: expected per cent as elsewhere, got {column.iloc[at]}"
        )
    return values / 100 if signs.any() else values


def in_percent(column: "pd.Series") -> np.ndarray:
    """Which cells are written with a sign for per cent."""
    return column.map(lambda cell: isinstance(cell, str) and cell.strip().endswith("%")).to_numpy(bool)


def places_of(column: "pd.Series") -> tuple[Float[np.ndarray, "row"], bool]:
    """The places of a column, and whether they are shares of the context.

    Depths up to 1 are shares also where their column is called per cent: a curve over the first 1 % is none.
    Raises `InputFileError` for what is no place, letters (options) among them.
    """
    words = column.map(lambda cell: WORDS.get(cell.strip().lower()) if isinstance(cell, str) else None)
    if words.notna().all():
        return words.to_numpy(np.float64), True
    letters = column.map(lambda cell: isinstance(cell, str) and bool(LETTER.fullmatch(cell.strip())))
    if letters.all():
        raise InputFileError(
            f"{_file(column)}: expected places, got letters of options ({column.name}: {column.iloc[0]}, …): choices "
            "among options are not read"
        )
    values, depth = numbers(column), bare_name(column.name) in map(bare_name, DEPTHS)
    named = "percent" in plain_name(column.name) or plain_name(column.name).endswith(("_pct", "_perc"))
    if not (depth or named or in_percent(column).any()):
        return values, False
    if values.max() > 1 and (named or values.max() > 50):
        values = values / 100
    elif values.max() > 1:
        return values, False
    if values.min() < 0 or values.max() > 1:
        raise InputFileError(
            f"{_file(column)}: {column.name}: expected depths from 0 to 1 or 100 %, got some from "
            f"{values.min():.4g} to {values.max():.4g}"
        )
    return values, True


def scores_of(column: "pd.Series", choice: Choice, graded: bool = False) -> tuple[np.ndarray, str]:
    """Scores as shares, and what scale they were taken to be in: what is written, said by `choice`, or called so.

    `graded`: of gkamradt's tester, whose scores are whole, of 1 to 10, or else ROUGE × 10. Raises `InputFileError`
    for no known scale.
    """
    values, name = numbers(column), plain_name(column.name)
    low, high = float(values.min()), float(values.max())
    scale = choice.columns.get("scale") or _scale(values, name, in_percent(column).any(), graded)
    if scale is not None:
        values = SCALES[scale](values)
        if 0 <= values.min() and values.max() <= 1:
            return values, {"share": "shares", "percent": "per cent"}.get(scale, f"scores of {scale}")
    raise InputFileError(
        f"{_file(column)}: {column.name}: expected shares (0 to 1), per cent, or whole scores of 1 to 10, got numbers "
        f"from {low:g} to {high:g}; say which: --columns scale={'|'.join(SCALES)}, or the column of totals: "
        "--columns total=…"
    )


def _scale(values: np.ndarray, name: str, signs: bool, graded: bool) -> str | None:
    """A scale by what is written; None where that does not decide."""
    low, high, whole = values.min(), values.max(), bool((values == values.round()).all())
    named = "percent" in name or name.endswith(("_pct", "_perc"))
    if signs or (named and (high > 1 or high == 0)):
        return "share" if signs else "percent"
    if named:
        return None
    if graded and high <= 10 and not (whole and low == 0 and high <= 1):
        return "1-10" if whole and low >= 1 else "0-10"
    if high <= 1:
        return "share"
    if bare_name(name) in map(bare_name, SHARES):
        return "percent"
    if bare_name(name) in map(bare_name, (*RIGHT, *COUNTS)):
        return None
    if whole and low >= 1 and high <= 10:
        return "1-10"
    return "percent" if high > 10 else None


def _file(held: "pd.DataFrame | pd.Series") -> str:
    return str(held.index[0]).partition(": line ")[0].partition(": entry ")[0]
