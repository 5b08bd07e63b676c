"""Architectures from files: what is read, what is assumed in the open, and what is refused with which words."""

import dataclasses
import json

import numpy as np
import pytest

from posbias.core.errors import InputFileError, InvalidValueError
from posbias.core.spec import encode
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import load_architecture, read_architecture
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import ALiBi, DecayBias, NeedsMeasurement, NoPE, alibi_slopes
from posbias.theory.huggingface import from_huggingface
from posbias.theory.huggingface_families import FAMILIES, PARTS
from posbias.theory.masks import Full, SlidingWindow
from posbias.theory.mixing import ConstantMixing, PowerDecay, PreNormInit, TrainedMedian
from posbias.theory.normalisers import Unnormalised
from posbias.theory.prediction import predict

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
    import yaml

    assert toml == load_architecture(write("a.yaml", yaml.safe_dump(encode(toml))))
    assert toml.depth == 12
    assert toml.mixing == PowerDecay(0.5, 1)
    assert toml.stack[11].positional == ALiBi([0.5, 0.25])
    assert toml.stack[10].positional == DecayBias(0.25)


def test_published_rollout_file(write):
    read = read_architecture(write("rollout.yaml", PUBLISHED))
    layer = Layer(
        heads=2,
        positional=ALiBi([1.0]),
        content=read.architecture.layers[0].content,
        head_weights=[0.75, 0.25],
        temperature=2.0,
    )
    assert read.architecture == Architecture(3, (layer,), PowerDecay(0.5, 2), "rollout")
    np.testing.assert_array_equal(layer.head_logits().diagonal, [0.25, -0.25])
    np.testing.assert_array_equal(layer.head_logits().slopes, [0.5, 0.5])
    assert read.tokens == 64


def test_alibi_slopes_are_those_of_the_models():
    """Against the models' own code, powers of two and others."""
    import torch
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    for heads in (1, 2, 3, 8, 12, 16, 112):
        bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        np.testing.assert_allclose(alibi_slopes(heads), bloom.numpy(), rtol=1e-5)
        mpt = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
        np.testing.assert_allclose(alibi_slopes(heads), mpt.numpy(), rtol=1e-6)
        half = -build_mpt_alibi_tensor(heads, 2, alibi_bias_max=4)[:, 0, 0]
        np.testing.assert_allclose(alibi_slopes(heads, 4), half.numpy(), rtol=1e-6)


def test_bloom_mpt_and_falcon(write):
    bloom = load_architecture(
        write("bloom/config.json", {"model_type": "bloom", "n_layer": 70, "n_head": 112})
    )
    assert (bloom.depth, bloom.layers[0].heads, bloom.name) == (70, 112, "bloom")
    assert bloom.layers[0].positional == ALiBi()
    assert len(set(bloom.layers[0].head_logits().slopes)) == 112
    attention = {"alibi": True, "alibi_bias_max": 8}
    mpt = {"model_type": "mpt", "n_layers": 32, "n_heads": 32, "attn_config": attention}
    assert load_architecture(write("config.json", mpt)).layers[0].positional == ALiBi()
    mpt["attn_config"] = {"alibi": False}
    assert load_architecture(write("config.json", mpt)).layers[0].positional == NeedsMeasurement("learned")
    falcon = {"model_type": "falcon", "num_hidden_layers": 36, "num_attention_heads": 64, "hidden_size": 4096}
    rotary = NeedsMeasurement("rotary", rope="base 10,000")
    assert load_architecture(write("config.json", falcon)).layers[0].positional == rotary
    slopes = load_architecture(write("config.json", falcon | {"alibi": True})).layers[0].head_logits().slopes
    np.testing.assert_allclose(slopes, alibi_slopes(64) / 8)


def test_rotary_families_say_what_is_missing(write):
    llama = {"model_type": "llama", "num_hidden_layers": 30, "num_attention_heads": 9, "rope_theta": 1e5}
    architecture = load_architecture(write("config.json", llama))
    assert architecture.layers[0].positional == NeedsMeasurement("rotary", rope="base 100,000")
    assert architecture.mixing == TrainedMedian()
    mixing, positional = architecture.assumptions
    assert "no λ was given" in mixing
    assert "needs measurement" in positional


def _window(layer):
    return layer.mask.width if isinstance(layer.mask, SlidingWindow) else None


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("qwen3_next", {}),
        ("qwen3_5_text", {"full_attention_interval": 3}),
        ("jamba", {"attn_layer_period": 5, "attn_layer_offset": 0}),
        ("lfm2", {"full_attn_idxs": [2, 5, 8]}),
        ("falcon_h1", {}),
        ("kimi_linear", {}),
        (
            "kimi_linear",
            {"linear_attn_config": {"full_attn_layers": [3, 13], "kda_layers": [1, 2, *range(4, 13)]}},
        ),
        ("nemotron_h", {"hybrid_override_pattern": "MEM*-M*"}),
        ("nemotron_h", {"layers_block_type": ["mamba", "mlp", "attention"]}),
        ("nemotron_h", {}),
        ("olmo_hybrid", {"num_attention_heads": 5}),
        ("olmo_hybrid", {"num_hidden_layers": 2}),
        ("afmoe", {}),
        ("afmoe", {"global_attn_every_n_layers": 3}),
        ("gemma4_text", {}),
        ("gemma4_text", {"layer_types": ["sliding_attention"] * 13}),
        ("glm_moe_dsa", {"layer_types": ["deepseek_sparse_attention"] * 13}),
        ("deepseek_v32", {}),
        ("deepseek_v4", {}),
        ("deepseek_v4", {"compress_ratios": [0, 128, 4, 0] * 4}),
    ],
)
def test_kinds_of_layers_are_those_of_the_models(write, family, given):
    """Against the list that transformers' own configuration makes of the same keys."""
    from transformers import AutoConfig

    given = {"num_hidden_layers": 13, "num_attention_heads": 4} | given
    theirs = list(AutoConfig.for_model(family, **given).layer_types)
    read = load_architecture(write("config.json", given | {"model_type": family}))
    assert read.depth == len(theirs)
    parts = FAMILIES[family].kinds
    for kind, layer in zip(theirs, read.stack, strict=True):
        unknown = getattr(layer.positional, "also", ())
        if kind in parts:
            assert bool(unknown) == bool(PARTS[kind].unknown)
            assert isinstance(layer.mask, SlidingWindow) == (kind in ("conv", "mlp", "moe"))
        else:
            assert kind == (
                "sliding_attention" if isinstance(layer.mask, SlidingWindow) else "full_attention"
            )
        counted = f"{kind} ({theirs.count(kind)} of {len(theirs)} layers): "
        assert any(line.startswith(counted) for line in read.remarks) == (kind in parts)


@pytest.mark.parametrize(
    ("family", "changes", "unknown"),
    [
        ("jamba", {}, {"how fast linear attention forgets"}),
        ("kimi_linear", {}, {"how fast linear attention forgets"}),
        ("qwen3_next", {}, {"how fast linear attention forgets", "rotary positions"}),
        ("lfm2", {}, {"rotary positions"}),
        ("lfm2", {"full_attn_idxs": [1]}, {"rotary positions", "what short convolutions weigh"}),
        ("falcon_h1", {}, {"rotary positions", "what the state space parallel to attention adds"}),
        ("deepseek_v32", {"index_topk": 1024}, {"rotary positions", "which 1,024 tokens each query selects"}),
        ("gemma4_text", {}, {"rotary positions"}),
        (
            "gemma4_text",
            {"num_kv_shared_layers": 2},
            {"rotary positions", "what 2 layers read of an earlier layer"},
        ),
        (
            "deepseek_v4",
            {"hc_mult": 4},
            {
                "rotary positions",
                "what compressed entries hold",
                "which compressed entries are selected, and what they hold",
                "how hyper-connections mix 4 streams",
            },
        ),
    ],
)  # fmt: skip
def test_what_no_configuration_tells_withholds_the_verdict(write, family, changes, unknown):
    config = {"model_type": family, "num_hidden_layers": 6, "num_attention_heads": 4} | changes
    read = load_architecture(write("config.json", config))
    known = dataclasses.replace(read, mixing=ConstantMixing(0.3))
    assert set(known.left_out(64)) == unknown
    profile = predict(known, 64)
    assert profile.left_out == known.left_out(64)
    assert profile.summary.verdict is None
    said = "\n".join(profile.attrs["assumptions"])
    assert all(f"{part} needs measurement" in said for part in unknown - {"rotary positions"})


def test_layers_that_are_given_by_their_numbers_leave_nothing_unknown(write):
    """Jamba's states, once somebody has measured how fast they forget."""
    config = {"model_type": "jamba", "num_hidden_layers": 8, "num_attention_heads": 2}
    read = load_architecture(write("config.json", config))
    lets_in = ConstantDiagonal((0.0,), (-2.0, -4.0))
    state = Layer(2, positional=ALiBi((0.2, 0.02)), content=lets_in, normaliser=Unnormalised())
    stack = tuple(layer if layer.positional == NoPE() else state for layer in read.stack)
    assert [layer is state for layer in stack] == [t != 4 for t in range(8)]
    profile = predict(Architecture(8, stack, ConstantMixing(0.3)), 64)
    assert profile.left_out == ()
    assert profile.summary.verdict is not None
    assert 0 < profile.missing_mass < 1


def test_the_assumed_schedule_is_that_of_a_network_at_initialisation():
    """Unit-variance updates added to a unit-variance stream: the ratio of norms, sampled."""
    rng = np.random.default_rng(0)
    stream, sampled = rng.normal(size=200_000), []
    for _ in range(6):
        attention = rng.normal(size=stream.size)
        sampled.append(np.linalg.norm(attention) / (np.linalg.norm(stream) + np.linalg.norm(attention)))
        stream = stream + attention + rng.normal(size=stream.size)
    np.testing.assert_allclose(PreNormInit().values(6), sampled, rtol=0.01)


WRONG = {
    "a.txt": ["depth = 1"],
    "a.json": [
        "{",
        {"depth": 1, "layers": [{}, {}]},
        {"depth": 1, "layers": [{"heads": 3, "positional": {"kind": "alibi", "slopes": [1, 2]}}]},
        {"depth": 1, "layers": [{"heads": 2, "head_weights": [0.5, 0.6]}]},
        {"model_type": "gpt-bloom"},
        {"model_type": "RefinedWeb", "n_head": 4},
    ],
    "a.yaml": [
        "depth: [1",
        "- 1",
        PUBLISHED.replace("lambda_0: 0.5", "lambda_0: 1.5"),
        PUBLISHED.replace("num_heads", "num_head"),
        PUBLISHED.replace("[[1.0]]", "[[1.0], [2.0]]"),
        PUBLISHED + "mask_config: {mask_type: sliding_window}",
    ],
    "a.toml": [
        "depth = ",
        "depth = '3'",
        "depth = 3\nlayers = []",
        "depth = 3\n[mixing]\nkind='constant'\nvalue=1.5",
        "depth = 3\n[mixing]\nkind='constant'\nvalue=nan",
        "depth = 1\n[[layers]]\nmask = {kind = 'sliding_window', width = 0}",
        "depth = 1\n[[layers]]\npositional = {kind = 'rope', amplitudes = [1], dimension = 7}",
        "depth = 1\n[[layers]]\npositional = {kind = 'tabulated', table = [1, inf]}",
        "depth = 1\n[[layers]]\nheads = 6\ngroups = 4",
    ],
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, content) for name, contents in WRONG.items() for content in contents]
)
def test_a_wrong_file_is_refused_in_a_line_with_its_path(write, name, content):
    path = write(name, content)
    with pytest.raises((InvalidValueError, InputFileError)) as caught:
        load_architecture(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "nearest"),
    [
        ("dept = 3", "'depth'"),
        ("depth = 3\nmixing = {kind = 'constant', value = 1, valu = 1}", "'mixing.value'"),
        ("depth = 3\n[mixing]\nkind='constat'\nvalue=1", "'constant'"),
        ("depth = 2\nlayers = [{positional = {kind = 'alibi', slope = 1}}]", "'slopes'"),
        ("depth = 2\nlayers = [{width = 7}]", None),
        ("depth = 2\nlayers = [{mask = {kind = 'causal', word = 'x'}}]", None),
    ],
)
def test_the_nearest_key_that_its_place_takes_is_named(write, content, nearest):
    with pytest.raises(InvalidValueError) as caught:
        load_architecture(write("a.toml", content))
    assert (nearest or "").strip("'").rpartition(".")[2] in str(caught.value)
    assert ("did you mean" in str(caught.value)) == (nearest is not None)


# ── configurations are read strictly ──


LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4}
EXAONE = {"model_type": "exaone4", "num_hidden_layers": 8, "num_attention_heads": 4, "sliding_window": 16}


SLIDING_ALONE = {"layer_types": ["sliding_attention"] * 4, "sliding_window": 8}
REFUSED = [
    ("layer_types", {"layer_types": ["banana"] * 4}),
    ("layer_types", {"layer_types": ["chunked_attention"] * 4}),
    ("layer_types", {"layer_types": 7}),
    ("layer_types", {"layer_types": ["full_attention"]}),
    ("layer_types", {"model_type": "deepseek_v4", "layer_types": [["a"]] * 4}),
    ("layer_types", {"model_type": "smollm3", **SLIDING_ALONE}),
    ("layer_types", {"model_type": "qwen2_moe", **SLIDING_ALONE}),
    ("text_config", {"text_config": "x"}),
    ("hybrid_override_pattern", {"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}),
    ("layers_block_type", {"model_type": "nemotron_h", "layers_block_type": "MM"}),
    ("num_hidden_layers", {"model_type": "nemotron_h", "layers_block_type": []}),
    ("attn_layer_offset", {"model_type": "jamba", "attn_layer_offset": -1}),
    ("full_attn_idxs", {"model_type": "lfm2", "full_attn_idxs": "all"}),
    ("full_attn_layers", {"model_type": "kimi_linear", "linear_attn_config": {"full_attn_layers": 3}}),
    ("compress_ratios", {"model_type": "deepseek_v4", "compress_ratios": [0, 4, 5, 0]}),
    ("index_topk", {"model_type": "deepseek_v4", "index_topk": "many"}),
    ("full_attention_interval", {"model_type": "qwen3_next", "full_attention_interval": 0}),
    ("attention_chunk_size", {"attention_chunk_size": 8192}),
    (
        "rope_parameters",
        {"model_type": "ministral3", "rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
    ),
    ("rope_type", {"rope_scaling": {"rope_type": "banana", "factor": 2}}),
    ("rope_type", {"rope_parameters": {"full_attention": {"rope_type": "banana"}}}),
    (
        "sliding_window_pattern",
        {"model_type": "exaone4", "sliding_window": 8, "sliding_window_pattern": "LXG"},
    ),
    ("sliding_window", {"model_type": "mpt", "n_heads": 4, "attn_config": {"sliding_window_size": -3}}),
    ("num_attention_heads", {"num_attention_heads": 0}),
    # models that may look both ways
    ("architectures", {"architectures": ["LlamaBiModel"]}),
    ("architectures", {"architectures": ["LlamaForMaskedLM"]}),
    ("architectures", {"architectures": ["MistralForCausalLM"]}),
    ("architectures", {"architectures": "LlamaModel"}),
    ("architectures", {"model_type": "bert", "architectures": ["JinaBertModel"]}),
    ("auto_map", {"auto_map": {"AutoModel": [None, 3]}}),
    ("auto_map", {"auto_map": {"AutoModel": "modeling_llama_encoder.LlamaEncoderModel"}}),
    ("auto_map", {"auto_map": {"AutoModel": "modeling_llama_bidirectional.LlamaModel"}}),
    ("auto_map", {"auto_map": {"AutoModel": "nvidia/a--llama_bidirectional_model.LlamaModel"}}),
    ("auto_map", {"auto_map": {"AutoModelForCausalLM": "modeling_gritlm7b.LlamaForCausalLM"}}),
    ("use_bidirectional_attention", {"use_bidirectional_attention": True}),
    ("use_bidirectional_attention", {"model_type": "gemma4_text", "use_bidirectional_attention": "all"}),
    ("bidirectional", {"bidirectional": 1}),
    ("prefix_lm", {"prefix_lm": True}),
    ("causal", {"causal": False}),
    ("attention_type", {"attention_type": "bidirectional"}),
    ("is_causal", {"is_causal": "no"}),
    ("is_causal", {"model_type": "mistral", "is_causal": False}),
    ("is_causal", {"model_type": "mpt", "is_causal": False}),
    ("model_type", {"model_type": "paligemma", "text_config": {"model_type": "gemma2"}}),
]


@pytest.mark.parametrize(("key", "changes"), REFUSED)
def test_what_is_not_predicted_is_refused_by_its_key(write, key, changes):
    with pytest.raises(InvalidValueError, match=rf"config\.json: ([\w.]*\.)?{key}: ") as caught:
        load_architecture(write("config.json", LLAMA | changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["LlamaForSequenceClassification"]},
        {"architectures": ["LLaMAForCausalLM"], "is_causal": True, "use_bidirectional_attention": None},
        {"auto_map": {"AutoConfig": "encoder.X", "AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}},
        {"model_type": "RefinedWeb", "auto_map": {"AutoModel": "modelling_RW.RWModel"}},
        {"model_type": "deepseek_v3", "auto_map": {"AutoModel": "modeling_deepseek.DeepseekV3Model"}},
        {"auto_map": {"AutoModelForCausalLM": "a/b--modeling_flash_llama.LlamaForCausalLM"}},
        {"model_type": "llava", "architectures": ["LlavaLlamaForCausalLM"]},
        {"model_type": "gemma4_text", "use_bidirectional_attention": "vision"},
    ],
)
def test_a_familys_own_class_and_inert_flags_are_no_reason_to_refuse(write, changes):
    stack = load_architecture(write("config.json", LLAMA | changes)).stack
    assert not any(isinstance(layer.mask, Full) for layer in stack)


def test_decoders_that_say_that_they_are_not_causal_are_full(write):
    """gte-Qwen2, and PaliGemma: its prompt is a prefix."""
    qwen = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "is_causal": False}
    palm = {"model_type": "paligemma", "text_config": {"model_type": "gemma", "num_hidden_layers": 18}}
    for config, depth in ((qwen, 32), (palm | {"architectures": ["PaliGemmaForConditionalGeneration"]}, 18)):
        architecture = load_architecture(write("config.json", config))
        assert [layer.mask for layer in architecture.stack] == [Full()] * depth
    assert any("the whole prompt is a prefix" in line for line in architecture.remarks)
    profile = predict(dataclasses.replace(architecture, mixing=ConstantMixing(0.3)), 300)
    assert profile.mass[:15].sum() == pytest.approx(15 / 300, rel=0.01)


MIMO = {
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "sliding_window": 128,
}
RELEASED = {
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1, 1],
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 8,
    "attention_chunk_size": 128,
    "sliding_window_size": 128,
    "add_swa_attention_sink_bias": True,
    "add_full_attention_sink_bias": False,
    "rope_theta": 5_000_000,
    "swa_rope_theta": 10_000,
    "partial_rotary_factor": 0.334,
}


def test_mimos_released_keys_are_read(write):
    stack = load_architecture(write("config.json", MIMO | RELEASED)).stack
    assert [_window(layer) for layer in stack] == [None, *[129] * 4, None, 129, 129]
    assert [layer.groups or layer.heads for layer in stack] == [4, *[8] * 4, 4, 8, 8]
    assert _window(load_architecture(write("config.json", MIMO)).stack[1]) == 128
    for key, given in (
        ("hybrid_layer_pattern", [0, 1] * 4),
        ("swa_num_attention_heads", 4),
        ("add_swa_attention_sink_bias", False),
        ("swa_rope_theta", 20_000),
        ("rope_theta", 20_000),
    ):
        with pytest.raises(InvalidValueError, match=f"{key}: "):
            load_architecture(write("config.json", MIMO | RELEASED | {key: given}))


def test_a_pattern_of_letters_is_one_of_windows(write):
    stack = load_architecture(write("config.json", EXAONE | {"sliding_window_pattern": "LLG"})).stack
    assert [_window(layer) for layer in stack] == [16, 16, None, 16, 16, None, 16, 16]


def test_the_window_of_mpt_is_read(write):
    mpt = {"model_type": "mpt", "n_layers": 2, "n_heads": 4, "attn_config": {"sliding_window_size": 128}}
    assert {_window(layer) for layer in load_architecture(write("config.json", mpt)).stack} == {128}
    mpt["attn_config"]["sliding_window_size"] = -1
    assert {_window(layer) for layer in load_architecture(write("config.json", mpt)).stack} == {None}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("sliding_window", {"sliding_window": 4096}),
        ("alibi", {"alibi": True}),
        ("position_embedding_type", {"position_embedding_type": "nope"}),
        ("layer_types", {"layer_types": ["sliding_attention"] * 4}),
        ("window_size", {"window_size": 7}),
        ("no_rope_layers", {"no_rope_layers": [1, 1, 1, 0]}),
        ("residual_multiplier", {"model_type": "granite", "residual_multiplier": 0.22}),
        ("attn_logit_softcapping", {"model_type": "gemma2", "attn_logit_softcapping": 50.0}),
        ("use_parallel_residual", {"model_type": "gpt_neox", "use_parallel_residual": True}),
        ("use_sliding_window", {"model_type": "mistral", "sliding_window": 8, "use_sliding_window": False}),
    ],
)
def test_a_key_that_is_not_used_is_named(write, key, changes):
    remark = load_architecture(write("config.json", LLAMA | changes)).remarks[-1]
    assert remark.startswith(f"keys not used: {key} = ")


def test_what_no_configuration_shows_of_a_family_is_a_remark(write):
    for family, words in (("gpt_oss", "learned sinks"), ("qwen3_next", "passes a gate")):
        remarks = load_architecture(write("config.json", LLAMA | {"model_type": family})).remarks
        assert any(words in remark for remark in remarks)


def test_defaults_that_a_file_leaves_out_are_the_familys_and_said(write):
    gemma = load_architecture(
        write("config.json", {"model_type": "gemma3", "text_config": {"hidden_size": 2304}})
    )
    assert (gemma.depth, gemma.layers[0].heads, _window(gemma.layers[0])) == (26, 8, 4096)
    assert any("num_attention_heads: 8, the default of gemma3_text" in line for line in gemma.remarks)
    for family in ("gpt2", "opt"):
        config = {"model_type": family, "num_hidden_layers": 2, "num_attention_heads": 2}
        assert load_architecture(write("config.json", config)).layers[0].positional == NeedsMeasurement(
            "learned"
        )


def test_a_plain_configuration_says_nothing_more(write):
    config = LLAMA | {
        "rope_theta": 1e4,
        "rope_scaling": None,
        "attention_bias": False,
        "residual_dropout": 0.1,
    }
    assert load_architecture(write("config.json", config)).remarks == ()


def test_texts_beyond_a_rotary_model_s_configured_positions_are_named():
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
    architecture = from_huggingface({**config, "max_position_embeddings": 128})
    assert architecture.layers[0].positional.unknown_at(128) == ("rotary positions",)
    (said,) = architecture.layers[0].positional.unknown_at(129)
    assert "128" in said
    assert said in predict(architecture, 129).left_out


def test_a_preset_named_for_a_file_is_pointed_to():
    with pytest.raises(InputFileError, match=r"posbias\.preset\('bloom-176b'\)"):
        load_architecture("bloom-176b")
