"""Retrieved documents with their scores, as retrievers and rerankers write them, to be put in order.

JSON lines, JSON, CSV or runs of TREC. Texts and scores may stand within others (LlamaIndex has a node, LangChain
and Pinecone metadata, Cohere results with documents), in lists by column (Chroma), or as [document, score]. What a
field is called says what it holds (`hits.toml`): a larger distance is worse. Stores list the best first; a score
that rises with the list may be a distance (LangChain's FAISS, Qdrant's Euclid), and is asked about.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.errors import InputFileError
from posbias.core.files import json_object
from posbias.core.tables import (
    Names,
    Table,
    bare_name,
    json_rows,
    number,
    plain_name,
    read_packed,
    read_table,
    table_of,
    unexpected,
)

Scale = Literal["score", "similarity", "distance", "logit", "rank"]
NAMES: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""What fields are called, by what they hold."""
SCORES = [name for kind in ("reranked", "score", "logit", "distance", "unscaled") for name in NAMES[kind]]
"""What scores are called, a reranker's before others'."""
FEWEST = 3
"""Documents whose scores say whether they rise or fall with the list."""
_NAMES = Names(known={bare_name(name) for name in (*SCORES, *NAMES["rank"], *NAMES["text"])})
_TREC = re.compile(r"(?P<query_id>\S+)\s+\w+\s+(?P<id>\S+)\s+(?P<rank>\d+)\s+(?P<score>\S+)(\s+\S+)?")


@dataclass(frozen=True)
class Hits:
    """The documents of a file: a weight and a length for each, the lengths' `unit`, how scores became weights.

    `lengths` and `unit` are None where neither lengths nor texts are known; `note` says what scores were taken to
    be where that is not plain, and which query. `lines`: those of the file, where each has one document.
    """

    path: Path
    table: Table
    scores: Float[np.ndarray, "document"]
    lengths: Float[np.ndarray, "document"] | None
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
    length, text = _key(rows, table, NAMES["length"]), _key(rows, table, NAMES["text"])
    if length and rows[0][length][0] != (rows[0][text][0] if text else ()):
        length = None
    read = _number if length else _length
    name = length or text
    lengths = [read(row[name][1], where, name) for where, row in _rows(table, rows)] if name else None
    unit = "tokens" if length else "characters" if text else None
    note = "; ".join(filter(None, [said, note]))
    return Hits(Path(path), table, values, None if lengths is None else np.array(lengths), unit, note, lines)


# --- weights ----------------------------------------------------------------------------------------------------


def _weights(
    table: Table, rows: Sequence["Row"], scale: Scale | None
) -> tuple[Float[np.ndarray, "document"], str]:
    """A weight for each document, and what was taken for its score where that is not plain."""
    known = [name for name in SCORES if any(name in row for row in rows)]
    rank = _key(rows, table, NAMES["rank"])
    if not known and rank is None and scale != "rank":
        what = f"one of {', '.join(SCORES[:12])}, … or rank (--scores rank: as listed)"
        raise unexpected(table.index[0], what, ", ".join(map(str, table.columns)))
    places = np.arange(len(rows), dtype=np.float64)
    if rank is not None:
        ranks = _column(table, rows, rank)
        places = ranks if len(np.unique(ranks)) == len(ranks) else places
    if not known:
        name = rank or "the order as listed"
        return _by_rank(places), f"scores: {name} read by rank, as weights 1/rank"
    name = _key(rows, table, known[:1]) or ""
    values = _column(table, rows, name)
    said = f"scores: {name}{', the reranker’s' if name in NAMES['reranked'] else ''}"
    said = f"{said}; not used: {', '.join(known[1:])}" if len(known) > 1 else ""
    if scale is None:
        _check(table, name, values, places)
    worse = name in NAMES["distance"] if scale in (None, "rank") else scale == "distance"
    by_rank = scale in ("rank", "distance") or (scale is None and (worse or name in NAMES["unscaled"]))
    if by_rank or (scale in (None, "similarity") and values.min() < 0):
        taken = "by rank, as weights 1/rank" + (" (--scores logit: as logits)" if values.min() < 0 else "")
        values = _by_rank(values if worse else -values)
    elif scale == "logit" or (scale is None and name in NAMES["logit"]):
        taken, values = "as logits, 1/(1 + exp(−logit))", 1 / (1 + np.exp(-values))
    else:
        return values, said
    return values, f"scores: {name} read {taken}" + said.removeprefix(f"scores: {name}")


def _check(table: Table, name: str, values: Float[np.ndarray, "document"], places: np.ndarray) -> None:
    """Raise `InputFileError` for a mark of no score, two scales in one column, and an open direction."""
    file = re.split(r": (?:line|entry) ", str(table.index[0]))[0]
    if (values == -1).any() and (rest := values[values != -1]).size and rest.min() >= 0:
        what = "a score, not a mark for none (leave the document out; --scores rank takes it as the least)"
        raise unexpected(f"{table.index[int((values == -1).argmax())]}: {name}", what, "-1")
    low, high = values[(values > 0) & (values <= 1)], values[values > 1]
    if low.size and high.size and high.min() >= 10 and high.max() <= 100:
        got = f"{low[0]:g} and {high[0]:g} (shares and per cent?)"
        raise InputFileError(
            f"{file}: {name}: expected scores on one scale, got {got}; --scores score takes them as they are"
        )
    steps = np.diff(values[np.argsort(places, kind="stable")])
    if name in NAMES["distance"]:
        steps = -steps
    elif name not in NAMES["score"]:
        return
    if len(values) >= FEWEST and steps.any() and (steps >= 0).all():
        falls = "falls" if name in NAMES["distance"] else "rises"
        raise InputFileError(
            f"{file}: {name}: expected the best document first, got a {name} that {falls} from first to last: "
            "which is it? --scores distance (less is better) or --scores similarity (more is better)"
        )


def _by_rank(worse: Float[np.ndarray, "document"]) -> Float[np.ndarray, "document"]:
    return 1.0 / (1 + (worse[:, None] > worse).sum(axis=1))


# --- rows -------------------------------------------------------------------------------------------------------

Row = dict[str, tuple[tuple[str, ...], Any]]
"""The plain values of a document by plain name, each with the names of the objects that it stands in."""


def _table(path: Path) -> tuple[Table, list[str], str]:
    """The documents of the first query, the lines that hold them where each has its own, and which query it is."""
    text = read_packed(path)
    every = enumerate(text.removeprefix("\ufeff").split("\n"), 1)
    numbered = {f"{path}: line {place}": line.rstrip("\r") for place, line in every if line.strip()}
    where, lines = list(numbered), list(numbered.values())
    runs, queries, which = [_TREC.fullmatch(line.strip()) for line in lines], 1, ""
    if lines and all(runs):
        table = table_of(zip(where, (run.groupdict() for run in runs if run), strict=True), path)
    elif {".csv", ".tsv"} & set(path.suffixes):
        table, lines = read_table(path, _NAMES), []
    else:
        one_each = bool({".jsonl", ".ndjson"} & set(path.suffixes)) or _lines_of_json(text)
        data = list(map(_json, lines, where)) if one_each else _json(text, str(path))
        held, queries = _first_query(data)
        if one_each and len(held) == len(lines) and queries == 1:
            table = table_of(zip(where, map(json_object, held, where), strict=True), path)
        else:
            table, lines = table_of(json_rows(held, str(path), _NAMES), path), []
    column = next((one for one in table.columns if plain_name(one) in NAMES["query"]), None)
    if column is not None and 1 < (of_query := table[column].map(str)).nunique() < len(table):
        first = (of_query == of_query.iloc[0]).to_numpy()
        queries, which = of_query.nunique(), f" ({of_query.iloc[0]})"
        table, lines = table[first], [line for line, own in zip(lines, first, strict=False) if own]
    taken = f"the first{which} of {queries} queries alone: order one file for each"
    return table, lines, taken if queries > 1 else ""


def _lines_of_json(text: str) -> bool:
    """Whether each line begins an object or a list of its own."""
    return all(line[:1] in "[{" for line in text.strip().split("\n")) and "\n" in text.strip()


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{where}: expected JSON, got what is not valid ({error})") from None


def _first_query(data: Any) -> tuple[Any, int]:
    """What there is of the first query, with objects for lists such as [document, score]; how many queries."""
    if isinstance(data, list) and data:
        if isinstance(data[0], int) and len(data) > 2 and all(isinstance(one, list) for one in data[2::2]):
            return [dict(zip(one[::2], one[1::2], strict=False)) for one in data[2::2]], 1  # Redis
        if all(map(_is_pair, data)):
            return [_of_pair(one) for one in data], 1
        inner = [_list_in(one) for one in data]
        if all(inner):
            return _first_query(inner[0])[0], len(data)
        return data, 1
    if not isinstance(data, dict):
        return data, 1
    values = list(data.values())
    if len(data) > 1 and all(isinstance(one, dict) and one and _are_numbers(one.values()) for one in values):
        return _first_query(values[0])[0], len(data)
    if len(data) > 1 and _are_numbers(values) and not _NAMES.count(data):
        return [{"id": key, "score": held} for key, held in data.items()], 1
    columns = {key: held for key, held in data.items() if _NAMES.count([key]) and isinstance(held, list)}
    if columns and all(held and isinstance(held[0], list) for held in columns.values()):
        count = len(next(iter(columns.values())))
        return {
            key: held[0] if isinstance(held, list) and held else held for key, held in data.items()
        }, count
    if len(data) > 1 and all(isinstance(one, list) and _list_in(one) for one in values) and not columns:
        return _first_query(values[0])[0], len(data)
    found = {key: _first_query(held) for key, held in data.items() if isinstance(held, dict | list)}
    return data | {key: held for key, (held, _) in found.items()}, max([1, *(n for _, n in found.values())])


def _list_in(one: Any) -> list[Any] | None:
    """The documents of a query: a list of objects or pairs, or the only one in an object that is no document."""
    if isinstance(one, list):
        return one if one and (isinstance(one[0], dict) or _is_pair(one[0])) else None
    if not isinstance(one, dict) or _NAMES.count(one):
        return None
    lists = [held for held in one.values() if isinstance(held, list) and _list_in(held)]
    return lists[0] if len(lists) == 1 else None


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _is_pair(one: Any) -> bool:
    """Whether a list is of texts or an object, and one number."""
    if not isinstance(one, list) or len(one) < 2:
        return False
    numbers = [held for held in one if _are_numbers([held])]
    return len(numbers) == 1 and all(isinstance(held, str | dict) for held in one if held is not numbers[0])


def _of_pair(one: Sequence[Any]) -> dict[str, Any]:
    """[document, score], [score, text] or [id, text, score] as an object."""
    texts = [held for held in one if isinstance(held, str)]
    named = dict(zip(("id", "text")[-len(texts) :], texts, strict=False)) if texts else {}
    inner = {key: part for held in one if isinstance(held, dict) for key, part in held.items()}
    return inner | named | {"score": next(held for held in one if _are_numbers([held]))}


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


def _rows(table: Table, rows: Sequence[Row]) -> Iterable[tuple[str, Row]]:
    return zip(table.index, rows, strict=True)


def _key(rows: Sequence[Row], table: Table, names: Sequence[str]) -> str | None:
    """The first of these names that a row has. Raises `InputFileError` for another row without it."""
    name = next((name for name in names if any(name in row for row in rows)), None)
    for where, row in _rows(table, rows):
        if name is not None and name not in row:
            raise unexpected(where, f"{name} as in other rows", ", ".join(row))
    return name


def _column(table: Table, rows: Sequence[Row], name: str) -> Float[np.ndarray, "document"]:
    return np.array([_number(row[name][1], where, name) for where, row in _rows(table, rows)])


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
