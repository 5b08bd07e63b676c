"""Specifications that nobody would write: each is read, or refused in one line by an error of ours.

`make fuzz` tries many more, at random; here the same few every time.
"""

import json
import tempfile
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st
from project import ROOT

from posbias.errors import PosbiasError
from posbias.logs import MOST, one_line
from posbias.study.value import read_study
from posbias.theory.architecture import Architecture
from posbias.theory.configs import read_architecture
from posbias.theory.huggingface_families import FAMILIES
from posbias.training import read_experiments

KEYS = """
depth layers mixing heads mask positional content kind value width sinks coefficients tokens text source
normaliser slopes scale rate temperature groups head_weights name remarks model_type num_hidden_layers
n_layer num_attention_heads n_head n_heads layer_types sliding_window rope_parameters rope_theta
rope_scaling factor rope_type text_config attn_config alibi alibi_bias_max n_positions hidden_size
sliding_window_pattern no_rope_layers num_key_value_heads task network iterations seeds sweep items
classes labels inputs question base predict simulate train measure over dimension anisotropy samples rule
encoding bias_max residual full_attention_interval full_attn_idxs linear_attn_config full_attn_layers
attn_layer_period attn_layer_offset layers_block_type hybrid_override_pattern compress_ratios compress_rates
index_topk conv_L_cache hc_mult num_kv_shared_layers also
""".split()  # noqa: SIM905
WORDS = """
causal full sliding_window prefix alibi nope rope decay t5 constant diagonal measured init pre_norm
softmax relu sigmoid unnormalised linear_attention mamba conv moe M*-E
gaussian_mixture fixed_vocabulary full_attention sliding_attention default linear
yarn simulate predict depth model.dimension network.depth first last nan .nan .inf 1e3 0x10 true null ~
module:name os:system
""".split()  # noqa: SIM905
NUMBERS = st.one_of(
    st.integers(-3, 40), st.integers(), st.floats(), st.sampled_from([10**30, -(10**30), 1e308, 2**31, 2**63])
)
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.sampled_from([*WORDS, *FAMILIES]), st.text(max_size=8)
)
NAMES = st.one_of(st.sampled_from(KEYS), st.text(max_size=5))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)
MAPPINGS = st.dictionaries(NAMES, VALUES, max_size=8)
CONFIGS = st.fixed_dictionaries(
    {"model_type": st.sampled_from([*FAMILIES])},
    optional={name: VALUES for name in KEYS if name != "model_type"},
)
READERS = (read_architecture, read_study, read_experiments)
SPECIMENS = sorted(
    path
    for kind in ("toml", "yaml", "json")
    for folder in ("docs", "tests/golden/inputs", "src/posbias/measurement/models/tiny")
    for path in (ROOT / folder).rglob(f"*.{kind}")
    if path.stat().st_size < 20_000
)


def read_or_refused(suffix, content):
    """Each reader takes a file or says in a line what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"given{suffix}"
        path.write_bytes(content)
        for read in READERS:
            try:
                made = read(path)
            except PosbiasError as error:
                told = one_line(str(error).replace(folder, ""))
                assert told.strip()
                assert len(told) <= MOST
            else:
                if read is read_architecture:
                    assert isinstance(made.architecture, Architecture)
                    assert str(made.architecture)


@given(MAPPINGS | CONFIGS)
def test_json_of_known_words(data):
    read_or_refused(".json", json.dumps(data).encode())


@given(MAPPINGS | CONFIGS)
def test_yaml_of_known_words(data):
    read_or_refused(".yaml", yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass"))


def _toml(value):
    """A value as TOML spells it, nearly."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps("~" if value is None else value).replace("NaN", "nan").replace("Infinity", "inf")


@given(MAPPINGS)
def test_toml_of_known_words(data):
    lines = [f"{json.dumps(key)} = {_toml(value)}" for key, value in data.items()]
    read_or_refused(".toml", "\n".join(lines).encode())


@given(st.sampled_from(SPECIMENS), st.data())
def test_specifications_with_bytes_changed(path, data):
    """One of ours with some bytes put in, taken out or doubled."""
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place, length = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 12))
        put = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"[", b"{", b"=", b"\n", b'"', b"1e999", b": &a *a"])
        )
        content[place : place + length] = put
    read_or_refused(path.suffix, bytes(content))


@given(data=MAPPINGS | CONFIGS, kind=st.sampled_from(["predict", "study"]))
def test_commands_take_it_or_say_why_not(reader, data, kind):
    """Beyond its reader: what a command does with a file that it takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.json"
        path.write_text(json.dumps(data))
        how, said = reader.read(kind, path)
    assert how in ("read", "refused"), f"{kind}: {how}: {said}"


@given(st.binary(max_size=200), st.sampled_from([".toml", ".yaml", ".json"]))
def test_any_bytes(content, suffix):
    read_or_refused(suffix, content)
