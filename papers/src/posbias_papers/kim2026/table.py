"""The tidy table of simulated models: a row for each model and layer, and one for each of its scores.

The index has the model (`norm`, `anisotropy`, `residual`, `dimension`), the `layer` from 1, and `query` and `key`
from 0, NaN in the rows of layers. Of a layer stand its recency probability, and the standard error that a number
printed from ten million plain samples has; of a score S_ij (j ≤ i) the mean, the step to the next key and the rise
from the first key, and what closed forms say of them. COLUMN_se are standard errors over samples, COLUMN_flaw says
why there is no number. Models drawn with one seed share part of their draws: the error of a difference is taken as
if they did not, which is too large.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from posbias.simulation import RecencyModel, RecencyResult
from posbias_papers.closed_forms.layernorm import ReadingName, SecondLayer, closed_scores

if TYPE_CHECKING:
    import pandas as pd

LEVELS = ("norm", "anisotropy", "residual", "dimension", "layer", "query", "key")
RECORDS = Path(__file__).with_name("records.csv")
"""What was simulated of every model at the paper's effort."""
PRINTED_SAMPLES = 10_000_000
"""Samples behind the paper's numbers."""
SURE = 5.0
"""A score or rise counts as known to differ from 0 beyond this many standard errors."""
KNOWN = 0.05
"""How well a simulated score has to be known for a closed form to be held against it, as a share of itself."""
READINGS: tuple[ReadingName, ...] = ("published", "corrected")
UNKNOWN = f"simulated score known less well than ± {KNOWN:.0%}, more samples needed"
Row = dict[str, Any]
Matrix = np.ndarray
Matrices = dict[str, Matrix]


def setting(model: RecencyModel) -> Row:
    """The columns that say which model a row is of."""
    return {name: getattr(model, name) for name in LEVELS[:4]}


def model_of(place: Any, tokens: int = 10) -> RecencyModel:
    """The model of a row, from the first four levels of its index."""
    norm, anisotropy, residual, dimension = place[:4]
    fields: Row = {"norm": norm, "anisotropy": float(anisotropy), "residual": bool(residual)}
    return RecencyModel(dimension=int(dimension), tokens=tokens, **fields)


def table(results: Mapping[RecencyModel, RecencyResult]) -> "pd.DataFrame":
    """The table of some simulations."""
    return completed(simulated(results))


def recorded(models: Iterable[RecencyModel]) -> "pd.DataFrame":
    """The table of what is on record of some models."""
    import pandas as pd

    levels, rows = list(LEVELS[:4]), _records()
    some = [rows.xs(tuple(setting(one).values()), level=levels, drop_level=False) for one in models]
    frame = pd.concat(some).sort_index()
    frame.attrs["recorded"] = True
    return frame


@functools.cache
def _records() -> "pd.DataFrame":
    import pandas as pd

    return completed(pd.read_csv(RECORDS).set_index(list(LEVELS)).sort_index())


def simulated(results: Mapping[RecencyModel, RecencyResult]) -> "pd.DataFrame":
    """The columns that are simulated."""
    import pandas as pd

    rows = [row for model, result in results.items() for row in _simulated(model, result)]
    return pd.DataFrame(rows).set_index(list(LEVELS)).sort_index()


def _simulated(model: RecencyModel, result: RecencyResult) -> Iterator[Row]:
    about = setting(model) | {"n": result.samples}
    parts = {"score": result.mean_scores, "step": result.steps, "rise": result.rises}
    plain = result.plain_recency_probability
    for layer, probability in enumerate(result.recency_probability, start=1):
        place = about | {"layer": layer, "query": math.nan, "key": math.nan}
        printed = plain[layer - 1].se * math.sqrt(result.samples / PRINTED_SAMPLES)
        yield place | _number("recency", probability.value, probability.se) | {"printed_se": printed}
        for i, j in zip(*np.tril_indices(model.tokens), strict=True):
            row: Row = {"layer": layer, "query": float(i), "key": float(j)}
            for name, part in parts.items():
                if j < i or name == "score":
                    row |= _number(name, part.value[layer - 1][i, j], part.se[layer - 1][i, j])
            yield about | row


def _number(name: str, value: Any, error: Any) -> Row:
    return {name: float(value), f"{name}_se": float(error)}


# --- what is computed of it --------------------------------------------------------------------------------


def completed(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The same with the columns that are computed."""
    import pandas as pd

    rows = []
    for place, group in frame.groupby(level=list(LEVELS[:5]), sort=False):
        wide: Any = group.dropna(subset=["score"]).droplevel(list(LEVELS[:5])).unstack("key")
        *_, layer = levels = cast("tuple[Any, ...]", place)
        tokens = len(wide)
        model = model_of(levels, tokens)
        parts = ("score", "score_se", "step", "step_se", "rise", "rise_se")
        known: Matrices = {name: wide[name].to_numpy() for name in parts}
        columns = _of_rows(known)
        if layer == 2:
            columns |= _known_steps(model, known) | _scores_off(model, known)
            columns |= {} if model.norm == "none" else _key_factors(model, known)
        for i, j in zip(*np.tril_indices(tokens), strict=True):
            row = {name: column[i, j] for name, column in columns.items() if np.isfinite(column[i, j])}
            rows.append(dict(zip(LEVELS, (*levels, float(i), float(j)), strict=True)) | row)
    frame = frame.join(pd.DataFrame(rows).set_index(list(LEVELS)))
    for name in frame.columns.intersection([f"{reading}_score" for reading in READINGS]):
        if f"{name}_off" not in frame:  # no score is known well enough
            frame[f"{name}_off"] = math.nan
        lacking = frame[name].notna() & frame[f"{name}_off"].isna()
        frame.loc[lacking, f"{name}_off_flaw"] = UNKNOWN
    return frame


def _of_rows(known: Matrices) -> Matrices:
    """`rise_share`: the rise as a share of the row's mean; `beyond_first`: S_ij of the last query less that of the
    first query that has a key so far away."""
    score, se = known["score"], known["score_se"]
    last = len(score) - 1
    level = np.array([score[i, :i].mean() if i else np.nan for i in range(last + 1)])[:, None]
    inner = np.where(np.arange(last + 1) > 0, 1.0, np.nan)
    columns = {"rise_share": known["rise"] / level * inner, "rise_share_se": known["rise_se"] / abs(level)}
    beyond, error = (np.full_like(score, np.nan) for _ in range(2))
    beyond[last, 1:last] = score[last, 1:last] - score[last - 1 : 0 : -1, 0]
    error[last, 1:last] = np.hypot(se[last, 1:last], se[last - 1 : 0 : -1, 0])
    return columns | {"beyond_first": beyond, "beyond_first_se": error}


def _known_steps(model: RecencyModel, known: Matrices) -> Matrices:
    """`known_step`: the step as simulated, or, of a model whose draws cannot tell it, in closed form.

    At α = 0 means rise by some e^−2√d, and rare inputs make much of that: where the least rise is not `SURE`
    standard errors, draws say nothing. The closed form is that of many dimensions, of which Theorem 1 and the
    propositions speak; simulations agree with it where they see the rise (`posbias_papers.statements`).
    """
    place = np.tril_indices(model.tokens, -1)
    steps, errors = known["step"][place], known["step_se"][place]
    with np.errstate(invalid="ignore", divide="ignore"):
        least_sure = errors[np.argmin(steps / errors)]
    rises = np.full_like(known["step"], np.nan)
    shares = np.expm1(np.diff(SecondLayer.of(model, "corrected").log_rise))
    rises[:, :-1] = closed_scores(model, "corrected")[:, :-1] * shares
    rises[np.triu_indices(model.tokens, -1)] = np.nan
    if np.nanmin(rises) < SURE * least_sure:
        return {"known_step": rises, "known_step_se": rises * 0.0}
    return {"known_step": known["step"], "known_step_se": known["step_se"]}


def _scores_off(model: RecencyModel, known: Matrices) -> Matrices:
    """`READING_score_off`: by which share a form is off the score that the last query gives the key before it."""
    place = np.zeros_like(known["score"], dtype=bool)
    place[-1, -2] = True
    score, se = known["score"], known["score_se"]
    with np.errstate(invalid="ignore", divide="ignore"):
        shown = place & (se < KNOWN * np.abs(score))
        columns: Matrices = {}
        for reading in READINGS:
            form = closed_scores(model, reading)
            columns[f"{reading}_score"] = np.where(place, form, np.nan)
            columns[f"{reading}_score_off"] = np.where(shown, form / score - 1.0, np.nan)
            columns[f"{reading}_score_off_se"] = np.where(shown, np.abs(form / score**2) * se, np.nan)
    return columns


def _key_factors(model: RecencyModel, known: Matrices) -> Matrices:
    """h(j) and h(j)/h(0) in both readings, simulated as S_ij/S_i0 of the last query i, and how far forms are off.

    Simulated only where S_i0 is `SURE` standard errors from 0; its error is an upper bound: the errors of
    S_ij − S_i0 and S_i0 are added.
    """
    last = model.tokens - 1
    lines: Matrices = {}
    rise, rise_se = known["rise"][last], known["rise_se"][last]
    first, first_se = known["score"][last, 0], known["score_se"][last, 0]
    if abs(first) > SURE * first_se:
        lines["ratio"] = 1.0 + rise / first
        lines["ratio_se"] = np.abs(rise_se / first) + np.abs(rise / first**2) * first_se
    for reading in READINGS:
        form = SecondLayer.of(model, reading)
        ratio = np.exp(form.log_rise)
        lines[f"{reading}_factor"] = form.keys
        lines[f"{reading}_ratio"] = ratio
        lines[f"{reading}_ratio_step"] = np.append(np.diff(ratio), np.nan)
        if "ratio" in lines:
            truth, error = lines["ratio"] - 1.0, lines["ratio_se"]
            truth = np.where(np.abs(truth) > SURE * error, truth, np.nan)
            lines[f"{reading}_ratio_off"] = (ratio - 1.0) / truth - 1.0
            lines[f"{reading}_ratio_off_se"] = np.abs((ratio - 1.0) / truth**2) * error
    columns = {name: np.full((model.tokens, model.tokens), np.nan) for name in lines}
    for name, line in lines.items():
        columns[name][last] = line
    return columns
