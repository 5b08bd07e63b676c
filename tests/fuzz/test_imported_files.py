"""Results made elsewhere that nobody would write: each is read, or refused in a line, without a warning."""

import io
import json
import struct
import zipfile
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from project import ROOT
from test_binary_files import changes
from test_headers import JSON
from whole_files import HUGE, Files, tried

ELSEWHERE = ROOT / "tests" / "elsewhere"
HELD = Files(
    (path.name, path.read_bytes())
    for path in sorted(ELSEWHERE.rglob("*"))
    # of a folder's files, which are alike, the first
    if path.suffix != ".md" and path.is_file() and path == min(path.parent.glob(f"{path.name[:5]}*"))
)
WRITTEN = [name for name in HELD if not name.endswith(".safetensors")]
ODD = st.sampled_from(
    [
        "",
        " ",
        "nan",
        "inf",
        "-1",
        "1e400",
        "1e308",
        "-1e308",
        "0",
        "0.5",
        "100",
        "11",
        "1_0",
        "٣",
        "x",
        '"',
        "\0",
    ]
)
COLUMNS = st.sampled_from(
    [
        "position",
        "score",
        "accuracy",
        "influence",
        "weight",
        "attribution",
        "depth",
        "depth_percent",
        "context_length",
        "model",
        "trial",
        "seed",
        "correct",
        "version",
        "gold_index",
        "outputs",
        "input_ids",
    ]
)


@pytest.mark.parametrize("name", HELD)
@given(change=changes())
def test_a_file_with_bytes_changed(reader, name, change):
    tried(reader, HELD, name, change(HELD[name]), "elsewhere")


def places(data, at=()):
    """The keys that lead to everything in a JSON value."""
    yield at
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(inner)[:40]:
        yield from places(value, (*at, key))


def replaced(data, at, step, given_value):
    """A JSON value in which what stands at a place is dropped, doubled, renamed or another one."""
    if not at:
        return given_value
    held, key = data, at[-1]
    for one in at[:-1]:
        held = held[one]
    if step == "drop":
        del held[key]
    elif step == "double" and isinstance(held, list):
        held.insert(key, held[key])
    elif step == "rename" and isinstance(held, dict):
        held[f"{given_value}"] = held.pop(key)
    elif step == "empty":
        held[key] = type(held[key])()
    else:
        held[key] = given_value
    return data


@pytest.mark.parametrize("name", WRITTEN)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2**16),
            st.sampled_from(["drop", "double", "rename", "empty", "put"]),
            JSON | st.sampled_from([1e308, -1e308, float("nan"), 10**400, 2**63]),
        ),
        min_size=1,
        max_size=3,
    ),
    everywhere=st.booleans(),
)
def test_a_file_of_other_content(reader, name, steps, everywhere):
    by_line = name.endswith("l")
    text = HELD[name].decode()
    rows = [json.loads(line) for line in text.splitlines()] if by_line else json.loads(text)
    for place, step, value in steps:
        for row in rows if by_line and everywhere else [rows]:
            known = list(places(row))
            row = replaced(row, known[place % len(known)] or known[-1], step, deepcopy(value))
    written = "\n".join(json.dumps(row) for row in rows) if by_line else json.dumps(rows)
    tried(reader, HELD, name, written.encode(), "elsewhere")


@given(
    columns=st.lists(COLUMNS | st.text(max_size=4), min_size=1, max_size=5),
    rows=st.lists(st.lists(ODD | st.floats().map(str) | st.integers().map(str), max_size=6), max_size=6),
    sign=st.sampled_from(",;\t"),
    whole=st.booleans(),
)
def test_a_table_of_any_numbers(reader, columns, rows, sign, whole):
    if whole:
        rows = [[*row, *["0"] * len(columns)][: len(columns)] for row in rows]
    content = "\n".join(sign.join(row) for row in [columns, *rows]).encode(errors="surrogatepass")
    tried(reader, HELD, "table.csv", content, "elsewhere")


def of_numpy(shape, kind, content, order=False):
    """A file of NumPy's whose header says what it is told."""
    header = f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}".encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


SHAPES = st.lists(st.integers(0, 3) | st.sampled_from([*HUGE, 10**12, -1]), max_size=6).map(tuple)
KINDS = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "|u1", "|b1", "<c16", "|O", "<U4", "|V8", ">f8", "<m8"])
NUMBERS = st.lists(st.floats() | st.sampled_from([0.0, 0.5, 1.0, 1e308]), max_size=30)


@given(
    shape=SHAPES, kind=KINDS, numbers=NUMBERS, order=st.booleans(), name=st.sampled_from(["a.npy", "a.npz"])
)
def test_an_array_whose_header_says_anything(reader, shape, kind, numbers, order, name):
    content = of_numpy(shape, kind, np.array(numbers).tobytes(), order)
    if name == "a.npz":
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as made:
            made.writestr("attributions.npy", content)
        content = packed.getvalue()
    tried(reader, HELD, name, content, "elsewhere")


@given(data=st.data(), name=st.sampled_from(["attention", "attributions", "layer_0"]))
def test_arrays_of_any_numbers(reader, data, name):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple))
    count = int(np.prod(shape))
    numbers = data.draw(
        st.lists(st.floats() | st.sampled_from([0.0, 0.5, 1e308]), min_size=count, max_size=count)
    )
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **{name: np.array(numbers).reshape(shape)})
    tried(reader, HELD, "a.npz", packed.getvalue(), "elsewhere")
