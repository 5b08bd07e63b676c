"""Retrieved documents with their scores, as retrievers and rerankers write them, to be put in order.

JSON lines, JSON or CSV. Texts and scores may stand within others: LlamaIndex has a node, LangChain and Pinecone
metadata, Cohere results with documents, Chroma lists of ids, documents and distances.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from posbias.core.tables import (
    Names,
    Table,
    bare_name,
    number,
    plain_name,
    read_packed,
    read_table,
    unexpected,
)

Scale = Literal["score", "logit", "rank"]
SCORES = ("score", "relevance_score", "similarity", "similarity_score", "cosine_similarity", "rerank_score")
SCORES += ("relevance", "search_score", "rrf_score", "certainty")
LOGITS, DISTANCES = (
    ("logit", "logits"),
    ("distance", "distances", "cosine_distance", "l2_distance"),
)
LENGTHS = ("tokens", "length", "n_tokens", "num_tokens", "token_count")
TEXTS = ("text", "page_content", "content", "document", "documents", "passage", "chunk", "chunk_text", "body")
_NAMES = Names(known={bare_name(name) for name in (*SCORES, *LOGITS, *DISTANCES, *TEXTS)})


@dataclass(frozen=True)
class Hits:
    """The documents of a file: a weight and a length for each, the lengths' `unit`, how scores became weights.

    `lengths` and `unit` are None where neither lengths nor texts are known; `note` is empty for scores ≥ 0.
    """

    path: Path
    table: Table
    scores: Float[np.ndarray, "document"]
    lengths: Float[np.ndarray, "document"] | None
    unit: Literal["tokens", "characters"] | None
    note: str

    def text(self, order: Sequence[int]) -> str:
        """The documents in this order, as a file of the same kind has them: lines of JSON lines as they are."""
        suffix = Path(self.path.name.lower().removesuffix(".gz")).suffix
        if suffix in (".csv", ".tsv"):
            return self.table.iloc[list(order)].to_csv(index=False, sep="," if suffix == ".csv" else "\t")
        if suffix == ".json":
            rows = self.table.to_dict("records")
            return json.dumps([rows[place] for place in order], ensure_ascii=False, indent=1) + "\n"
        lines = [line.rstrip("\r") for line in read_packed(self.path).split("\n") if line.strip()]
        return "".join(f"{lines[place]}\n" for place in order)


def read_hits(path: str | os.PathLike[str], scale: Scale | None = None) -> Hits:
    """Read documents, each with one of `SCORES`, `LOGITS` or `DISTANCES` and one of `LENGTHS` or `TEXTS`.

    Scores ≥ 0 are weights. Logits become 1/(1 + exp(−logit)). Distances (less is better), and scores of which
    some are negative, count by rank, as 1/rank; `scale` says otherwise. Without lengths, characters of the texts
    count; without texts, all documents are as long. Raises `InputFileError` naming line and key.
    """
    table = read_table(Path(path), _NAMES)
    if len(table) == 1:  # of Chroma, a row for a query
        table = table.explode(
            [name for name in table if isinstance(table[name].iloc[0], list)] or table.columns[0]
        )
    rows = [_flat(row) for row in table.to_dict("records")]
    name = _key(rows, table, SCORES + LOGITS + DISTANCES)
    if name is None:
        what = f"one of {', '.join(SCORES + LOGITS + DISTANCES)}"
        raise unexpected(table.index[0], what, ", ".join(map(str, table.columns)))
    values = np.array([_number(row[name], where, name) for where, row in zip(table.index, rows, strict=True)])
    note = f"scores: {name} read "
    if scale == "rank" or (scale is None and (name in DISTANCES or values.min() < 0)):
        better = values if name in DISTANCES else -values
        note += "by rank, as weights 1/rank" + (" (--scores logit: as logits)" if values.min() < 0 else "")
        values = 1.0 / (1 + (better[:, None] > better).sum(axis=1))
    elif scale == "logit" or (scale is None and name in LOGITS):
        values, note = 1 / (1 + np.exp(-values)), note + "as logits, 1/(1 + exp(−logit))"
    else:
        note = ""
    length, text = _key(rows, table, LENGTHS), None
    lengths = None
    if length is not None:
        lengths = [_number(row[length], where, length) for where, row in zip(table.index, rows, strict=True)]
    elif (text := _key(rows, table, TEXTS)) is not None:
        lengths = [_length(row[text], where, text) for where, row in zip(table.index, rows, strict=True)]
    unit = "tokens" if length else "characters" if text else None
    return Hits(Path(path), table, values, None if lengths is None else np.array(lengths), unit, note)


def _flat(row: Any) -> dict[str, Any]:
    """The plain values of an object and of those within it, by their plain names; of one name the outermost."""
    inner = [_flat(held) for held in row.values() if isinstance(held, dict)]
    outer = {
        plain_name(key): held for key, held in row.items() if not isinstance(held, dict) and held == held
    }
    return {key: held for one in reversed(inner) for key, held in one.items()} | outer


def _key(rows: Sequence[dict[str, Any]], table: Table, names: Sequence[str]) -> str | None:
    """The first of these names that a row has. Raises `InputFileError` for another row without it."""
    name = next((name for name in names if any(name in row for row in rows)), None)
    for where, row in zip(table.index, rows, strict=True):
        if name is not None and name not in row:
            raise unexpected(where, f"{name} as in other rows", ", ".join(row))
    return name


def _number(cell: Any, where: str, name: str) -> float:
    value = number(cell)
    if value is None or (name in LENGTHS and value < 0):
        raise unexpected(f"{where}: {name}", f"a finite number{' >= 0' if name in LENGTHS else ''}", cell)
    return value


def _length(cell: Any, where: str, name: str) -> float:
    if not isinstance(cell, str) or not cell:
        raise unexpected(f"{where}: {name}", "a text", cell)
    return float(len(cell))
