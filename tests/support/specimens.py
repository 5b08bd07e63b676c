"""A tiny random model of every family in the table, to prove the table on.

Each is built from its family's own configuration with two to four layers and a handful of channels, in
milliseconds. All weights are drawn anew from a named stream, wide enough that attention is far from uniform;
norms, biases, sinks and multipliers too, for a weight that stands at 0 or 1 would hide where it is missing.
"""

from typing import Any

import torch
import transformers

from posbias.core.machine import stream
from posbias.measurement.models.families import FAMILIES
from posbias.measurement.models.tiny import register

register()

_VOCABULARY, _HIDDEN, _HEADS, _SHARED, _DEPTH, _CONTEXT = 64, 32, 4, 2, 3, 64
_COMMON = {
    "vocab_size": _VOCABULARY,
    "hidden_size": _HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": _DEPTH,
    "num_attention_heads": _HEADS,
    "max_position_embeddings": _CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {"num_key_value_heads": _SHARED}
_WINDOW = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_SPELLINGS = {
    "hidden_size": {"n_embd", "d_model"},
    "num_hidden_layers": {"n_layer", "n_layers", "num_layers"},
    "num_attention_heads": {"n_head", "n_heads", "num_heads"},
    "max_position_embeddings": {"n_positions", "max_seq_len"},
}
"""What families call the common sizes instead."""
_OLD_NAMES = {"n_embd": _HIDDEN, "n_layer": _DEPTH, "n_head": _HEADS, "n_positions": _CONTEXT}

_CHANGES: dict[str, tuple[dict[str, Any], ...]] = {
    "llama": ({**_GROUPED, "attention_bias": True},),
    "mistral": ({**_GROUPED, "sliding_window": 5},),
    "mixtral": ({**_GROUPED, **_EXPERTS, "sliding_window": 5},),
    "qwen2": ({**_GROUPED, **_WINDOW, "use_sliding_window": True},),
    "qwen3": ({**_GROUPED, **_WINDOW, "use_sliding_window": True, "head_dim": 12},),
    "gemma": ({**_GROUPED, "head_dim": 8},),
    "gemma2": (
        {**_GROUPED, **_WINDOW, "head_dim": 12, "query_pre_attn_scalar": 10, "attn_logit_softcapping": 3.0},
    ),
    "gemma3_text": ({**_GROUPED, **_WINDOW, "head_dim": 12, "query_pre_attn_scalar": 10},),
    "phi": ({"partial_rotary_factor": 0.5},),
    "phi3": ({**_GROUPED, "sliding_window": 5},),
    "olmo": ({**_GROUPED, "clip_qkv": 2.0},),
    "olmo2": (_GROUPED,),
    "granite": ({**_GROUPED, "attention_multiplier": 0.2, "residual_multiplier": 0.3},),
    "stablelm": ({**_GROUPED, "partial_rotary_factor": 0.5}, {**_GROUPED, "use_parallel_residual": True}),
    "starcoder2": ({**_GROUPED, "sliding_window": 5},),
    "cohere2": ({**_GROUPED, **_WINDOW},),
    "smollm3": ({**_GROUPED, "no_rope_layers": [1, 0, 1]},),
    "llama4_text": (
        {
            **_GROUPED,
            **_EXPERTS,
            "head_dim": 8,
            "intermediate_size_mlp": 48,
            "interleave_moe_layer_step": 2,
            "no_rope_layers": [1, 0, 1],
            "attention_chunk_size": 8,
            "floor_scale": 4,
            "layer_types": ["chunked_attention", "full_attention", "chunked_attention"],
        },
    ),
    "gpt_oss": ({**_GROUPED, **_EXPERTS, **_WINDOW, "head_dim": 8},),
    "gpt_neox": ({"use_parallel_residual": True}, {"use_parallel_residual": False}),
    "gptj": ({**_OLD_NAMES, "rotary_dim": 4},),
    "gpt2": (
        {**_OLD_NAMES, "scale_attn_by_inverse_layer_idx": True},
        {**_OLD_NAMES, "reorder_and_upcast_attn": True},
    ),
    "gpt_neo": (
        {
            "num_layers": _DEPTH,
            "num_heads": _HEADS,
            "attention_types": [[["local", "global", "local"], 1]],
            "window_size": 5,
        },
    ),
    "opt": (
        {"ffn_dim": 48, "word_embed_proj_dim": _HIDDEN},
        {"ffn_dim": 48, "do_layer_norm_before": False, "word_embed_proj_dim": 16},
    ),
    "falcon": (
        {
            "alibi": True,
            "new_decoder_architecture": False,
            "parallel_attn": False,
            "multi_query": False,
            "bias": True,
        },
        {"alibi": False, "new_decoder_architecture": False, "parallel_attn": True, "multi_query": True},
        {"alibi": False, "new_decoder_architecture": True, "num_kv_heads": _SHARED},
    ),
    "bloom": ({"n_layer": _DEPTH, "n_head": _HEADS}, {"n_layer": _DEPTH, "n_head": 6, "hidden_size": 36}),
    "mpt": (
        {
            "d_model": _HIDDEN,
            "n_layers": _DEPTH,
            "n_heads": _HEADS,
            "max_seq_len": _CONTEXT,
            "expansion_ratio": 2,
        },
        {"d_model": 36, "n_layers": _DEPTH, "n_heads": 6, "max_seq_len": _CONTEXT, "expansion_ratio": 2},
    ),
    "bert": ({},),
    "posbias_tiny": (
        {"encoding": "alibi"},
        {"encoding": "rope"},
        {"encoding": "nope"},
        {"encoding": "learned"},
        {"encoding": "window", "sliding_window": 5},
    ),
}


def variants(model_type: str) -> int:
    """Return how many tiny models there are of a family: where layouts differ, more than one."""
    return len(_CHANGES[model_type])


def specimen(model_type: str, variant: int = 0, attention: str | None = None, **changes: Any) -> Any:
    """Return a tiny random model of a family, in evaluation mode, float32, without parameter gradients.

    `attention` is the implementation, by default the first of the family's row; `changes` go into its
    configuration. The same arguments give the same weights.
    """
    family = FAMILIES[model_type]
    config = specimen_config(model_type, variant, **changes)
    head = transformers.AutoModelForCausalLM if family.causal else transformers.AutoModelForMaskedLM
    with torch.random.fork_rng(devices=[]):
        implementation = attention or family.attention[0]
        model = head.from_config(config, attn_implementation=implementation, trust_remote_code=False)
    _draw(model, model_type)
    return model.eval().requires_grad_(False)


def specimen_config(model_type: str, variant: int = 0, **changes: Any) -> Any:
    """Return the configuration of a `specimen`."""
    kind = transformers.AutoConfig.for_model(model_type).__class__
    own = _CHANGES[model_type][variant]
    common: dict[str, Any] = {
        name: size for name, size in _COMMON.items() if not own.keys() & _SPELLINGS.get(name, ())
    }
    return kind(**common | own | changes)


def _draw(model: Any, name: str) -> None:
    generator = stream(0, f"specimen of {name}")
    for key, parameter in sorted(model.named_parameters()):
        shape = tuple(parameter.shape)
        if len(shape) >= 2:
            wide = 1.0 if parameter.shape[0] in (_VOCABULARY,) or "embed" in key or "wpe" in key else 0.25
            values = generator.normal(scale=wide, size=shape)
        elif key.endswith("weight"):
            values = generator.uniform(0.5, 1.5, size=shape)
        else:
            values = generator.normal(scale=0.3, size=shape)
        parameter.data.copy_(torch.from_numpy(values))
