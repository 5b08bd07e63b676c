"""Tiny Llama models with a real tokenizer, and texts for them: everything here runs in milliseconds."""

import random

import pytest
import tokenizers
import torch
import transformers

from posbias.measurement import LoadedModel

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
