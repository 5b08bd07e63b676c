"""Tables of other shapes, as rows of places and scores.

Places and lengths stand in columns of inner objects ("metadata.position"), at the heads of columns (a column for
each place, or a heat map with a length for each), as keys of an object, or in a text ("Length4000Depth50"). Bare
numbers at the heads are places where they begin at 0 or 1, or where a column has the lengths.
"""

import math
import re
from typing import Any

from posbias.core.tables import Table, plain_name
from posbias.imports.columns import MODELS, NAMES, PLACES, RATES, TEXTS, WORDS, having

_NUMBER = r"(\d+(?:\.\d+)?)"
_AT_PLACE = re.compile(rf"(?:{'|'.join([*PLACES, 'p', 'slot'])})_?{_NUMBER}(?:_percent)?")
_AT_LENGTH = re.compile(rf"(?:{'|'.join([*NAMES['length'], 'len', 'ctx'])}|)_?{_NUMBER}[km]?(?:_tokens)?")
_BARE = re.compile(rf"(?:.*[a-z_]\.)?{_NUMBER}\s*%?")
KEY = "key"
"""The column that has the keys of objects in JSON."""


def long(table: Table) -> Table:
    """A table with a row for each score at a place."""
    table = _of_models(_with_texts(_flattened(table)))
    if having(table, RATES):
        return _placed_by_key(table)
    columns, placed = list(table.columns), bool(having(table, PLACES))
    words = {column: place for column in columns if (place := _place_at_head(column))}
    lengths = {column: name for column in columns if _AT_LENGTH.fullmatch(name := plain_name(column))}
    bare = {column: found[1] for column in columns if (found := _BARE.fullmatch(str(column).strip()))}
    first = min(map(float, bare.values()), default=math.inf) <= 1
    if len(lengths) > 1 and (placed or (KEY in table and len(table) > 1 and not first)):
        return _melted(table.rename(columns={KEY: "position"}), lengths, "context_length")
    if len(words) > 1 and not placed:
        return _melted(table, words, "position")
    if len(bare) > 1 and (first or having(table, NAMES["length"])) and not placed:
        held = table.rename(columns={KEY: "context_length"}) if len(table) > 1 else table
        return _melted(held, bare, "position")
    return table


def _flattened(table: Table) -> Table:
    """With a column for each key of inner objects, also of those within."""
    import pandas as pd

    parts = []
    for column in table.columns:
        objects = [cell if isinstance(cell, dict) else {} for cell in table[column]]
        inner = pd.json_normalize(objects).astype(object).set_axis(table.index)
        parts.append(inner.add_prefix(f"{column}.") if len(inner.columns) else table[[column]])
    return pd.concat(parts, axis=1)


def _with_texts(table: Table) -> Table:
    """With columns of places and lengths that stand in texts, where there is none of places."""
    if having(table, PLACES):
        return table
    for column in table.columns:
        texts = table[column].map(str)
        found = {name: texts.str.extract(pattern, expand=False) for name, pattern in TEXTS.items()}
        if all(one.notna().all() for one in found.values()):
            return table.assign(**found)
    return table


def _of_models(table: Table) -> Table:
    """A row for each model, where each has a column of scores in per cent."""
    for known in MODELS.values():
        if set(known) <= set(table.columns):
            others = [column for column in table.columns if column in (*known, *TEXTS)]
            return table.melt(others, None, "model", "score_percent", ignore_index=False)
    return table


def _placed_by_key(table: Table) -> Table:
    """With the keys of objects as places, where nothing else is: words, or numbers that do not count the rows."""
    keys = [] if having(table, PLACES) or KEY not in table else table[KEY].map(str).tolist()
    places = all(key in WORDS or _BARE.fullmatch(key) for key in keys)
    counted = keys == [str(place) for place in range(len(keys))]
    return table.rename(columns={KEY: "position"}) if places and not counted else table


def _place_at_head(column: Any) -> str | None:
    """The place that the head of a column says, by a word, or by a number behind a word for places."""
    name = plain_name(str(column).rpartition(".")[2])
    found = _AT_PLACE.fullmatch(name)
    return name if name in WORDS else found and found[1]


def _melted(table: Table, heads: dict[str, str], name: str) -> Table:
    """A row for each of these columns, whose heads say the place or the length (`name`)."""
    within = {str(column).rpartition(".")[0].partition("_by_")[0] for column in heads}
    score = within.pop() if len(within) == 1 and within <= set(RATES) else "score"
    others = [column for column in table.columns if column not in heads]
    held = table.melt(others, list(heads), name, score, ignore_index=False)
    return held.assign(**{name: held[name].map(heads)})
