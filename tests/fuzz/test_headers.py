"""Files that say of themselves what cannot be: measurements whose digest is right, safetensors and GGUF."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_files import HUGE, READ_BY, tried

from posbias.errors import PosbiasError
from posbias.store import load_measurement, save_measurement

NUMBERS = st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0, 1e308, -1e308, 1e-320])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**64) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["drop", "fill", "some", "type", "axes", "first", "none", "rename", "attribute", "json"]
        ),
        st.integers(0, 2**16),
        NUMBERS,
        st.sampled_from(["float32", "int64", "bool", "str", "complex128", "uint8"]),
        JSON,
    ),
    min_size=1,
    max_size=3,
)


def changed(data, steps):
    """A measurement with other content."""
    for what, which, number, kind, held in steps:
        names, dimensions, attributes = sorted(data.data_vars), sorted(data.sizes), sorted(data.attrs)
        if not names or not dimensions or not attributes:
            return data
        name = names[which % len(names)]
        dimension, attribute = dimensions[which % len(dimensions)], attributes[which % len(attributes)]
        variable = data[name]
        if what == "drop":
            data = data.drop_vars(name)
        elif what in ("fill", "some") and variable.dtype.kind == "f":
            values = variable.values.copy()
            with np.errstate(over="ignore"):
                values.reshape(-1)[slice(None) if what == "fill" else which % max(1, values.size)] = number
            data = data.assign({name: (variable.dims, values)})
        elif what == "type":
            with np.errstate(all="ignore"):
                data = data.assign({name: (variable.dims, variable.values.astype(kind))})
        elif what == "axes":
            data = data.assign({name: variable.T})
        elif what in ("first", "none"):
            data = data.isel({dimension: slice(0, int(what == "first"))})
        elif what == "rename":
            data = data.rename({dimension: f"other{which}"})
        elif what == "attribute":
            data = data.assign_attrs({attribute: str(number) if which % 2 else which})
        else:
            data = data.assign_attrs({attribute: json.dumps(held)})
    return data


@pytest.mark.slow
@given(steps=STEPS, kind=st.integers(0, 6))
def test_a_measurement_of_other_content(reader, whole, tmp_path_factory, steps, kind):
    name = "measurement.nc"
    folder = tmp_path_factory.getbasetemp()
    (folder / name).write_bytes(whole[name])
    place = folder / "changed.nc"
    try:
        save_measurement(changed(load_measurement(folder / name), steps), place)
    except (PosbiasError, ValueError, TypeError, KeyError, AttributeError):
        return  # nothing that can be written
    tried(reader, whole, name, place.read_bytes(), READ_BY[name][kind])


SIZES = st.integers(0, 300) | st.sampled_from(HUGE)
TENSORS = st.dictionaries(
    st.sampled_from(["weight", "lm_head.weight", "model.norm.weight", "loss", "w", ""]),
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "F64", "BF16", "I64", "BOOL", "F8_E4M3", "U16", "x", 1]),
            "shape": st.lists(SIZES | st.integers(-3, -1), max_size=4) | JSON,
            "data_offsets": st.lists(SIZES, min_size=2, max_size=2) | JSON,
        }
    )
    | JSON,
    max_size=4,
)


@given(
    tensors=TENSORS,
    metadata=st.none()
    | st.dictionaries(st.sampled_from(["posbias", "note", "format"]), st.text(max_size=5) | JSON),
    length=st.none() | st.sampled_from(HUGE),
    data=st.integers(0, 3000),
    name=st.sampled_from(["model.safetensors", "network.safetensors"]),
    kind=st.integers(0, 1),
)
def test_safetensors_by_grammar(reader, whole, tensors, metadata, length, data, name, kind):
    header = json.dumps(tensors if metadata is None else tensors | {"__metadata__": metadata}).encode()
    content = struct.pack("<Q", len(header) if length is None else length) + header + bytes(data)
    tried(reader, whole, name, content, READ_BY[name][kind % len(READ_BY[name])])


KEYS = """
general.architecture general.alignment general.name llama.block_count llama.context_length llama.embedding_length
llama.feed_forward_length llama.attention.head_count llama.attention.head_count_kv llama.vocab_size
llama.attention.layer_norm_rms_epsilon llama.rope.freq_base tokenizer.ggml.model tokenizer.ggml.tokens
tokenizer.ggml.merges tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.pre
""".split()  # noqa: SIM905
SCALAR = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""GGUF's numbers of types, and how struct writes them."""


def text(word):
    return struct.pack("<Q", len(word.encode())) + word.encode()


def scalars(kind):
    spelt = SCALAR[kind]
    if spelt in ("<f", "<d"):
        return st.floats(width=32).map(lambda number: struct.pack(spelt, number))
    size = 8 * struct.calcsize(spelt)
    low, high = (-(2 ** (size - 1)), 2 ** (size - 1) - 1) if spelt[1].islower() else (0, 2**size - 1)
    numbers = st.booleans() if spelt == "<?" else st.integers(low, high) | st.integers(0, 64)
    return numbers.map(lambda number: struct.pack(spelt, number))


@st.composite
def held(draw, depth=0):
    """A value as GGUF holds it: its type and its bytes."""
    kind = draw(st.sampled_from([4, 4, 8, 8, 9, 6, *SCALAR, 77]))
    if kind in SCALAR:
        return kind, draw(scalars(kind))
    if kind == 8:
        return kind, text(draw(st.sampled_from(["llama", "gpt2", "qwen2", "", "a"]) | st.text(max_size=4)))
    if kind == 9 and depth < 3:
        inner = draw(st.lists(held(depth + 1), max_size=3))
        kinds = [one for one, _ in inner] or [draw(st.sampled_from([0, 8, 4, 9]))]
        count = draw(st.sampled_from([len(inner), len(inner), *HUGE]))
        return 9, struct.pack("<IQ", kinds[0], count) + b"".join(spelt for _, spelt in inner)
    return kind, b""


INFOS = st.lists(
    st.tuples(
        st.sampled_from(["token_embd.weight", "output.weight", "blk.0.attn_q.weight", "x"]),
        st.lists(SIZES, max_size=5),
        st.sampled_from([0, 1, 2, 8, 12, 28, 99]),
        SIZES,
    ),
    max_size=4,
)


@given(
    pairs=st.lists(st.tuples(st.sampled_from(KEYS) | st.text(max_size=4), held()), max_size=12),
    infos=INFOS,
    counts=st.tuples(st.none() | st.sampled_from(HUGE), st.none() | st.sampled_from(HUGE)),
    data=st.integers(0, 3000),
    kind=st.integers(0, 1),
)
def test_gguf_by_grammar(reader, whole, pairs, infos, counts, data, kind):
    name = "small.gguf"
    own = (len(infos), len(pairs))
    sizes = [count if huge is None else huge for count, huge in zip(own, counts, strict=True)]
    content = b"GGUF" + struct.pack("<IQQ", 3, *sizes)
    content += b"".join(text(key) + struct.pack("<I", kind_) + spelt for key, (kind_, spelt) in pairs)
    for tensor, shape, type_, offset in infos:
        content += text(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_, offset)
    tried(reader, whole, name, content + bytes(data), READ_BY[name][kind])
