"""Architectures from files: what is read, what is assumed in the open, and what is refused by its key."""

import json
import sys

import numpy as np
import pytest
import torch
import yaml
from project import cases, install
from refused import refused
from transformers import AutoConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from posbias.core import packages
from posbias.core.errors import InputFileError, InvalidValueError, PluginError, nearest
from posbias.core.spec import encode
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import load_architecture, read_architecture
from posbias.theory.huggingface import from_huggingface
from posbias.theory.huggingface_families import FAMILIES, PARTS
from posbias.theory.masks import Full, SlidingWindow
from posbias.theory.mixing import PowerDecay, PreNormInit
from posbias.theory.positional import ALiBi, DecayBias, alibi_slopes
from posbias.theory.prediction import predict
from posbias.theory.variation import vary

OURS = """
depth = 12
mixing = {kind = "power_decay", initial = 0.5, exponent = 1}

[[layers]]
heads = 4
positional = {kind = "decay", rate = 0.25}

[[layers]]
heads = 2
positional = {kind = "alibi", slopes = [0.5, 0.25]}
content = {kind = "constant_diagonal", diagonal = [1.5]}
"""
PUBLISHED = """
sequence_length: 64
num_layers: 3
attention_config: {num_heads: 2, alibi_slopes: [[1.0]], head_weights: [[3, 1]], softmax_temperature: 2.0}
content_config: {diagonal_scores: [[0.5, -0.5]], base_scores: [[1e-3, 0]]}
lambda_schedule_config: {schedule_type: power_decay, lambda_0: 0.5, beta: 2}
save_dir: ./somewhere
"""


@pytest.fixture
def write(tmp_path):
    def _write(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return _write


def test_toml_yaml_and_json_say_the_same(write):
    toml = load_architecture(write("a.toml", OURS))
    assert toml == load_architecture(write("a.json", encode(toml)))
    assert toml == load_architecture(write("a.yaml", yaml.safe_dump(encode(toml))))
    assert toml.depth == 12
    assert toml.mixing == PowerDecay(0.5, 1)
    assert toml.stack[11].positional == ALiBi([0.5, 0.25])
    assert toml.stack[10].positional == DecayBias(0.25)


def test_published_rollout_file(write):
    read = read_architecture(write("rollout.yaml", PUBLISHED))
    (layer,) = read.architecture.layers
    expected = Layer(
        2, positional=ALiBi([1.0]), content=layer.content, head_weights=[0.75, 0.25], temperature=2.0
    )
    assert read.architecture == Architecture(3, (expected,), PowerDecay(0.5, 2), "rollout")
    np.testing.assert_array_equal(layer.head_logits.diagonal, [0.25, -0.25])
    np.testing.assert_array_equal(layer.head_logits.slopes, [0.5, 0.5])
    assert read.tokens == 64


def test_a_preset_is_no_file(tmp_path):
    refused("gpt2-xl", lambda: read_architecture(tmp_path / "gpt2-xl"), error=InputFileError)


@pytest.mark.parametrize(
    ("key", "changes"),
    cases("rollout_refused"),
)
def test_a_published_rollout_file_is_refused_by_its_key(write, key, changes):
    refused(
        key, lambda: read_architecture(write("rollout.yaml", json.dumps(yaml.safe_load(PUBLISHED) | changes)))
    )


def test_alibi_slopes_are_those_of_the_models():
    """Against the models' own code, powers of two and others."""
    for heads in (1, 2, 3, 8, 12, 16, 112):
        bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        np.testing.assert_allclose(alibi_slopes(heads), bloom.numpy(), rtol=1e-5)
        mpt = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
        np.testing.assert_allclose(alibi_slopes(heads), mpt.numpy(), rtol=1e-6)
        half = -build_mpt_alibi_tensor(heads, 2, alibi_bias_max=4)[:, 0, 0]
        np.testing.assert_allclose(alibi_slopes(heads, 4), half.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "given"),
    cases("kinds_of_layers"),
)
def test_kinds_of_layers_are_those_of_the_models(write, family, given):
    """Against the list that transformers' own configuration makes of the same keys."""
    given = {"num_hidden_layers": 13, "num_attention_heads": 4} | given
    theirs = list(AutoConfig.for_model(family, **given).layer_types)
    read = load_architecture(write("config.json", given | {"model_type": family}))
    assert read.depth == len(theirs)
    parts = FAMILIES[family].kinds
    for kind, layer in zip(theirs, read.stack, strict=True):
        windowed = isinstance(layer.mask, SlidingWindow)
        if kind in parts:
            assert bool(getattr(layer.positional, "also", ())) == bool(PARTS[kind].unknown)
            assert windowed == (kind in ("conv", "mlp", "moe"))
        else:
            assert kind == ("sliding_attention" if windowed else "full_attention")
        assert any(line.startswith(f"{kind} (") for line in read.remarks) == (kind in parts)


def test_the_assumed_schedule_is_that_of_a_network_at_initialisation():
    """Unit-variance updates added to a unit-variance stream: the ratio of norms, sampled."""
    rng = np.random.default_rng(0)
    stream, sampled = rng.normal(size=200_000), []
    for _ in range(6):
        attention = rng.normal(size=stream.size)
        sampled.append(np.linalg.norm(attention) / (np.linalg.norm(stream) + np.linalg.norm(attention)))
        stream = stream + attention + rng.normal(size=stream.size)
    np.testing.assert_allclose(PreNormInit().values(6), sampled, rtol=0.01)


LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4}


@pytest.mark.parametrize(("key", "changes"), cases("configurations_refused"))
def test_what_is_not_predicted_is_refused_by_its_key(write, key, changes):
    with pytest.raises(InvalidValueError, match=rf"config\.json: ([\w.]*\.)?{key}: ") as caught:
        load_architecture(write("config.json", LLAMA | changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    cases("inert"),
)
def test_a_familys_own_class_and_inert_flags_are_no_reason_to_refuse(write, changes):
    stack = load_architecture(write("config.json", LLAMA | changes)).stack
    assert not any(isinstance(layer.mask, Full) for layer in stack)


SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8}


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("cohere2", "sliding_window_pattern", 0),
        ("gemma3_text", "sliding_window_pattern", [1, 0]),
        ("mistral", "sliding_window", [None, 64] * 4),
        ("qwen2", "max_window_layers", [1, 2]),
        ("llama", "num_attention_heads", [4] * 8),
    ],
)
def test_what_is_no_number_where_a_family_has_one_is_refused_by_its_key(family, key, value):
    switched = {"use_sliding_window": True, "sliding_window": 8} | {key: value}
    refused(key, lambda: from_huggingface({**SMALL, "model_type": family, **switched}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("num_heads_per_layer", [2] * 8), ("use_rope", [True, False] * 4), ("attn_type_list", [0, 1] * 4)),
        *(("rope_theta", [1e4] * 8), ("head_dim", [16] * 8), ("per_layer_config", {"0": {"head_dim": 8}})),
        *(("block_configs", [{"attention": {"no_op": True}}] * 8), ("pruned_heads", {"0": [1]})),
        *(("dual_chunk_attention_config", {"chunk_size": 8}), ("sparse_config", {"topk": 64})),
    ],
)
def test_what_a_family_does_not_read_by_layer_is_named(key, value):
    read = from_huggingface({**SMALL, "model_type": "llama", key: value})
    assert any(f"{key} = " in remark for remark in read.remarks)
    assert not from_huggingface(
        {**SMALL, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    ).remarks


def test_a_family_that_builds_anothers_model_is_read_as_that_one():
    code = {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}
    given = {
        **SMALL,
        "architectures": ["DeepseekV3ForCausalLM"],
        "auto_map": code,
        "max_position_embeddings": 64,
    }
    kimi, deepseek = (
        from_huggingface({**given, "model_type": name}, "x") for name in ("kimi_k2", "deepseek_v3")
    )
    assert kimi.layers == deepseek.layers


def test_a_hint_is_nearer_than_half_the_letters_typed():
    assert "bloom-176b" in nearest("bloom-17b", ["bloom-176b", "mpt-7b"])
    assert not nearest("kimi_k3", ["kimi_linear", "minimax_m2"])
    assert not nearest("ab", ["abcd", "abcdef"])


def test_a_factor_of_rotary_positions_that_are_left_out_says_what_would_give_them():
    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    read = from_huggingface({**SMALL, "model_type": "llama", "rope_parameters": scaled})
    with pytest.raises(InvalidValueError, match=r"rope_factor: .*left out.*rope_of.*smollm2-135m, "):
        vary(read, "rope_factor", [2.0], 16)


def test_texts_beyond_a_rotary_model_s_configured_positions_are_named():
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
    architecture = from_huggingface({**config, "max_position_embeddings": 128})
    assert architecture.layers[0].positional.unknown_at(128) == ("rotary positions",)
    (unknown,) = architecture.layers[0].positional.unknown_at(129)
    assert unknown != "rotary positions"
    assert unknown in predict(architecture, 129).left_out


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that Python looks in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.startswith("foreign_")]:
        del sys.modules[name]


def test_none_can_take_the_place_of_ours(site):
    install(site, "foreign-models", "raise SystemError('imported')", {"gpt2": "FAMILY", "llama": "FAMILY"})
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 2}
    assert from_huggingface(config).layers[0].positional.encoding == "learned"
    assert packages.names() == {"gpt2": "foreign-models 0.3", "llama": "foreign-models 0.3"}
    assert "foreign_models" not in sys.modules


@pytest.mark.parametrize(
    ("module", "what"),
    [
        ("raise SystemError('no luck\\ntoday')", "FAMILY"),
        ("import no_such_module", "FAMILY"),
        ("NEITHER = 3", "NEITHER"),
        ("NEITHER = 3", "ABSENT"),
    ],
)
def test_one_that_is_broken_is_a_line_naming_its_package(site, module, what):
    install(site, "foreign-models", module, {"foreign": what})
    with pytest.raises(PluginError, match=r"package foreign-models 0\.3: ") as caught:
        from_huggingface({"model_type": "foreign"})
    assert "\n" not in str(caught.value)
