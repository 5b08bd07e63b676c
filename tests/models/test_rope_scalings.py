"""Rotary angles and gains against those that transformers computes from the same configuration."""

import copy
import re

import numpy as np
import pytest
import torch
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from families import rotary_class
from posbias import encodings
from posbias.core.errors import InvalidValueError
from posbias.theory.encodings import NoPE, rope_of
from posbias.theory.huggingface import from_huggingface
from posbias.theory.huggingface_families import DEFAULTS
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


YARN_OLDER = {"type": "yarn", "factor": 4.0, **LENGTH}
LONG = {"short_factor": [1.0 + k for k in range(16)], "long_factor": [2.0 + k for k in range(16)]}
LONG_FILE = {"hidden_size": 256, "num_attention_heads": 8, "max_position_embeddings": 32_768, **LENGTH}
PUBLISHED = {
    "nothing": {},
    "base": {"rope_theta": 25_000.0},
    "bases": {"rope_theta": 1_000_000, "rope_local_base_freq": 20_000},
    "GPT-NeoX": {"rotary_pct": 0.5, "rotary_emb_base": 50_000},
    "share": {"partial_rotary_factor": 0.5},
    "dimensions": {"rotary_dim": 32},
    "head": {"head_dim": 64},
    "width": {"hidden_size": 1024, "num_attention_heads": 16},
    "newer": {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 77_000.0}},
    "linear": {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "linear, newer name": {"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "yarn": {"rope_theta": 1e6, "rope_scaling": YARN_OLDER},
    "yarn, null": {"max_position_embeddings": 32_768, "rope_scaling": {**YARN_OLDER, "factor": None}},
    "yarn, length outside": {"original_max_position_embeddings": 2048, "rope_scaling": YARN_OLDER},
    "yarn, DeepSeek": {"rope_scaling": {**YARN_OLDER, "mscale": 0.707, "mscale_all_dim": 1.0}},
    "llama3": {"rope_scaling": {**LLAMA3, "factor": 8.0, **LENGTH}},
    "longrope": {**LONG_FILE, "rope_scaling": {"type": "longrope", **LONG}},
    "su": {**LONG_FILE, "rope_scaling": {"type": "su", **LONG}},
    "mrope": {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    "by type": {
        "rope_parameters": {
            "full_attention": {"rope_theta": 3e5, **YARN, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        }
    },
}
"""Keys as files of several ages have them."""
ROTATING = [
    family
    for family, keys in DEFAULTS.items()
    if keys.keys() & {"rope_theta", "rope_parameters", "rotary_emb_base"}
]
LABELS = {"main": "sliding_attention", "compress": "compressed_sparse_attention"}
REFUSED = (
    r"^(type|rope_theta|rope_type|partial_rotary_factor|rope_scaling|rope_parameters|layer_type): expected "
)


def embedding(family, keys):
    """Angles and gain of the rotary embedding that transformers builds, by type of layer ("" for all)."""
    kind = AutoConfig.for_model(family).__class__
    module = rotary_class(kind)(kind(**copy.deepcopy(keys)))
    held = dict(module.named_buffers()) | vars(module)
    kinds = [name.removesuffix("inv_freq") for name in held if name.endswith("inv_freq")]
    return {
        kind.rstrip("_"): (held[f"{kind}inv_freq"].double().numpy(), held[f"{kind}attention_scaling"])
        for kind in kinds
        if "original" not in kind
    }


def read(config, layer_type):
    """What is read, or the words of its refusal."""
    try:
        return encodings.rotary_of(config, layer_type)
    except InvalidValueError as error:
        return str(error)


@pytest.mark.parametrize("family", ROTATING)
def test_angles_and_gain_are_those_of_the_familys_rotary_embedding(family):
    """Where a model can be built; or the key is refused that its class passes over."""
    equal = 0
    for keys in PUBLISHED.values():
        config = {"model_type": family, **keys}
        try:
            theirs = embedding(family, keys)
        except Exception:  # keys that no model of the family has
            continue
        if family == "deepseek_v4":
            config["layer_types"] = ["sliding_attention", "compressed_sparse_attention"] * 22
        for kind, (angles, gain) in theirs.items():
            found = read(config, LABELS.get(kind, kind) or None)
            if isinstance(found, str):
                assert re.match(REFUSED, found), (keys, found)
                continue
            np.testing.assert_allclose(found.angles, angles, rtol=1e-5, err_msg=str(keys))
            assert found.gain == pytest.approx(gain, rel=1e-6), keys
            equal += 1
    assert equal >= 8


def test_angles_and_gains_that_files_of_their_makers_have():
    """By hand: Gemma 3's two bases, MiniMax's 64 of 128 dimensions, Phi 3.5's experts, a base for each layer."""
    gemma = {"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4}
    gemma |= {"head_dim": 256, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert encodings.rotary_of(gemma, "full_attention").angles[0] == 0.125
    near = encodings.rotary_of(gemma, "sliding_attention").angles
    np.testing.assert_allclose(near[:2], [1.0, 1e4 ** (-2 / 256)], rtol=1e-15)
    minimax = {"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64, "rope_theta": 5_000_000}
    found = encodings.rotary_of(minimax)
    assert len(found.angles) == 32
    assert found.angles[1] == pytest.approx(0.617529, abs=5e-7)
    phi = {"model_type": "phimoe", **LONG_FILE, "rope_scaling": {"type": "longrope", **LONG}}
    phi["rope_scaling"] |= {"short_mscale": 1.25, "long_mscale": 1.25}
    kind = AutoConfig.for_model("phimoe").__class__
    cosines, _ = rotary_class(kind)(kind(**copy.deepcopy(phi)))(torch.ones(1), torch.zeros(1, 1))
    assert encodings.rotary_of(phi).gain == float(cosines[0, 0, 0]) == 1.25
    granite = {"model_type": "granite_swa", "num_hidden_layers": 4, "layer_rope_theta": [0, 1e4, 1e4, 1e4]}
    assert encodings.rotary_of(granite, "sliding_attention").angles[1] == pytest.approx(1e4 ** (-2 / 128))
    assert [layer.positional == NoPE() for layer in from_huggingface(granite).stack] == [True, *[False] * 3]


@pytest.mark.parametrize(
    ("changes", "layer_type", "words"),
    [
        ({"model_type": "gpt2"}, None, "^model_type: "),
        ({"model_type": "falcon", "alibi": True}, None, "^model_type: "),
        ({"model_type": "cohere2"}, "full_attention", "^layer_type: "),
        ({"model_type": "gemma3_text"}, None, "^layer_type: "),
        ({"model_type": "llama"}, "sliding_attention", "^layer_type: "),
        ({"model_type": "llama", "rope_theta": 0}, None, "^rope_theta: "),
        ({"model_type": "gptj", "rotary_dim": None}, None, "^rotary_dim: "),
        (
            {
                "model_type": "phimoe",
                "rope_scaling": {"type": "longrope", "short_mscale": 1.0, "long_mscale": 2},
            },
            None,
            "^short_mscale: ",
        ),
        (
            {"model_type": "granite_swa", "num_hidden_layers": 4, "layer_rope_theta": [1, 2, 3, 4]},
            None,
            "^layer_rope_theta: ",
        ),
    ],
)
def test_what_does_not_rotate_or_cannot_be_read_is_refused(changes, layer_type, words):
    with pytest.raises(InvalidValueError, match=words):
        encodings.rotary_of(changes, layer_type)


def test_a_dynamic_scaling_counts_from_the_length_that_is_configured():
    file = {**SIZES, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    assert rope_of({**file, "max_position_embeddings": 2048}, [1.0]).scaling == DynamicNTK(2.0, 2048)
