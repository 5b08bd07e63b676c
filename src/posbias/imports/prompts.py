"""Answers whose place is in the prompt: lm-evaluation-harness, RULER and Lost in the Middle.

Samples of the lm-evaluation-harness (JSON lines of `--log_samples`) have a document that may name the place; if not,
the target is looked for in the prompt. RULER's predictions (Hsieh et al. 2024, `scripts/pred/call_api.py`) have the
input, in which the outputs are looked for. The files of Liu et al. 2024, one for each place, have the documents (or
pairs) in the order of the prompt, one of them gold.
"""

import math
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.arguments import shortened
from posbias.core.tables import bare_name, parsed
from posbias.errors import InputFileError
from posbias.imports import columns as names
from posbias.imports.columns import Choice, having, how_to_name, number, places_of
from posbias.imports.format import Curves, Format
from posbias.imports.trials import curves

if TYPE_CHECKING:
    import pandas as pd

DOCUMENTS, PAIRS = "model_documents", "model_ordered_kv_records"
METRICS = ("acc", "exact_match", "em", "f1", "contains")
"""Metrics of samples that do not list theirs."""
ANY, ALL = (
    {"qa", "squad", "hotpotqa"},
    {"niah", "vt", "cwe", "fwe", "needle", "multikey", "multivalue", "multiquery"},
)
"""Words of a task's name: of its several answers one is enough, or each is a needle of its own."""
OPTION = re.compile(r"\(?(?:[A-Za-z]|\d)\)?\.?")


def read_samples(table: "pd.DataFrame", path: Path, choice: Choice) -> Curves:
    """The first metric (or the one named as score), by place. Of several filters the first counts.

    Metrics whose names are lengths, as RULER's, are those of the length that has one ≥ 0. Raises `InputFileError`.
    """
    import pandas as pd

    table, filtered = _of_one_filter(table)
    docs = pd.DataFrame([_object(cell, where, "doc") for where, cell in table["doc"].items()], table.index)
    named = choice.columns.get("place")
    keys = [named] if named else having(docs, names.PLACES + names.DEPTHS)[:1]
    options = _are_options(table)
    if keys and not named and options and bare_name(keys[0]).endswith(("index", "idx")):
        keys = []  # the number of an option
    if keys and keys[0] not in docs:
        raise InputFileError(f"{path}: expected {keys[0]} in doc, got {shortened(', '.join(docs.columns))}")
    if not keys and options:
        raise InputFileError(
            f"{path}: expected targets to look for in the prompt, got numbers or letters of options: where the answer "
            f"stands is not in the file, unless a key of doc says it (doc has {shortened(', '.join(docs.columns))}; "
            "--columns place=KEY)"
        )
    metric = choice.columns.get("score") or _metric(table)
    rows = []
    placed, shares = places_of(docs[keys[0]]) if keys else (np.full(len(table), math.nan), True)
    for row, place, (where, held) in zip(table.to_dict("records"), placed, docs.iterrows(), strict=True):
        length, score = _score(row, metric, where)
        if math.isnan(score):
            continue
        length = number(held.get("max_length")) if length is None else length
        trial = (_name(where), str(row["doc_id"]))
        found = [(place, score)] if keys else _placed(row, score, where)
        rows += [(trial, one, right, math.nan if length is None else length) for one, right in found]
    said = f"samples, {'metrics by length' if metric is None else metric} at WHERE"
    said += f" by {keys[0]}" if keys else " by where the target stands" + _left_out(rows, path)
    answers = pd.DataFrame(rows, columns=["trial", "place", "score", "length"])
    if not answers["score"].between(0, 1).all():
        raise InputFileError(
            f"{path}: {metric}: expected scores from 0 to 1; {how_to_name(table.columns, 'score=…')}"
        )
    where = "places" if keys and not shares else "shares" if keys else "text"
    about = {"format": LM_EVAL.name} | ({"model": choice.model} if choice.model else {})
    measures = "accuracy" if metric is None else metric
    return curves(
        answers.dropna(subset=["place"]), path, choice, said + filtered, about, measures, where=where
    )


def read_ruler(table: "pd.DataFrame", path: Path, choice: Choice) -> Curves:
    """The share of answers found, by stretch of the input in which they stand, as RULER's own metrics count.

    Of the spellings of a question's answer (qa in the name of the task, which is the file's) any is enough; each
    needle of a list is an answer of its own. An answer is found where the prediction has it, in any case of letters.
    Raises `InputFileError` for several outputs of which neither is known.
    """
    import pandas as pd

    rows = []
    for where, row in zip(table.index, table.to_dict("records"), strict=True):
        text, outputs = _text(row["input"], where, "input"), _texts(row["outputs"], where, "outputs")
        said = _text(row["pred"], where, "pred").lower()
        right = [float(output.lower() in said) for output in outputs]
        if _any_is_enough(outputs, where):
            found = [(_place(outputs, text), max(right))]
        else:
            found = [(_place([output], text), one) for output, one in zip(outputs, right, strict=True)]
        trial = (_name(where), str(row.get("index", where)))
        rows += [((*trial, k), place, score, math.nan) for k, (place, score) in enumerate(found)]
    said = "answers at WHERE by where they stand in the input" + _left_out(rows, path)
    answers = pd.DataFrame(rows, columns=["trial", "place", "score", "length"]).dropna(subset=["place"])
    about = {"format": RULER.name} | ({"model": choice.model} if choice.model else {})
    return curves(answers, path, choice, said, about, where="text")


def read_liu(table: "pd.DataFrame", path: Path, choice: Choice) -> Curves:
    """Accuracy by the place of the gold document or pair, paired by question or key; a length is their number."""
    import pandas as pd

    from posbias.imports.positions import of_one_model

    table, model = of_one_model(table, choice)
    rows = []
    for where, row in zip(table.index, table.to_dict("records"), strict=True):
        in_pairs = isinstance(parsed(row.get(PAIRS)), list)
        listed = parsed(row.get(PAIRS if in_pairs else DOCUMENTS))
        if not isinstance(listed, list):
            raise InputFileError(f"{where}: expected {DOCUMENTS} or {PAIRS} as a list in the prompt's order")
        said = _text(row["model_answer"], where, "model_answer")
        if in_pairs:
            key, value = _text(row.get("key"), where, "key"), _text(row.get("value"), where, "value")
            gold = [pair[:1] == [key] if isinstance(pair, list) else False for pair in listed]
            right = value.lower() in said.lower()
            # lists differ by their pairs, in whatever order
            trial: Any = (key, value, repr(sorted(map(repr, listed))))
        else:
            trial = _text(row.get("question"), where, "question")
            gold = [isinstance(one, dict) and one.get("isgold") is True for one in listed]
            first = plain_answer(said.split("\n")[0])
            right = any(plain_answer(text) in first for text in _texts(row.get("answers"), where, "answers"))
        if sum(gold) != 1:
            raise InputFileError(f"{where}: expected one gold document or pair, got {sum(gold)}")
        rows.append((trial, float(gold.index(True)), float(right), float(len(listed))))
    answers = pd.DataFrame(rows, columns=["trial", "place", "score", "length"])
    sizes = answers["length"].unique()
    said = f"answers to {answers['trial'].nunique()} questions, gold at WHERE of {shortened(sizes.tolist())}"
    if len(sizes) == 1:
        answers["length"] = math.nan
    about = {"format": LIU.name} | ({"model": model} if model else {})
    return curves(answers, path, choice, said, about)


def plain_answer(text: str) -> str:
    """A text without capitals, punctuation, articles and double spaces: what the metric of Liu et al. compares."""
    kept = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _of_one_filter(table: "pd.DataFrame") -> "tuple[pd.DataFrame, str]":
    """The samples of the first filter, and which that is where there are several."""
    filters = table["filter"].map(str) if "filter" in table else table["doc_id"].map(lambda _: "")
    first = filters.iloc[0]
    return table[filters == first], f", filter {shortened(first)}" if filters.nunique() > 1 else ""


def _are_options(table: "pd.DataFrame") -> bool:
    """Whether the targets are all numbers or letters of options, as those of multiple choice are."""
    return bool(table["target"].map(lambda target: OPTION.fullmatch(str(target).strip()) is not None).all())


def _metric(table: "pd.DataFrame") -> str | None:
    """The first metric with a number; None where metrics are named by lengths."""
    listed = parsed(table["metrics"].iloc[0]) if "metrics" in table else METRICS
    listed = [str(name) for name in listed] if isinstance(listed, list | tuple) else []
    if listed and all(name.isdecimal() for name in listed):
        return None
    for name in listed:
        if name in table and number(table[name].iloc[0]) is not None:
            return name
    raise InputFileError(
        f"{table.index[0]}: metrics: expected the name of one with a number, got {shortened(listed)}; "
        + how_to_name(table.columns, "score=…")
    )


def _score(row: dict[str, Any], metric: str | None, where: str) -> tuple[float | None, float]:
    """The length and score of a sample: NaN where it was not measured, −1 in RULER's metrics."""
    if metric is not None:
        score = number(row.get(metric))
        if score is None:
            raise InputFileError(f"{where}: {metric}: expected a number, got {shortened(row.get(metric))}")
        return None, score
    for name in parsed(row["metrics"]):
        score = number(row.get(str(name)))
        if score is not None and score >= 0:
            return float(name), score
    return None, math.nan


def _placed(row: dict[str, Any], score: float, where: str) -> list[tuple[float, float]]:
    """Where in the prompt the targets stand, and what each scored; a place is NaN where that is not known."""
    target, text = parsed(row["target"]), _prompt(row, where)
    targets = [str(one).strip() for one in target] if isinstance(target, list) else [str(target).strip()]
    if len(targets) < 2 or _any_is_enough(targets, where):
        return [(_place(targets, text), score)]
    said = str(parsed(row.get("filtered_resps"))).lower()
    right = [float(one.lower() in said) for one in targets]
    if not math.isclose(float(np.mean(right)), score, abs_tol=0.01):
        # the answer as it was scored is not in the file: all or none is known of each
        right = [score if score in (0, 1) else math.nan] * len(targets)
    return [
        (math.nan if math.isnan(one) else _place([each], text), one)
        for each, one in zip(targets, right, strict=True)
    ]


def _any_is_enough(answers: Sequence[str], where: str) -> bool:
    """Whether several answers are spellings of one, by the name of the task or one being a part of another."""
    task = set(re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[0-9])", _name(where).lower()))
    if len(answers) < 2 or task & ALL:
        return False
    parts = [one for one in answers if any(one.lower() in other.lower() for other in answers if other != one)]
    if task & ANY or parts or len({one.lower() for one in answers}) == 1:
        return True
    raise InputFileError(
        f"{where}: expected one answer, got {len(answers)} ({shortened(', '.join(answers))}): spellings of one, or "
        "needles of which each counts? The file's name says it as RULER's tasks do: qa_… or niah_…"
    )


def _place(spellings: Sequence[str], text: str) -> float:
    """The share of the text before the answer, 0 to below 1; NaN unless a spelling stands there exactly once."""
    for answer in spellings:
        found = (
            [one.start() for one in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", text)] if answer else []
        )
        if len(found) == 1:
            return found[0] / len(text)
    return math.nan


def _left_out(rows: Sequence[tuple[Any, float, float, float]], path: Path) -> str:
    """How many answers have no place, in words. Raises `InputFileError` where none has."""
    missing = sum(math.isnan(place) for _, place, *_ in rows)
    if missing == len(rows):
        raise InputFileError(
            f"{path}: expected answers that stand exactly once in their input, or a key of doc with their place, got "
            f"none of {len(rows)}"
        )
    return (
        f", {missing} of {len(rows)} left out whose answer does not stand once in the input"
        if missing
        else ""
    )


def _prompt(row: dict[str, Any], where: str) -> str:
    """The prompt: the first argument of the first request."""
    given: Any = parsed(row["arguments"])
    for _ in range(2):
        if isinstance(given, dict):
            given = next(iter(given.values()), None)
        elif isinstance(given, list | tuple) and given:
            given = given[0]
    return _text(given, where, "arguments")


def _name(where: str) -> str:
    return Path(where.rpartition(": ")[0] or where).name


def _object(cell: Any, where: str, column: str) -> dict[str, Any]:
    held = parsed(cell)
    if not isinstance(held, dict):
        raise InputFileError(f"{where}: {column}: expected an object, got {shortened(cell)}")
    return held


def _text(cell: Any, where: str, column: str) -> str:
    if not isinstance(cell, str):
        raise InputFileError(f"{where}: {column}: expected a text, got {shortened(cell)}")
    return cell


def _texts(cell: Any, where: str, column: str) -> list[str]:
    held = parsed(cell)
    held = [held] if isinstance(held, str) and held else held
    if not isinstance(held, list) or not held or not all(isinstance(one, str) for one in held):
        raise InputFileError(f"{where}: {column}: expected a list of texts, got {shortened(cell)}")
    return held


LM_EVAL = Format(
    "lm-evaluation-harness samples",
    (("doc_id",), ("doc",), ("target",), ("arguments",)),
    read_samples,
    "gao2024",
    apart=True,
)
RULER = Format(
    "RULER predictions", (("pred",), ("input",), ("outputs",)), read_ruler, "hsieh2024", apart=True
)
LIU = Format("lost-in-the-middle predictions", (("model_answer",), (DOCUMENTS, PAIRS)), read_liu, "liu2024")
