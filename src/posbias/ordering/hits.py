"""Retrieved documents with their scores, as retrievers and rerankers write them, to be put in order.

JSON lines, JSON, CSV or runs of TREC. Texts and scores may stand within others (LlamaIndex has a node, LangChain
and Pinecone metadata, Cohere results with documents), in lists by column (Chroma), or as [document, score]. What a
field is called says what it holds (`hits.toml`): a larger distance is worse. Stores list the best first; a score
that rises with the list may be a distance (LangChain's FAISS, Qdrant's Euclid), and is asked about.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError, wrong
from posbias.core.files import data_table, read_text
from posbias.core.tables import Table, in_utf8, number, plain_name, read_table, table_of, unexpected

Scale = Literal["score", "similarity", "distance", "logit", "rank"]
Numbers = Float[np.ndarray, "document"]
NAMES: dict[str, list[str]] = data_table(__file__)
"""What fields are called, by what they hold."""
SCORES = [name for kind in ("reranked", "unscaled", "score", "logit", "distance") for name in NAMES[kind]]
"""What scores are called, a reranker's before others'."""
FEWEST = 3
"""Documents whose scores say whether they rise or fall with the list."""
_KNOWN = {*SCORES, *NAMES["rank"], *NAMES["text"]}
_TREC = re.compile(r"(?P<query_id>\S+)\s+\w+\s+(?P<id>\S+)\s+(?P<rank>\d+)\s+(?P<score>\S+)(\s+\S+)?")


@dataclass(frozen=True)
class Hits:
    """The documents of a file: a weight and a length for each, the lengths' `unit`, how scores became weights.

    `lengths` and `unit` are None where neither lengths nor texts are known; `note` says what scores were taken to
    be where that is not plain, and which query. `lines`: those of the file, where each has one document.
    """

    path: Path
    table: Table
    scores: Numbers
    lengths: Numbers | None
    unit: Literal["tokens", "characters"] | None
    note: str
    lines: Sequence[str] = ()

    def text(self, order: Sequence[int]) -> str:
        """The documents in this order, as a file of the same kind has them: lines as they are."""
        suffix = Path(self.path.name.lower().removesuffix(".gz")).suffix
        if suffix in (".csv", ".tsv"):
            return self.table.iloc[list(order)].to_csv(index=False, sep="," if suffix == ".csv" else "\t")
        rows = self.table.to_dict("records")
        if suffix == ".json":
            return json.dumps([rows[place] for place in order], ensure_ascii=False, indent=1) + "\n"
        lines = self.lines or [json.dumps(row, ensure_ascii=False) for row in rows]
        return "".join(f"{lines[place]}\n" for place in order)


def read_hits(path: str | os.PathLike[str], scale: Scale | None = None) -> Hits:
    """Read the documents of the first query, each with a score or a rank, and its length or text (`NAMES`).

    Scores ≥ 0 are weights. Logits become 1/(1 + exp(−logit)). Distances (less is better), ranks, and scores of
    which some are negative, count by rank, as 1/rank; `scale` says otherwise ("rank" without any score: as
    listed). A length counts that stands with the text: metadata may be about a whole file. Without lengths,
    characters of the texts count; without texts, all documents are as long. Raises `InputFileError` naming line
    and key, for scores on two scales, and where their direction is open.
    """
    table, lines, note = _table(Path(path))
    rows = [_flat(row) for row in table.to_dict("records")]
    values, said = _weights(table, rows, scale)
    text = _key(rows, table, NAMES["text"])
    of_text = rows[0][text][0] if text else ()
    length = next((one for one in NAMES["length"] if one in rows[0] and rows[0][one][0] == of_text), None)
    lengths = None
    if name := _key(rows, table, [length] if length else []) or text:
        lengths = _column(table, rows, name, _number if length else _length)
    unit = "tokens" if length else "characters" if text else None
    return Hits(Path(path), table, values, lengths, unit, "; ".join(filter(None, [said, note])), lines)


# --- weights ----------------------------------------------------------------------------------------------------


def _weights(table: Table, rows: Sequence["Row"], scale: Scale | None) -> tuple[Numbers, str]:
    """A weight for each document, and what was taken for its score where that is not plain."""
    named = [name for name in SCORES if any(name in row for row in rows)]
    # a client lists scores that were not asked for, as null (Weaviate)
    null = [name for name in named if all(row[name][1] is None for row in rows if name in row)]
    known = [name for name in named if name not in null] or named[:1]
    rank = next((name for name in NAMES["rank"] if all(name in row for row in rows)), None)
    if not known and rank is None and scale != "rank":
        what = f"one of {', '.join(SCORES[:12])}, … or rank (--scores rank: as listed)"
        raise unexpected(table.index[0], what, ", ".join(map(str, table.columns)))
    places = np.arange(len(rows), dtype=np.float64)
    if rank is not None:
        ranks = _column(table, rows, rank)
        if len(np.unique(ranks)) == len(ranks):
            places = ranks
        elif known or scale == "rank":
            rank = None
        else:
            again = int(np.argmax([place in ranks[:k] for k, place in enumerate(ranks)]))
            what = "a rank of its own for each document (--scores rank: as listed)"
            got = f"{ranks[again]:g} again"
            raise wrong(f"{table.index[again]}: {rank}", what, got=got, kind=InputFileError)
    if not known:
        return _by_rank(places), f"scores: {rank or 'the order as listed'} read by rank, as weights 1/rank"
    name = _key(rows, table, known[:1]) or ""
    values, distance = _column(table, rows, name), name in NAMES["distance"]
    if scale is None:
        _check(table, name, values, places)
        by_rank = distance or name in NAMES["unscaled"]
        scale = "rank" if by_rank or values.min() < 0 else "logit" if name in NAMES["logit"] else None
    taken = ""
    if scale in ("rank", "distance") or (scale == "similarity" and values.min() < 0):
        taken = " read by rank, as weights 1/rank"
        taken += " (--scores logit: as logits)" if values.min() < 0 else ""
        values = _by_rank(values if scale == "distance" or (distance and scale == "rank") else -values)
    elif scale == "logit":
        taken, values = " read as logits, 1/(1 + exp(−logit))", 1 / (1 + np.exp(-values))
    if len(known) > 1:
        taken += (
            f"{', the reranker’s' if name in NAMES['reranked'] else ''}; not used: {', '.join(known[1:])}"
        )
    return values, f"scores: {name}{taken}" if taken else ""


def _check(table: Table, name: str, values: Numbers, places: np.ndarray) -> None:
    """Raise `InputFileError` for a mark of no score, two scales in one column, and an open direction."""
    file = str(table.index[0]).rpartition(": ")[0]
    if (values == -1).any() and (rest := values[values != -1]).size and rest.min() >= 0:
        what = "a score, not a mark for none (leave the document out; --scores rank takes it as the least)"
        raise unexpected(f"{table.index[int((values == -1).argmax())]}: {name}", what, "-1")
    low, high = values[(values > 0) & (values <= 1)], values[values > 1]
    if low.size and high.size and high.min() >= 10 and high.max() <= 100:
        what = "scores on one scale, not shares among per cent (--scores score takes them as they are)"
        raise unexpected(f"{file}: {name}", what, f"{low[0]:g} and {high[0]:g}")
    falls = name in NAMES["distance"]
    steps = np.diff(values[np.argsort(places, kind="stable")]) * (-1 if falls else 1)
    listed = falls or name in NAMES["score"]
    if listed and len(values) >= FEWEST and steps.any() and (steps >= 0).all():
        raise InputFileError(
            f"{file}: {name}: expected the best document first, got a {name} that {'falls' if falls else 'rises'} "
            "with the list: say --scores distance (less is better) or --scores similarity (more is better)"
        )


def _by_rank(worse: Numbers) -> Numbers:
    return 1.0 / (1 + (worse[:, None] > worse).sum(axis=1))


# --- rows -------------------------------------------------------------------------------------------------------

Row = dict[str, tuple[tuple[str, ...], Any]]
"""The plain values of a document by plain name, each with the names of the objects that it stands in."""


def _table(path: Path) -> tuple[Table, list[str], str]:
    """The documents of the first query, the lines that hold them where each has its own, and which query it is."""
    text = read_text(path)
    named = in_utf8(path)
    every = enumerate(text.removeprefix("\ufeff").split("\n"), 1)
    lines = {f"{named}: line {place}": line.rstrip("\r") for place, line in every if line.strip()}
    runs, queries, which = [_TREC.fullmatch(line.strip()) for line in lines.values()], 1, ""
    if lines and all(runs):
        table = table_of(zip(lines, (run.groupdict() for run in runs if run), strict=True), named)
    elif {".csv", ".tsv"} & set(path.suffixes):
        table, lines = read_table(path), {}
    else:
        documents, where, queries = _of_json(text, lines, named)
        table = table_of(zip(where, documents, strict=True), named)
        lines = lines if where == list(lines) else {}
    column = next((one for one in table.columns if plain_name(one) in NAMES["query"]), None)
    if column is not None and 1 < (of_query := table[column].map(str)).nunique() < len(table):
        queries, which = of_query.nunique(), f" ({of_query.iloc[0]})"
        table = table[(of_query == of_query.iloc[0]).to_numpy()]
    taken = f"the first{which} of {queries} queries alone: order one file for each" if queries > 1 else ""
    return table, [lines[place] for place in table.index if lines], taken


def _of_json(text: str, lines: dict[str, str], path: Path) -> tuple[list[dict[str, Any]], Sequence[str], int]:
    """The documents of the first query, where each stands, and how many queries there are."""
    by_line = bool({".jsonl", ".ndjson"} & set(path.suffixes)) or (
        len(lines) > 1 and all(line[:1] in "[{" for line in lines.values())
    )
    held = [_json(line, where) for where, line in lines.items()] if by_line else _json(text, str(path))
    each = held if isinstance(held, list) else [held]
    where = list(lines) if by_line else [f"{path}: entry {place}" for place in range(len(each))]
    documents, queries = list(map(_document, each)), _queries(held)
    if not queries or (any(documents) and not all(documents)):
        wrong = documents.index(None) if None in documents else 0
        what = "an object with a score, a rank or a text, or [document, score]"
        raise unexpected((where or [path])[wrong], what, each[wrong] if each else "none")
    if len(queries[0]) != len(each) or len(queries) > 1:
        where = [f"{path}: entry {place}" for place in range(len(queries[0]))]
    return queries[0], where, len(queries)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(where, "JSON", got=f"what is not valid ({error})", kind=InputFileError) from None


def _queries(data: Any) -> list[list[dict[str, Any]]]:
    """The documents of each query in a value of JSON: in a list, or in lists by column, wherever they stand.

    An object of lists alone has one for each query; of other objects the longest counts.
    """
    if isinstance(data, list):
        documents = [one for one in map(_document, data) if one]
        return [documents] if documents else [query for held in data for query in _queries(held)]
    if not isinstance(data, dict):
        return []
    lists = {key: held for key, held in data.items() if isinstance(held, list) and held}
    columns = [
        held for key, held in lists.items() if plain_name(key) in _KNOWN and not isinstance(held[0], dict)
    ]
    if columns:
        lists = {key: held for key, held in lists.items() if len(held) == len(columns[0])}
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        return (
            [query for row in rows for query in _queries(row)] if isinstance(columns[0][0], list) else [rows]
        )
    within = {key: found for key, held in data.items() if (found := _queries(held))}
    found = [query for queries in within.values() for query in queries]
    return found if len(within) == len(data) or len(within) < 2 else [max(found, key=len)]


def _document(one: Any) -> dict[str, Any] | None:
    """An object with a name that is known, or a list of an object or texts and one number; None for all else.

    A name with a list of objects is that of several documents.
    """
    if isinstance(one, dict):
        known = [held for name, (_, held) in _flat(one).items() if name in _KNOWN]
        several = [isinstance(held, list) and all(isinstance(part, dict) for part in held) for held in known]
        return None if all(several) else one
    if not isinstance(one, list):
        return None
    numbers = [held for held in one if isinstance(held, int | float)]
    texts = [held for held in one if isinstance(held, str)]
    objects = [held for held in one if isinstance(held, dict)]
    if len(numbers) != 1 or not texts + objects or len(numbers + texts + objects) < len(one):
        return None
    named = dict(zip(("id", "text")[-len(texts) :], texts, strict=False)) if texts else {}
    return {key: held for row in [*objects, named] for key, held in row.items()} | {"score": numbers[0]}


def _flat(row: Any, within: tuple[str, ...] = ()) -> Row:
    """The plain values of an object and of those within it, by their plain names; of one name the outermost."""
    outer: Row = {}
    inner: Row = {}
    for key, held in row.items():
        held = held[0] if isinstance(held, list) and len(held) == 1 else held
        if isinstance(held, dict):
            inner = _flat(held, (*within, key)) | inner
        elif held == held:
            outer[plain_name(key)] = (within, held)
    return inner | outer


def _key(rows: Sequence[Row], table: Table, names: Sequence[str]) -> str | None:
    """The first of these names that a row has. Raises `InputFileError` for another row without it."""
    name = next((name for name in names if any(name in row for row in rows)), None)
    for where, row in zip(table.index, rows, strict=True):
        if name is not None and name not in row:
            raise unexpected(f"{where}: {name}", "a value as in other rows", None)
    return name


def _number(cell: Any, where: str, name: str) -> float:
    value, least = number(cell), name in NAMES["length"] + NAMES["rank"]
    if value is None or (least and value < 0):
        raise unexpected(f"{where}: {name}", f"a finite number{' >= 0' if least else ''}", cell)
    return value


def _length(cell: Any, where: str, name: str) -> float:
    """The characters of a text, or of the parts that it is made of."""
    if isinstance(cell, list):
        cell = "".join(str(one.get("text", "")) if isinstance(one, dict) else str(one) for one in cell)
    if not isinstance(cell, str) or not cell:
        raise unexpected(f"{where}: {name}", "a text", cell)
    return float(len(cell))


def _column(
    table: Table, rows: Sequence[Row], name: str, read: Callable[[Any, str, str], float] = _number
) -> Numbers:
    return np.array([read(row[name][1], where, name) for where, row in zip(table.index, rows, strict=True)])
