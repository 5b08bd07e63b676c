"""Answers whose place is in the prompt: lm-evaluation-harness, RULER and Lost in the Middle.

Samples of the lm-evaluation-harness (JSON lines of `--log_samples`) have a document that may name the place; if
not, the target is looked for in the prompt. RULER's predictions (Hsieh et al. 2024, `scripts/pred/call_api.py`)
have the input, in which the outputs are looked for. The files of Liu et al. 2024, one for each place, have the
documents (or pairs) in the order of the prompt, one of them gold.
"""

import math
import re
import string
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posbias.core.matching import word_places
from posbias.core.tables import Column, Table, number, parsed, unexpected
from posbias.imports.columns import (
    ENOUGH,
    NAMES,
    Answers,
    Choice,
    Curves,
    Format,
    curves,
    file_of,
    having,
    places_of,
    undecided,
)
from posbias.imports.positions import of_one_model

DOCUMENTS, PAIRS = "model_documents", "model_ordered_kv_records"
NO_METRIC = "bypass"
"""What samples of `--predict_only` have in place of a metric."""
METRICS = ["acc", "exact_match", "em", "f1", "contains"]
"""Metrics of samples that do not list theirs."""
ANY_OF = {"qa", "squad", "hotpotqa"}
"""Words in the name of a task: of its several answers one is enough."""
EACH_OF = {"niah", "vt", "cwe", "fwe", "needle", "multikey", "multivalue", "multiquery"}
"""Words in the name of a task: each of its several answers counts."""
OPTION = re.compile(r"\(?(?:[A-Za-z]|\d)\)?\.?")
Placed = tuple[Any, float, float, Any]
"""Trial, place (NaN: not known), score and context length of an answer."""


def read_samples(table: Table, path: Path, choice: Choice) -> Curves:
    """The first metric (or the one named as score), by place. Of several filters the first counts.

    Metrics whose names are lengths, as RULER's, are those of the length that has one ≥ 0. Raises `InputFileError`.
    """
    import pandas as pd

    filters = table["filter"].map(str) if "filter" in table else table["doc_id"].map(lambda _: "")
    first = table[filters == filters.iloc[0]]
    said = f", filter {filters.iloc[0]}" if len(first) < len(table) else ""
    docs = pd.DataFrame([_cell(row, "doc", where, dict) for where, row in first.iterrows()], first.index)
    metric = choice.columns.get("score") or _metric(first)
    key = _key(first, docs, choice)
    places, shares = (np.full(len(first), math.nan), True) if key is None else places_of(docs[key])
    rows: list[Placed] = []
    for (where, row), place, common in zip(first.iterrows(), places, _lengths(docs), strict=True):
        name, score, length = _score(row, metric)
        if score is None:
            raise unexpected(f"{where}: {name}", "a number", row.get(name))
        if metric is None and score < 0:
            continue  # RULER's mark for a length that was not measured
        if not 0 <= score <= 1:
            raise unexpected(f"{where}: {name}", "a score from 0 to 1 (--columns score=METRIC)", f"{score:g}")
        length = common if length is None else length
        answers = _placed(row, score, where) if key is None else [(place, score)]
        rows += [(str(row["doc_id"]), place, score, length) for place, score in answers]
    by = "where the target stands" if key is None else key
    said = f"samples, {metric or 'metrics by length'} at WHERE by {by}{said}"
    where = "text" if key is None else "shares" if shares else "places"
    read = Answers(rows, said, LM_EVAL.name, choice.model, metric or "accuracy", where=where)
    return curves(read, path, choice)


def read_ruler(table: Table, path: Path, choice: Choice) -> Curves:
    """The share of answers found, by stretch of the input in which they stand, as RULER's own metrics count.

    Of the spellings of a question's answer (qa in the name of the task, which is the file's) any is enough; each
    needle of a list is an answer of its own. An answer is found where the prediction has it, in any case of
    letters. Raises `InputFileError` for several outputs of which neither is known.
    """
    rows: list[Placed] = []
    for (where, row), length in zip(table.iterrows(), _lengths(table), strict=True):
        text = _cell(row, "input", where)
        said = unicodedata.normalize("NFKC", _cell(row, "pred", where)).lower()
        for place, spellings in enumerate(_answers(_cell(row, "outputs", where, list), where)):
            right = any(unicodedata.normalize("NFKC", one).lower() in said for one in spellings)
            trial = (str(row.get("index", where)), place)
            rows.append((trial, _place(spellings, text), float(right), length))
    said = "answers at WHERE by where they stand in the input"
    return curves(Answers(rows, said, RULER.name, choice.model, where="text"), path, choice)


def read_liu(table: Table, path: Path, choice: Choice) -> Curves:
    """Accuracy by the place of the gold document or pair, paired by question or key; a length is their number."""
    table, model = of_one_model(table, choice)
    rows: list[Placed] = []
    for where, row in table.iterrows():
        in_pairs = isinstance(parsed(row.get(PAIRS)), list)
        column = PAIRS if in_pairs else DOCUMENTS
        listed = parsed(row.get(column))
        listed = listed if isinstance(listed, list) else []
        said = _cell(row, "model_answer", where)
        if in_pairs:
            key, value = _cell(row, "key", where), _cell(row, "value", where)
            gold = [isinstance(pair, list) and pair[:1] == [key] for pair in listed]
            right = value.lower() in said.lower()
            # lists differ by their pairs, in whatever order
            trial: Any = (key, value, repr(sorted(map(repr, listed))))
        else:
            trial = _cell(row, "question", where)
            gold = [isinstance(one, dict) and one.get("isgold") is True for one in listed]
            answer = plain_answer(said.split("\n")[0])
            right = any(plain_answer(text) in answer for text in _cell(row, "answers", where, list))
        if sum(gold) != 1:
            raise unexpected(f"{where}: {column}", "a list with one gold", sum(gold))
        rows.append((trial, float(gold.index(True)), float(right), float(len(listed))))
    sizes, trials = sorted({row[3] for row in rows}), len({row[0] for row in rows})
    said = f"answers to {trials} questions, gold at WHERE of {' or '.join(f'{size:g}' for size in sizes)}"
    return curves(Answers(rows, said, LIU.name, model, unit="documents"), path, choice)


def plain_answer(text: str) -> str:
    """A text without capitals, punctuation, articles and double spaces: what the metric of Liu et al. compares."""
    kept = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _key(table: Table, docs: Table, choice: Choice) -> str | None:
    """The key of documents that says where the answer stands; None where the target is to be looked for.

    Raises `InputFileError` where there is none and targets are numbers or letters of options.
    """
    key = choice.columns.get("place") or next(iter(having(docs, NAMES["place"] + NAMES["depth"])), None)
    options = table["target"].map(lambda target: OPTION.fullmatch(str(target).strip()) is not None).all()
    if options and "place" not in choice.columns and key is not None and re.search("(index|idx)$", key):
        key = None  # it may be the number of the right option
    if key is None and options:
        why = "targets are numbers or letters of options (choices among options are not read)"
        raise undecided(docs, f"places in doc, as {why}", "place=KEY")
    if key is not None and key not in docs:
        raise undecided(docs, f"a key {key} of doc", "place=KEY")
    return key


def _metric(table: Table) -> str | None:
    """The first metric with a number; None where metrics are named by lengths."""
    listed = parsed(table["metrics"].iloc[0]) if "metrics" in table else METRICS
    listed = [str(name) for name in listed] if isinstance(listed, list) else []
    if listed and all(name.isdecimal() for name in listed):
        return None
    known = [name for name in listed if name != NO_METRIC]
    found = [name for name in known if name in table and number(table[name].iloc[0]) is not None]
    if not found:
        raise undecided(table, "a metric with a number", "score=METRIC")
    return found[0]


def _lengths(table: Table) -> list[float]:
    """The context length of each row; NaN where lengths are those of single texts, not of several."""
    for column in having(table, ["max_length", *NAMES["length"]]):
        lengths = table[column].map(number)
        if lengths.notna().all() and lengths.min() > 0 and lengths.value_counts().min() >= ENOUGH:
            return lengths.tolist()
    return [math.nan] * len(table)


def _score(row: Column, metric: str | None) -> tuple[str, float | None, float | None]:
    """The name and value of a sample's metric and, where metrics are named by lengths, the length."""
    if metric is not None:
        return metric, number(row.get(metric)), None
    scores = {str(name): number(row.get(str(name))) for name in parsed(row["metrics"])}
    measured = [name for name, score in scores.items() if score is not None and score >= 0]
    return (measured[0], scores[measured[0]], float(measured[0])) if measured else ("metrics", -1.0, None)


def _placed(row: Column, score: float, where: Any) -> list[tuple[float, float]]:
    """Where in the prompt the targets stand, and what each scored; a place is NaN where that is not known."""
    target, prompt = parsed(row["target"]), parsed(row["arguments"])
    for _ in range(2):  # the first argument of the first request
        if isinstance(prompt, dict | list) and prompt:
            prompt = next(iter(prompt.values())) if isinstance(prompt, dict) else prompt[0]
    if not (prompt := _text_of(prompt)):
        raise unexpected(f"{where}: arguments", "a prompt's text", row["arguments"])
    targets = [str(one).strip() for one in (target if isinstance(target, list) else [target])]
    if len(answers := _answers(targets, where)) < 2:
        return [(_place(targets, prompt), score)]
    said = str(row.get("filtered_resps")).lower()
    right = [float(one.lower() in said) for one in targets]
    if not math.isclose(float(np.mean(right)), score, abs_tol=0.01):
        # the answer as it was scored is not in the file: 0 or 1 holds of each, another score of none
        right = [score if score in (0, 1) else math.nan] * len(targets)
    found = zip(answers, right, strict=True)
    return [(math.nan if math.isnan(hit) else _place(one, prompt), hit) for one, hit in found]


def _text_of(prompt: Any) -> str:
    """The text of a prompt, of its messages (as they are, or in JSON) and of their parts; empty without any."""
    prompt = parsed(prompt) if isinstance(prompt, str) and '"content"' in prompt else prompt
    if isinstance(prompt, list):
        return "\n".join(filter(None, map(_text_of, prompt)))
    if isinstance(prompt, dict):
        return _text_of(prompt.get("content", prompt.get("text", "")))
    return prompt if isinstance(prompt, str) else ""


def _answers(texts: Sequence[str], where: Any) -> list[Sequence[str]]:
    """Each answer as its spellings: several texts are those of one by the name of the task, or where one is a part
    of another."""
    task = set(re.split(r"[^a-z]+", Path(file_of(where)).name.lower()))
    if len(texts) < 2 or task & EACH_OF:
        return [[one] for one in texts]
    lower = sorted({one.lower() for one in texts}, key=len)
    if task & ANY_OF or len(lower) == 1 or any(lower[0] in other for other in lower[1:]):
        return [texts]
    what = "one answer, or a file named by its task: qa_… (one spelling is enough) or niah_… (each counts)"
    raise unexpected(where, what, ", ".join(texts))


def _place(spellings: Sequence[str], text: str) -> float:
    """The share of the text before the answer, 0 to below 1; NaN unless a spelling stands there exactly once."""
    plain = unicodedata.normalize("NFKC", text)
    for answer in filter(None, spellings):
        for form in (str, str.casefold):
            within = form(plain)
            places = [*word_places(within, form(unicodedata.normalize("NFKC", answer)))]
            if len(places) == 1:
                return places[0] / len(within)
    return math.nan


def _cell(row: Column, column: str, where: Any, kind: type = str) -> Any:
    """A text, an object or a list of texts, also written as text. Raises `InputFileError` for anything else."""
    held = row.get(column) if kind is str else parsed(row.get(column))
    held = [held] if kind is list and isinstance(held, str) and held else held
    if not isinstance(held, kind) or (kind is list and {*map(type, held)} != {str}):
        what = {str: "a text", dict: "an object", list: "a list of texts"}[kind]
        raise unexpected(f"{where}: {column}", what, row.get(column))
    return held


_SAMPLES = (("doc_id",), ("doc",), ("target",), ("arguments",))
_PREDICTIONS = (("pred",), ("input",), ("outputs",))
LM_EVAL = Format("lm-evaluation-harness samples", _SAMPLES, read_samples, apart=True)
RULER = Format("RULER predictions", _PREDICTIONS, read_ruler, apart=True)
LIU = Format("lost-in-the-middle predictions", (("model_answer",), (DOCUMENTS, PAIRS)), read_liu)
