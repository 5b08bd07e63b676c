"""Tiny random models of every family in the table, and fixtures around a Llama with a tokenizer of words.

Each is built from its family's own configuration with two to four layers and a handful of channels, in
milliseconds. All weights are drawn anew, wide enough that attention is far from uniform; norms, biases, sinks and
multipliers too, for a weight that stands at 0 or 1 would hide where it is missing.
"""

import hashlib
import random
from typing import Any

import pytest
import tokenizers
import torch
import transformers

from posbias.core.machine import stream
from posbias.measurement.capture.forward import Capture
from posbias.measurement.models.families import FAMILIES
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.models.tiny import register
from posbias.measurement.quantities.influence import predict

register()
# (torch may have been imported before OMP_NUM_THREADS was set)
torch.set_num_threads(1)

WORDS = [f"w{number}" for number in range(50)]


def word_tokenizer():
    """One token a word: a real tokenizer without any training."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def llama(**changes):
    """A random Llama with grouped keys; weights wide enough that attention is far from uniform."""
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.4,
    }
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = transformers.LlamaConfig(**(sizes | changes), attn_implementation="eager")
        model = transformers.LlamaForCausalLM(config).eval()
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.data.uniform_(0.5, 1.5)
    return model


def interleaved(weight, heads):
    """Rows of a query or key map as GGUF files hold them: the two halves of a head's channels in turn."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def write_gguf(model, path, merge='" #'):
    """Write a Llama to a GGUF file, in float32, with a byte-pair tokenizer of single characters."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*map(chr, range(33, 32 + config.vocab_size)), '"#'])
    writer.add_token_merges([merge])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = {"self_attn.": "attn_", "mlp.": "ffn_", "_proj": "", "attn_o.": "attn_output."}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names |= {"model.layers.": "blk.", "model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    for name, weight in model.state_dict().items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        heads = {"attn_q.": config.num_attention_heads, "attn_k.": config.num_key_value_heads}
        for part, number in heads.items():
            if part in name:
                weight = interleaved(weight, number)
        writer.add_tensor(name.replace("lm_head", "output"), weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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


CASES = [(name, number) for name in FAMILIES for number in range(len(_CHANGES[name]))]
"""Every family in the table with the number of each of its tiny models: where layouts differ, more than one."""
RUNS = [(name, number, attention) for name, number in CASES for attention in FAMILIES[name].attention]
"""The same with every attention implementation that its row calls right."""


def specimen(model_type: str, variant: int = 0, attention: str | None = None, **changes: Any) -> Any:
    """A tiny random model of a family, in evaluation mode, float32, without parameter gradients.

    `attention` is the implementation, by default the first of the family's row; `changes` go into its
    configuration. The same arguments give the same weights.
    """
    family = FAMILIES[model_type]
    own = _CHANGES[model_type][variant]
    common = {name: size for name, size in _COMMON.items() if not own.keys() & _SPELLINGS.get(name, ())}
    config = transformers.AutoConfig.for_model(model_type).__class__(**common | own | changes)
    head = transformers.AutoModelForCausalLM if family.causal else transformers.AutoModelForMaskedLM
    with torch.random.fork_rng(devices=[]):
        implementation = attention or family.attention[0]
        model = head.from_config(config, attn_implementation=implementation, trust_remote_code=False)
    _draw(model, model_type)
    return model.eval().requires_grad_(False)


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


def tiny_model(family="llama", number=0, attention=None, **changes):
    """A tiny model of a family in the attention implementation asked for (default: its row's first)."""
    model = specimen(family, number, attention, **changes)
    name = f"tiny-{family}"
    checksum = hashlib.sha256(f"{name} {number} {sorted(changes.items())}".encode()).hexdigest()
    return LoadedModel(model, word_tokenizer(), FAMILIES[family], name, checksum)


def seen_layers(loaded, ids):
    """What the capture sees of every layer in one pass over `ids`."""
    layers = []
    with Capture(loaded.model, loaded.family, layers.append):
        predict(loaded.model, ids)
    return layers


@pytest.fixture
def build():
    """A function that builds a `LoadedModel` with the configuration's fields changed."""
    return lambda **changes: LoadedModel.of(llama(**changes), word_tokenizer(), "tiny")


@pytest.fixture
def tiny(build):
    return build()


@pytest.fixture
def text(tmp_path):
    """A text of 200 words."""
    path = tmp_path / "words.txt"
    path.write_text(" ".join(random.Random(5).choices(WORDS, k=200)), encoding="utf-8")
    return path


@pytest.fixture
def folder(tiny, tmp_path):
    """The tiny model as a folder in Hugging Face's layout."""
    path = tmp_path / "tiny-llama"
    tiny.model.save_pretrained(path)
    tiny.tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def ids():
    """One prompt of 12 tokens."""
    return torch.tensor(random.Random(8).choices(range(1, 51), k=12))
