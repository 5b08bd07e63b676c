"""Results made elsewhere that nobody would write: each is read, or refused in a line, without a warning of NumPy.

Real files (`tests/elsewhere`) have bytes, values or cells changed; others are drawn from what their readers know.
"""

import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from test_binary_files import changes
from test_headers import JSON

from posbias.imports import FORMATS
from posbias.imports.columns import NAMES

HERE = Path(__file__).parents[1] / "elsewhere"
REAL = {
    str(path.relative_to(HERE)): path.read_bytes() for path in sorted(HERE.rglob("*.*")) if path.is_file()
}
REAL = {name: held for name, held in REAL.items() if not name.endswith((".md", "cases.json"))}
RECORDS = [name for name in REAL if name.endswith((".json", ".jsonl"))]
NUMBERS = st.one_of(
    st.integers(-2, 12),
    st.integers(0, 100),
    st.floats(),
    st.sampled_from([10**400, -(10**30), 1e308, -1e308, 1e200, 5e-324, 2**63, 1e154]),
)
ODD = st.one_of(NUMBERS, JSON, st.sampled_from(["", " ", "\x00", "\ud800", "1e999", "nan", "7%", "a" * 5000]))


def tried(reader, content, name, kind="import", beside=()):
    """Have a file, with others beside it, read: it is, or it is refused in a line."""
    with tempfile.TemporaryDirectory() as folder:
        for other, held in beside:
            (Path(folder) / other).write_bytes(held)
        path = Path(folder) / name
        path.write_bytes(content)
        how, said = reader.read(kind, path.parent if beside else path)
    assert how in ("read", "refused"), f"{kind} of {name}: {how}: {said}"


def spelt(data):
    """JSON as Python writes it, a lone surrogate and all."""
    return json.dumps(data).encode("utf-8", "surrogatepass")


def places(data, path=()):
    """Every place in JSON, by its keys."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, held in inner for place in places(held, (*path, key)))]


def put(data, place, what, value):
    """The same JSON with one value replaced, dropped or doubled."""
    if not place:
        return value if what == "replace" else [data, data] if what == "double" else []
    (key, *rest), other = place, data.copy()
    if rest or what == "replace":
        other[key] = put(data[key], tuple(rest), what, value)
    elif what == "drop":
        del other[key]
    else:
        other[key] = [data[key], data[key]]
    return other


STEPS = st.lists(
    st.tuples(st.integers(0, 2**32), st.sampled_from(["replace", "drop", "double"]), ODD),
    min_size=1,
    max_size=3,
)


@given(name=st.sampled_from(list(REAL)), change=changes(), packed=st.booleans(), folder=st.booleans())
def test_a_real_file_with_bytes_changed(reader, name, change, packed, folder):
    content, file, parent = change(REAL[name]), Path(name).name, Path(name).parent
    if packed and file.endswith(".jsonl"):
        content, file = gzip.compress(content), f"{file}.gz"
    beside = [(Path(one).name, held) for one, held in REAL.items() if Path(one).parent == parent != Path()]
    tried(reader, content, file, beside=beside if folder else ())


@given(name=st.sampled_from(RECORDS), steps=STEPS, line=st.integers(0, 99))
def test_a_real_file_with_values_changed(reader, name, steps, line):
    lines = REAL[name].decode().splitlines() if name.endswith(".jsonl") else [REAL[name].decode()]
    data = json.loads(lines[line % len(lines)])
    for which, what, value in steps:
        known = places(data)
        data = put(data, known[which % len(known)], what, value)
    lines[line % len(lines)] = spelt(data).decode()
    tried(reader, "\n".join(lines).encode(), Path(name).name)


COLUMNS = sorted({name for form in FORMATS for names in form.needs for name in names})
COLUMNS += [*NAMES["trial"], *NAMES["total"], "model"]
CELLS = st.one_of(
    NUMBERS, st.sampled_from(["a", "b", "x a b", ""]), st.lists(st.text("ab", max_size=2), max_size=3)
)


@st.composite
def tables(draw):
    """Records as a format has them, one column for each of its needs, with numbers that mostly fit."""
    form = draw(st.sampled_from(FORMATS))
    columns = [draw(st.sampled_from(names)) for names in form.needs]
    columns += draw(st.lists(st.sampled_from(COLUMNS), max_size=2))
    count = draw(st.integers(1, 8))
    plain = st.integers(0, 9) | st.floats(0, 1) | st.just(row_of := draw(ODD))
    cells = draw(st.sampled_from([plain, CELLS, ODD, st.just(row_of)]))
    rows = [{name: draw(cells) for name in columns} for _ in range(count)]
    if draw(st.booleans()):  # places and scores that a curve could have
        rows = [row | {columns[0]: place} for place, row in enumerate(rows)]
    return rows


@given(rows=tables(), suffix=st.sampled_from([".csv", ".tsv", ".json", ".jsonl"]), report=st.integers(0, 9))
def test_records_of_known_columns(reader, rows, suffix, report):
    if suffix in (".json", ".jsonl"):
        content = spelt(rows) if suffix == ".json" else b"\n".join(map(spelt, rows))
    else:
        sign = "," if suffix == ".csv" else "\t"
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        content = "\n".join(sign.join(map(str, line)) for line in lines).encode("utf-8", "surrogatepass")
    tried(reader, content, f"given{suffix}", "import" if report else "report")


@given(
    array=st.integers(3, 5).flatmap(
        lambda size: st.lists(st.lists(NUMBERS, min_size=size, max_size=size), min_size=3)
    ),
    column=st.sampled_from(
        [
            "score",
            "accuracy",
            "correct",
            *NAMES["signed"],
            *NAMES["mass"],
            "captum",
            "attributions",
            "attentions",
        ]
    ),
    kind=st.sampled_from(["f8", "f4", "f2", "i8", "u1"]),
    change=st.none() | changes(),
)
def test_numbers_of_any_size(reader, array, column, kind, change):
    """Where a curve should stand: by trial and position, or as arrays."""
    name = "given.npz" if column in ("attributions", "attentions") else "given.json"
    if column == "captum":
        content = spelt(
            [
                {"seq_attr": row[: len(row) - (place == 1)], "input_tokens": 0}
                for place, row in enumerate(array)
            ]
        )
    elif name == "given.json":
        rows = enumerate(array)
        content = spelt(
            [{"trial": k, "position": p, column: one} for k, row in rows for p, one in enumerate(row)]
        )
    else:
        whole = io.BytesIO()
        numbers = np.array([[float(max(min(one, 1e308), -1e308)) for one in row] for row in array])
        with np.errstate(all="ignore"):
            held: Any = {column: numbers.astype(kind)}
        np.savez_compressed(whole, **held)
        content = whole.getvalue()
    tried(reader, content if change is None else change(content), name)
