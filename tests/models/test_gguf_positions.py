"""GGUF files hold positions in keys and tensors of their own: as in a folder of the same weights, or refused."""

import math

import numpy as np
import pytest
import torch
import transformers
from refused import refused
from tiny import llama, save, write_gguf

import posbias
from posbias.core.errors import ModelError
from posbias.measurement import load_model, measure
from posbias.measurement.models.gguf_positions import check_angles, take_over

PAIRS, TRAINED = 4, 16
PERIODS = 2 * math.pi * 10_000.0 ** (np.arange(PAIRS) / PAIRS)


def of_llama3(factor, low, high):
    """The factors that llama.cpp's converter writes for Llama 3's scaling."""
    blend = np.clip((TRAINED / PERIODS - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - blend) / factor + blend)).astype(np.float32)


def keys(**given):
    """Scaling keys, `rope.scaling.` left out."""

    def said(writer):
        for key, value in given.items():
            add = writer.add_string if isinstance(value, str) else writer.add_float32
            (writer.add_uint32 if isinstance(value, int) else add)(f"llama.rope.scaling.{key}", value)

    return said


def tensors(**given):
    return lambda writer: [writer.add_tensor(f"{name}.weight", value) for name, value in given.items()]


def both(*parts):
    return lambda writer: [part(writer) for part in parts]


SHORT, LONG = (np.array(factors, np.float32) for factors in ([1, 1.5, 2, 3], [2, 4, 8, 16]))
TRUNK = {"rope_theta": 10_000.0, "original_max_position_embeddings": TRAINED}
SCALINGS = {
    "linear": (keys(type="linear", factor=8.0), {"rope_type": "linear", "factor": 8.0}),
    "linear without its name": (keys(factor=8.0), {"rope_type": "linear", "factor": 8.0}),
    "linear in the older key": (
        lambda writer: writer.add_float32("llama.rope.scale_linear", 8.0),
        {"rope_type": "linear", "factor": 8.0},
    ),
    "none with a factor": (keys(type="none", factor=8.0), {"rope_type": "default"}),
    "yarn": (
        keys(type="yarn", factor=16.0, original_context_length=TRAINED),
        {"rope_type": "yarn", "factor": 16.0},
    ),
    "yarn with all its keys": (
        keys(
            type="yarn", factor=4.0, original_context_length=TRAINED, attn_factor=1.25, yarn_attn_factor=1.5,
            yarn_beta_fast=2.0, yarn_beta_slow=0.5, yarn_ext_factor=1.0, finetuned=1,
        ),
        {
            **{"rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.5},
            "attention_factor": 1.25 * 1.5 * (1.0 + 0.1 * math.log(4.0)),
        },
    ),
    "llama3": (
        tensors(rope_freqs=of_llama3(8.0, 0.5, 2.0)),
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 2.0},
    ),
    "longrope": (
        both(
            tensors(rope_factors_short=SHORT, rope_factors_long=LONG),
            keys(type="longrope", original_context_length=TRAINED, attn_factor=1.2),
        ),
        {
            **{"rope_type": "longrope", "short_factor": SHORT.tolist(), "long_factor": LONG.tolist()},
            **{"factor": 4.0, "attention_factor": 1.2},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_rotary_scalings_are_those_of_the_same_weights_in_a_folder(name, tmp_path):
    said, settings = SCALINGS[name]
    scaled = llama(rope_parameters={**(TRUNK if settings["rope_type"] != "default" else {}), **settings})
    from_file = load_model(write_gguf(scaled, tmp_path / "scaled.gguf", said=said)).model
    plain = llama()
    for tokens in (TRAINED - 2, 40):
        ids = torch.arange(1, 1 + tokens)[None] % 30
        with torch.no_grad():
            right, ours, without = (each(ids).logits for each in (scaled, from_file, plain))
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-4)
        if settings["rope_type"] != "default":
            assert (without - right).abs().max() > 0.05


def test_a_measurement_of_a_file_with_a_scaling_is_that_of_the_folder(tmp_path):
    said, settings = SCALINGS["llama3"]
    model = llama(rope_parameters={**TRUNK, **settings})
    save(model, tmp_path / "folder")
    write_gguf(model, tmp_path / "model.gguf", said=said)
    one, other = (
        posbias.measured_influence(
            measure(
                load_model(tmp_path / name, tokenizer=tmp_path / "folder"), tokens=24, prompts=2, threads=1
            )
        )
        for name in ("folder", "model.gguf")
    )
    np.testing.assert_allclose(one.mass, other.mass, rtol=1e-4)


def test_windows_and_bases_go_where_a_family_has_them(tmp_path):
    plain = write_gguf(llama(), tmp_path / "plain.gguf")

    def window(writer):
        writer.add_sliding_window(6)
        writer.add_float32("llama.rope.freq_base_swa", 500.0)
        keys(type="linear", factor=8.0)(writer)

    said = write_gguf(llama(), tmp_path / "window.gguf", said=window)
    alone = write_gguf(llama(), tmp_path / "alone.gguf", said=lambda writer: writer.add_sliding_window(6))
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "head_dim": 8}
    mistral = transformers.MistralConfig(**sizes)
    take_over(plain, mistral)
    assert mistral.sliding_window is None  # the class has 4096, which the file does not say
    take_over(alone, mistral)
    assert mistral.sliding_window == 6
    gemma = transformers.Gemma3TextConfig(**sizes)
    angles = take_over(said, gemma)
    assert gemma.sliding_window == 6
    assert gemma.rope_parameters["sliding_attention"] == {"rope_type": "default", "rope_theta": 500.0}
    assert gemma.rope_parameters["full_attention"]["long_factor"] == [8.0] * PAIRS
    np.testing.assert_allclose(angles * 8.0 * PERIODS, 2 * math.pi)
    with pytest.raises(ModelError, match="sliding_window"):
        take_over(alone, transformers.Qwen2Config(hidden_size=32, num_attention_heads=4, num_hidden_layers=2))


def test_which_layers_have_windows_is_said_layer_by_layer_or_by_a_period(tmp_path):
    """Gemma 3's files have a period, Gemma 4's a list, and two sizes of heads and of what rotates."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 6, "head_dim": 8}
    gemma3, gemma4 = transformers.Gemma3TextConfig, transformers.Gemma4TextConfig
    by_layer = [True] * 5 + [False]

    def taken(config, pattern, wide=8):
        def said(writer):
            writer.add_sliding_window(6)
            writer.add_key_length(wide)
            writer.add_rope_dimension_count(wide)
            writer.add_uint32("llama.attention.key_length_swa", 8)
            writer.add_uint32("llama.rope.dimension_count_swa", 8)
            writer.add_sliding_window_pattern(pattern)

        take_over(write_gguf(llama(), tmp_path / "layers.gguf", said=said), config)
        return config.sliding_window

    assert taken(gemma3(**sizes), 6) == taken(gemma4(**sizes, global_head_dim=16), by_layer, 16) == 6
    for config, pattern, wide, key in (
        *((gemma3(**sizes), period, 8, "sliding_window_pattern") for period in (0, 4)),
        (gemma4(**sizes, global_head_dim=16), by_layer, 32, "key_length"),
    ):
        with pytest.raises(ModelError, match=key):
            taken(config, pattern, wide)


def test_a_part_of_a_head_that_rotates_is_the_files(tmp_path):
    path = write_gguf(llama(), tmp_path / "part.gguf", said=lambda writer: writer.add_rope_dimension_count(4))
    config = transformers.StableLmConfig(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=2, vocab_size=40
    )
    angles = take_over(path, config)
    assert config.rope_parameters["partial_rotary_factor"] == 0.5
    check_angles(transformers.StableLmForCausalLM(config), angles, "part.gguf")
    with pytest.raises(ModelError, match=r"part\.gguf says other rotary angles"):
        check_angles(llama(), angles, "part.gguf")


REFUSED = {
    "attention.sliding_window": lambda writer: writer.add_sliding_window(8),
    "attention.causal": lambda writer: writer.add_causal_attention(False),
    "attention.max_alibi_bias": lambda writer: writer.add_max_alibi_bias(8.0),
    "attention.key_length": lambda writer: writer.add_key_length(32),
    "attention.scale": lambda writer: writer.add_attention_scale(0.5),
    "attn_logit_softcapping": lambda writer: writer.add_attn_logit_softcapping(30.0),
    "rope.dimension_sections": lambda writer: writer.add_rope_dimension_sections([2, 1, 1, 0]),
    "rope.freq_base_swa": lambda writer: writer.add_float32("llama.rope.freq_base_swa", 500.0),
    "rope.scaling.yarn_log_multiplier": keys(type="yarn", factor=2.0, yarn_log_multiplier=0.1),
    "rope.scaling.alpha": keys(alpha=1000.0),
    "rope.something_new": lambda writer: writer.add_uint32("llama.rope.something_new", 1),
    "blk.0.attn_sinks.weight": lambda writer: writer.add_tensor(
        "blk.0.attn_sinks.weight", np.ones(4, np.float32)
    ),
    "position_embd.weight": lambda writer: writer.add_tensor("position_embd.weight", np.ones(4, np.float32)),
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_a_family_does_not_take_is_refused_by_name(key, tmp_path):
    path = write_gguf(llama(), tmp_path / "odd.gguf", said=REFUSED[key])
    refused("model", lambda: load_model(path), error=ModelError)
    with pytest.raises(ModelError, match=key):
        load_model(path)
