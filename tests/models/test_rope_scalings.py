"""Rotary angles and gains against those that transformers computes from the same configuration."""

import numpy as np
import pytest
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from posbias.theory.huggingface_rope import rope_of
from posbias.theory.rope_scaling import DynamicNTK

SIZES = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 1}
LENGTH = {"original_max_position_embeddings": 4096}
YARN = {"rope_type": "yarn", "factor": 8.0, **LENGTH}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SETTINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": YARN,
    "yarn, given ends": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.3},
    "yarn, in fractions of pairs": {**YARN, "truncate": False},
    "yarn, as DeepSeek": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8},
    "yarn, the length configured": {"rope_type": "yarn", "factor": 2.0},
    "longrope": {"rope_type": "longrope", "factor": 8.0, **LENGTH},
    "longrope, lengths configured": {"rope_type": "longrope", **LENGTH},
    "longrope, given factor": {"rope_type": "longrope", "attention_factor": 1.2, **LENGTH},
    "proportional": {"rope_type": "proportional", "factor": 2.0},
    "llama3": {**LLAMA3, "factor": 8.0, "original_max_position_embeddings": 8192},
    "llama3, nearby": {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 128},
}


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("name", SETTINGS)
def test_angles_and_gain_are_those_of_transformers(name, share, base):
    given = {**SETTINGS[name], "rope_theta": base, "partial_rotary_factor": share}
    if given["rope_type"] == "longrope":
        pairs = int(64 * share) // 2
        given |= {
            "short_factor": [1.0 + k / pairs for k in range(pairs)],
            "long_factor": [4.0 + k for k in range(pairs)],
        }
    file = {**SIZES, "max_position_embeddings": 32_768, "rope_parameters": given}
    config = AutoConfig.for_model("llama", **{**file, "rope_parameters": dict(given)})
    rope = rope_of(file, [1.0])
    for tokens in (None, 100, 50_000):
        angles, attention = ROPE_INIT_FUNCTIONS[given["rope_type"]](config, device="cpu", seq_len=tokens)
        held = rope.at(tokens) if tokens else rope
        # float32 there, float64 here
        np.testing.assert_allclose(held.angles, angles.double().numpy(), rtol=1e-6)
        assert held.gain == pytest.approx(attention**2, rel=1e-12)


def test_older_files_say_the_same_in_other_words():
    older = {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0, **LENGTH}}
    newer = {"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0, **LENGTH}}
    assert rope_of({**SIZES, **older}, [1.0]) == rope_of({**SIZES, **newer}, [1.0])


@pytest.mark.parametrize(
    ("family", "layer_type"),
    [("gpt_oss", None), ("gemma3_text", "full_attention"), ("gemma4_text", "full_attention")],
)
def test_default_configurations_of_families_are_read(family, layer_type):
    config = AutoConfig.for_model(family)
    rope = rope_of(config.to_dict(), [1.0], layer_type=layer_type)
    given = config.rope_parameters[layer_type] if layer_type else config.rope_parameters
    assert rope.base == given["rope_theta"]
    if given["rope_type"] == "default":
        assert rope.scaling is None
    else:
        made = ROPE_INIT_FUNCTIONS[given["rope_type"]]
        angles, attention = made(config, device="cpu", **({"layer_type": layer_type} if layer_type else {}))
        np.testing.assert_allclose(rope.angles, angles.double().numpy(), rtol=1e-6)
        assert rope.gain == pytest.approx(attention**2, rel=1e-12)


def test_a_dynamic_scaling_counts_from_the_length_that_is_configured():
    file = {**SIZES, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    assert rope_of({**file, "max_position_embeddings": 2048}, [1.0]).scaling == DynamicNTK(2.0, 2048)
