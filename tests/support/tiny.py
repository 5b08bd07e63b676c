"""Tiny random models of every family in the table, and fixtures around a Llama with a tokenizer of words.

Each is built from its family's own configuration with two to four layers and a handful of channels, in
milliseconds. All weights are drawn anew, wide enough that attention is far from uniform; norms, biases, sinks and
multipliers too, for a weight that stands at 0 or 1 would hide where it is missing.
"""

import hashlib
import json
import random
import zipfile
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from project import cases

from families import SPECIAL, VOCABULARY, small
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


def save(model, path):
    """The folder of a model with a tokenizer of words, in Hugging Face's layout."""
    model.save_pretrained(path)
    word_tokenizer().save_pretrained(path)
    return path


def edit_config(folder, **changes):
    """Change some keys of the configuration in a model's folder."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


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


def write_gguf(model, path, merge='" #', said=lambda writer: None):
    """Write a Llama to a GGUF file with a byte-pair tokenizer of single characters, and what `said` adds."""
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
    said(writer)
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


def write_wheel(folder, project, files):
    """Write a wheel of version 1 of `project`, with underscores, that holds `files`: bytes by name."""
    path, info = folder / f"{project}-1-py3-none-any.whl", f"{project}-1.dist-info"
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: {project.replace('_', '-')}\nVersion: 1\n",
        "RECORD": "",
    }
    about["WHEEL"] = "Wheel-Version: 1.0\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, **{f"{info}/{name}": text for name, text in about.items()}}.items():
            archive.writestr(name, content)
    return path


_DEPTH = dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 3)
"""By the names that families have for it."""
_CHANGES: dict[str, list[dict[str, Any]]] = cases("layouts")
"""Families with layouts of more than one kind, or with parts that their defaults leave out."""


CASES = [(name, number) for name in FAMILIES for number in range(len(_CHANGES.get(name, [{}])))]
"""Every family in the table with the number of each of its tiny models: where layouts differ, more than one."""
RUNS = [(name, number, attention) for name, number in CASES for attention in FAMILIES[name].attention]
"""The same with every attention implementation that its row calls right."""


def configuration(model_type: str, variant: int = 0, **changes: Any) -> Any:
    """That of a specimen: the sizes of `tools/families.py`, but three layers."""
    kind = transformers.AutoConfig.for_model(model_type).__class__
    sizes = small(kind().to_dict()) | SPECIAL.get(model_type, {})
    own = _CHANGES.get(model_type, ({},))[variant]
    return kind(**sizes | {key: _DEPTH[key] for key in sizes.keys() & _DEPTH.keys()} | own | changes)


def specimen(model_type: str, variant: int = 0, attention: str | None = None, **changes: Any) -> Any:
    """A tiny random model of a family, in evaluation mode, float32, without parameter gradients.

    `attention` is the implementation, by default the first of the family's row; `changes` go into its
    configuration. The same arguments give the same weights.
    """
    family, config = FAMILIES[model_type], configuration(model_type, variant, **changes)
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
            wide = 1.0 if parameter.shape[0] == VOCABULARY or "embed" in key or "wpe" in key else 0.25
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
    return save(tiny.model, tmp_path / "tiny-llama")


@pytest.fixture
def ids():
    """One prompt of 12 tokens."""
    return torch.tensor(random.Random(8).choices(range(1, 51), k=12))
